"""Real processes on this machine: one a rank, gloo or NCCL between them, as if `hosts` machines of `ranks_per_host` each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from launchers import processes


def launch(
    work: Callable[..., Any],
    arguments: dict,
    folder: Path,
    *,
    hosts: int,
    ranks_per_host: int,
    threads_per_rank: int = 1,
    timeout_s: float = 600.0,
) -> Any:
    """Runs `work(**arguments)` on every rank and returns what rank 0 returned.

    Raises: a rank's own UserError; RankLost when a process died or hangs; RuntimeError with the rank's traceback for our bugs.
    """
    world, port = hosts * ranks_per_host, processes.free_port()
    ranks = [processes.rank_variables(rank, world, ranks_per_host, "127.0.0.1", port, threads_per_rank, timeout_s) for rank in range(world)]
    return processes.run(work, arguments, folder, ranks)
