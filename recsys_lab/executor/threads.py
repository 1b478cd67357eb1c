"""Cores for communication alone, so that its threads do not take those of compute (sections IV-C and VI-D1).

A launcher may bind each rank to cores of its own, as the paper does with a socket. Then each rank has its own cores for communication.
Where all ranks may use all cores, they also share those for communication.
"""

from __future__ import annotations

import os
from pathlib import Path

from recsys_lab.errors import UserError

#: What gloo calls its threads, and torch those that run gloo's collectives.
COMMUNICATION = ("gloo_", "pt_gloo")


def keep_apart(cores: int) -> None:
    """Threads of communication run on the last `cores` that this process may use, its others on the rest; 0: any on any.

    To be called once all process groups are there: a thread that starts later takes after the one that starts it. Raises UserError where
    no core would be left for compute.
    """
    if not cores:
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
        os.sched_setaffinity(thread, own)


def threads() -> dict[int, str]:
    """Of this process, by number."""
    names = {}
    for task in Path("/proc/self/task").iterdir():
        try:
            names[int(task.name)] = (task / "comm").read_text().strip()
        except FileNotFoundError:  # has ended since
            continue
    return names
