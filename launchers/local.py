"""Real processes on this machine: one a rank, gloo or NCCL between them, as if `hosts` machines of `ranks_per_host` each.

Processes are forked from a server that has imported the heavy libraries once, so a start costs tenths of a second a rank.
Ranks see the same environment variables that torchrun sets.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import connection
from pathlib import Path
from typing import Any

from recsys_lab.errors import RankLost, UserError

PRELOAD = ["launchers.preload"]
#: How long ranks may take to end after another one failed, before they are killed.
GRACE_S = 3.0


@dataclass
class Failure:
    """What a rank sends home when it fails. `lost_peer`: it only noticed that another rank went away."""

    error: UserError | None
    text: str
    lost_peer: bool


def warm() -> None:
    """Starts the server that ranks are forked from, in the background: it imports while this process plans."""
    from multiprocessing import forkserver

    multiprocessing.set_forkserver_preload(PRELOAD)
    forkserver.ensure_running()


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

    Raises: a rank's own UserError; RankLost when a process died; RuntimeError with the rank's traceback for our bugs.
    """
    warm()
    context = multiprocessing.get_context("forkserver")
    world = hosts * ranks_per_host
    port = _free_port()
    logs = folder / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    pipes, processes = [], []
    try:
        for rank in range(world):
            here, there = context.Pipe(duplex=False)
            variables = rank_variables(rank, world, ranks_per_host, port, threads_per_rank, timeout_s)
            log = None if rank == 0 else logs / f"rank{rank}.log"
            process = context.Process(target=_rank_main, args=(there, variables, log, work, arguments), name=f"rank {rank}", daemon=False)
            process.start()
            there.close()
            pipes.append(here)
            processes.append(process)
        return _collect(processes, pipes, ranks_per_host, folder)
    finally:
        _stop(processes)


def rank_variables(rank: int, world: int, ranks_per_host: int, port: int, threads: int, timeout_s: float) -> dict[str, str]:
    """torchrun's environment for one rank, and how many threads it may use."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_RANK": str(rank % ranks_per_host),
        "LOCAL_WORLD_SIZE": str(ranks_per_host),
        "GROUP_RANK": str(rank // ranks_per_host),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": str(threads),
        "RECSYS_LAB_TIMEOUT_S": str(timeout_s),
    }


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def _rank_main(home: connection.Connection, variables: dict[str, str], log: Path | None, work: Callable, arguments: dict) -> None:
    """The whole life of a rank. Ends without running exit handlers: gloo's threads now and then abort in them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the launcher, which stops us
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ.update(variables)
    if log is not None:
        handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
    import torch

    torch.set_num_threads(int(variables["OMP_NUM_THREADS"]))
    code = 0
    try:
        home.send(work(**arguments))
    except BaseException as error:  # the launcher decides what it was
        code = 1
        text = traceback.format_exc()
        home.send(Failure(error if isinstance(error, UserError) else None, text, _is_lost_peer(text)))
    finally:
        home.close()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)


def _is_lost_peer(text: str) -> bool:
    """Whether an error is only the echo of another rank's end (gloo reports it as a plain RuntimeError)."""
    signs = (
        "Connection closed by peer",
        "Connection reset by peer",
        "Timed out waiting",
        "Broken pipe",
        "Socket Timeout",
        "connection was closed",
    )
    return any(sign.lower() in text.lower() for sign in signs)


def _collect(processes: list, pipes: list[connection.Connection], ranks_per_host: int, folder: Path) -> Any:
    results: dict[int, Any] = {}
    failures: dict[int, Failure] = {}
    waiting = dict(enumerate(pipes))
    deadline: float | None = None
    while waiting:
        patience = None if deadline is None else max(0.0, deadline - time.monotonic())
        ready = connection.wait(list(waiting.values()), timeout=patience)
        if not ready:
            break
        for rank in [r for r, pipe in waiting.items() if pipe in ready]:
            try:
                answer = waiting[rank].recv()
            except EOFError:
                processes[rank].join(GRACE_S)
                answer = Failure(None, _how_it_ended(processes[rank].exitcode), False)
            del waiting[rank]
            if isinstance(answer, Failure):
                failures[rank] = answer
                deadline = deadline or time.monotonic() + GRACE_S
            else:
                results[rank] = answer
    if failures:
        _raise_first(failures, ranks_per_host, folder)
    return results[0]


def _how_it_ended(code: int | None) -> str:
    if code is not None and code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code} and no answer"


def _raise_first(failures: dict[int, Failure], ranks_per_host: int, folder: Path) -> None:
    """A rank's own mistake first, then our bug, then a lost process; echoes of those never hide them."""
    for failure in failures.values():
        if failure.error is not None:
            raise failure.error
    for rank, failure in failures.items():
        if not failure.lost_peer and "Traceback" in failure.text:
            raise RuntimeError(f"rank {rank} failed:\n{failure.text}")
    rank, failure = next(((r, f) for r, f in failures.items() if not f.lost_peer), next(iter(failures.items())))
    raise RankLost(
        f"rank {rank} on host {rank // ranks_per_host} was lost ({failure.text.strip().splitlines()[-1]})",
        remedy=f"resume with: python run.py resume={folder}",
    )


def _stop(processes: list) -> None:
    for process in processes:
        if process.is_alive():
            process.terminate()
    until = time.monotonic() + GRACE_S
    for process in processes:
        process.join(max(0.0, until - time.monotonic()))
        if process.is_alive():
            process.kill()
            process.join()
