"""Runs a function on N real processes joined by gloo.

A fork server has torch and torchrec imported already, so that a start costs a fraction of a second. Values come back in rank
order; the first error of a rank is raised with its traceback; nothing hangs and no process is left.
"""

from __future__ import annotations

import io
import multiprocessing as mp
import os
import tempfile
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
import torch.distributed as dist

PRELOAD = [
    "torch",
    "torchrec",
    "torchrec.distributed.model_parallel",
    "torchrec.distributed.planner",
    "recsys_lab.executor.sharding",
    "recsys_lab.train.model_executor",
]


class RankFailed(AssertionError):
    """A rank raised, died or did not end in time."""


def run_ranks(
    function: Callable[..., Any], hosts: int, ranks_per_host: int, *args: Any, timeout_s: float = 120, backend: str = "gloo"
) -> list[Any]:
    """`function(*args)` on every rank of `hosts` x `ranks_per_host`, in a process group; the values, by rank.

    `backend`: gloo, recorded, or shared_memory, which is recorded too.
    `function` must be importable (top level of a module). Tensors, plain data and our dataclasses can be given and returned.
    Raises RankFailed with the traceback of the rank that failed first.
    """
    world = hosts * ranks_per_host
    context = mp.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    with tempfile.TemporaryDirectory() as folder:
        pipes = [context.Pipe(duplex=False) for _ in range(world)]
        processes = [
            context.Process(
                target=_rank, args=(function, args, rank, hosts, ranks_per_host, f"{folder}/store", backend, timeout_s, end), daemon=True
            )
            for rank, (_, end) in enumerate(pipes)
        ]
        try:
            for process, (_, end) in zip(processes, pipes):
                process.start()
                end.close()
            return _collect([begin for begin, _ in pipes], time.monotonic() + timeout_s)
        finally:
            for process in processes:
                if process.pid is not None:
                    process.join(timeout=0.5 if process.exitcode is None else None)
                    if process.is_alive():
                        process.kill()
                        process.join()
            for begin, _ in pipes:
                begin.close()


def _collect(connections: list[Connection], deadline: float) -> list[Any]:
    """One answer a rank. On a failure waits a moment for the others: the first cause is wanted, not the peers' lost connections."""
    values: dict[int, Any] = {}
    failures: list[tuple[float, int, str]] = []
    open_ranks = {connection: rank for rank, connection in enumerate(connections)}
    while open_ranks and time.monotonic() < deadline:
        for connection in wait(list(open_ranks), timeout=max(0.0, deadline - time.monotonic())):
            rank = open_ranks.pop(connection)
            try:
                ok, when, value = connection.recv()
            except (EOFError, OSError):
                ok, when, value = False, 0.0, "the process died without a word"  # its peers' errors may be older than this news of it
            if ok:
                values[rank] = torch.load(io.BytesIO(value), weights_only=False)  # written by our own child a moment ago
            else:
                failures.append((when, rank, value))
                deadline = min(deadline, time.monotonic() + 2)
    if failures:
        _, rank, trace = min(failures)
        raise RankFailed(f"rank {rank} failed\n{trace}")
    if open_ranks:
        raise RankFailed(f"ranks {sorted(open_ranks.values())} did not end in time")
    return [values[rank] for rank in range(len(connections))]


def _rank(
    function, args, rank: int, hosts: int, ranks_per_host: int, store: str, backend: str, timeout_s: float, answer: Connection
) -> None:
    torch.set_num_threads(1)
    os.environ |= {
        "RANK": str(rank),
        "WORLD_SIZE": str(hosts * ranks_per_host),
        "LOCAL_RANK": str(rank % ranks_per_host),
        "LOCAL_WORLD_SIZE": str(ranks_per_host),
        "GROUP_RANK": str(rank // ranks_per_host),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "RECSYS_LAB_COLLECTIVES": "shared_memory" if backend == "shared_memory" else "gloo",
    }
    try:
        dist.init_process_group(
            "recorded" if backend == "shared_memory" else backend,
            init_method=f"file://{store}",
            rank=rank,
            world_size=hosts * ranks_per_host,
            timeout=timedelta(seconds=timeout_s),
        )
        value = function(*args)
        box = io.BytesIO()
        torch.save(value, box)
        dist.barrier()
        answer.send((True, time.time(), box.getvalue()))
    except BaseException:  # noqa: BLE001 - the caller raises it
        answer.send((False, time.time(), traceback.format_exc()))
    answer.close()
    os._exit(0)  # gloo's threads sometimes abort a process that ends in the usual way
