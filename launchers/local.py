"""Real processes on this machine: one a rank, its memory or NCCL between them, as if `hosts` machines of `ranks_per_host` each."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from launchers import agent, processes
from recsys_lab.base.devices import LOCAL_RANK
from recsys_lab.base.environment import COLLECTIVES, SHARED_MEMORY, word_of
from recsys_lab.base.ranges import Hosts, RanksPerHost, Threads, Timeout

#: The cores of a rank, as `executor/cpu/threads.py` reads them; `any` leaves them to the system.
CORES = "RECSYS_LAB_CORES"
#: The launchers whose ranks are processes of this machine.
HERE = ("launchers.local.launch", "launchers.emulated.launch")


def prepare(libraries: Sequence[str]) -> None:
    """Starts the agent, which imports what ranks need while the run is planned. `libraries`: what this run's need beside the usual ones."""
    agent.start(libraries=libraries)


def launch(
    work: Callable[..., Any],
    arguments: dict,
    folder: Path,
    *,
    hosts: Hosts,
    ranks_per_host: RanksPerHost,
    threads_per_rank: Threads = 1,
    timeout_s: Timeout = 600.0,
) -> Any:
    """Runs `work(**arguments)` on every rank. Nothing listens to other machines.

    Args:
        work: what each rank runs; a function of a module, since it is pickled.
        arguments: its keyword arguments, the same for all ranks.
        folder: the run folder; ranks but the first log in its `logs`.
        hosts, ranks_per_host: how ranks are grouped, as if on so many machines.
        threads_per_rank: of compute.
        timeout_s: a rank that waits longer for the others gives up.

    Returns:
        What rank 0 returned.

    Raises:
        UserError: a rank's own.
        RankLost: where a process died or hangs.
        RuntimeError: with the rank's traceback, for our bugs.
    """
    world = hosts * ranks_per_host
    # CPU ranks exchange through the memory of this machine, unless the user's own variable says `gloo`
    here = processes.ON_THIS_MACHINE | {COLLECTIVES: word_of(COLLECTIVES) or SHARED_MEMORY}
    address, shared = (processes.THIS_MACHINE, processes.ANY_PORT), shared_cores(world, threads_per_rank)
    ranks = [
        processes.rank_variables(rank, world, ranks_per_host, *address, threads_per_rank, timeout_s)
        | here
        | {CORES: os.environ.get(CORES, shared[rank]), LOCAL_RANK: f"{rank}/{world}"}
        for rank in range(world)
    ]
    return agent.run(work, arguments, folder, ranks)


def shared_cores(ranks: int, threads: int) -> list[str]:
    """Of each rank, where threads of ranks are more than cores and share them out evenly; else `any`.

    Ranks that wait for one another are else moved from core to core, away from their caches (docs/decisions/shared-memory.md).
    """
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if not cores or threads > len(cores) or ranks * threads <= len(cores) or ranks * threads % len(cores):
        return ["any"] * ranks
    return [",".join(str(cores[(rank * threads + thread) % len(cores)]) for thread in range(threads)) for rank in range(ranks)]
