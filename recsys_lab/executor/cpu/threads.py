"""Cores for communication alone, so that its threads do not take those of compute (sections IV-C and VI-D1).

A launcher may bind each rank to cores of its own, as the paper does with a socket. Then each rank has its own cores for communication.
Where all ranks may use all cores, they also share those for communication. `launcher=local` gives each rank its cores where ranks are
more than those. Ranks that share a core then take long turns on it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import struct
from pathlib import Path

from recsys_lab.errors import UserError

#: The launcher's variable: the cores of this rank, and of ranks with the same value; ANY keeps to none.
OWN, ANY = "RECSYS_LAB_CORES", "any"
#: What gloo calls its threads, and torch those that run gloo's collectives.
COMMUNICATION = ("gloo_", "pt_gloo")
#: How long a rank may keep a core that it shares: the most that Linux takes.
TURN_NS = 100_000_000
#: The number of that system call, which Python does not have.
SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}


def keep_apart(cores: int) -> None:
    """Threads of communication run on the last `cores` that this process may use, its others on the rest; 0: any on all that are its own.

    To be called once all process groups are there: a thread that starts later takes after the one that starts it. Raises UserError where
    no core would be left for compute.
    """
    if not cores:
        _keep_to(os.environ.get(OWN, ANY))
        return
    usable = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if not 0 < cores < len(usable):
        raise UserError(
            "compute and communication want a core each",
            where="sharder.executor.communication_cores",
            given=cores,
            allowed=f"0 to {max(0, len(usable) - 1)}, of the {len(usable)} cores that a rank may use",
        )
    for thread, name in threads().items():
        own = usable[-cores:] if name.startswith(COMMUNICATION) else usable[:-cores]
        with contextlib.suppress(ProcessLookupError):  # it has ended since
            os.sched_setaffinity(thread, own)


def _keep_to(own: str) -> None:
    """All threads of this process run on the cores `own`, separated by commas."""
    if own == ANY or not hasattr(os, "sched_setaffinity"):
        return
    usable = sorted(os.sched_getaffinity(0))
    if not set(own.split(",")) <= set(map(str, usable)):
        allowed = f"{ANY}, or some of {','.join(map(str, usable))}"
        raise UserError("no cores that a rank may use", where=OWN, given=own, allowed=allowed)
    for thread in threads():
        with contextlib.suppress(ProcessLookupError):  # it has ended since
            os.sched_setaffinity(thread, [int(core) for core in own.split(",")])
            _take_long_turns(thread)


def _take_long_turns(thread: int) -> None:
    """The core goes to another rank when this one waits, not after some ms and not when the other wakes: each finds its caches used.

    Linux heeds the length of a turn from 6.12 on. Other threads of the machine get their share as before.
    """
    number = SCHED_SETATTR.get(platform.machine())
    if number is None or not hasattr(os, "SCHED_BATCH"):
        return
    nice = os.getpriority(os.PRIO_PROCESS, thread)
    attributes = struct.pack("IIQiIQQQ", 48, os.SCHED_BATCH, 0, nice, 0, TURN_NS, 0, 0)  # Linux's struct sched_attr
    ctypes.CDLL(None).syscall(number, thread, attributes, 0)  # where it fails, turns are the usual ones


def threads() -> dict[int, str]:
    """Of this process, by number."""
    names = {}
    for task in Path("/proc/self/task").iterdir():
        try:
            names[int(task.name)] = (task / "comm").read_text().strip()
        except (FileNotFoundError, ProcessLookupError):  # has ended since
            continue
    return names
