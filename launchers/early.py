"""The server of ranks, started before the command line is read, where a line most likely trains on this machine.

Its imports take longer than all that is done until ranks start. Where the guess was wrong, `local.prepare` ends it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence

from launchers import processes

#: Values of keys with which a line trains here; without the key it does too.
TRAINS_HERE = {"mode": ("auto", "train"), "launcher": ("local", "emulated")}
#: Keys that may say anything, and flags that change nothing of it.
OPEN, FLAGS = ("study", "experiment"), ("-m", "--multirun")


def begin(argv: Sequence[str]) -> None:
    """For a process that has computed nothing. `argv`: the words of the line. What goes wrong is said when the line has been read.

    On one core nothing begins: a line that is refused would wait for imports that it does not need.
    """
    with contextlib.suppress(OSError):
        for stream in (0, 1, 2):
            os.fstat(stream)  # else a pipe of the server would take the place of a closed one
        if cores() > 1 and trains_here(argv, os.environ):
            processes.warm()


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def trains_here(argv: Sequence[str], variables: Mapping[str, str]) -> bool:
    """Whether these words most likely train on this machine. A rank that torchrun or SLURM started is the process that trains."""
    if "RANK" in variables or "SLURM_PROCID" in variables:
        return False
    for word in argv:
        key, is_override, value = word.partition("=")
        if (not is_override and word not in FLAGS) or key in OPEN or value not in TRAINS_HERE.get(key, (value,)):
            return False
    return True
