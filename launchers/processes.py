"""One process a rank on this machine: started, listened to, and stopped. Nothing hangs and nothing is left.

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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import connection
from pathlib import Path
from typing import Any

from recsys_lab.errors import RankLost, UserError

PRELOAD = ["launchers.preload"]
#: How long ranks may take to end after another one failed, before they are killed.
GRACE_S = 3.0
#: How long a rank that lost its peers tries to reach the first host, so that a host that is cut off can be named.
REACH_S = 2.0


@dataclass
class Failure:
    """What a rank sends home when it fails. `lost_peer`: it only noticed that another rank went away; `cut_off`: and cannot reach
    the first host either.
    """

    error: UserError | None
    text: str
    lost_peer: bool
    cut_off: bool = False


def warm() -> None:
    """Starts the server that ranks are forked from, in the background: it imports while this process plans."""
    from multiprocessing import forkserver

    multiprocessing.set_forkserver_preload(PRELOAD)
    forkserver.ensure_running()


def run(
    work: Callable[..., Any],
    arguments: dict,
    folder: Path,
    ranks: Sequence[dict[str, str]],
    enter: Callable[[int], None] | None = None,
) -> Any:
    """Runs `work(**arguments)` on every rank and returns what rank 0 returned. `ranks`: each one's environment variables.

    `enter(host)` is the first thing that a rank does, in its own process. Raises a rank's own UserError; RankLost when a process died,
    hangs or is cut off; RuntimeError with the rank's traceback for our bugs.
    """
    warm()
    context = multiprocessing.get_context("forkserver")
    logs = folder / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    pipes, processes = [], []
    try:
        for rank, variables in enumerate(ranks):
            here, there = context.Pipe(duplex=False)
            log = None if rank == 0 else logs / f"rank{rank}.log"
            process = context.Process(target=_rank_main, args=(there, variables, log, enter, work, arguments), name=f"rank {rank}")
            process.start()
            there.close()
            pipes.append(here)
            processes.append(process)
        return _collect(processes, pipes, int(ranks[0]["LOCAL_WORLD_SIZE"]), folder)
    finally:
        _stop(processes)


def rank_variables(rank: int, world: int, ranks_per_host: int, address: str, port: int, threads: int, timeout_s: float) -> dict[str, str]:
    """torchrun's environment for one rank, and how many threads it may use."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_RANK": str(rank % ranks_per_host),
        "LOCAL_WORLD_SIZE": str(ranks_per_host),
        "GROUP_RANK": str(rank // ranks_per_host),
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": str(threads),
        "RECSYS_LAB_TIMEOUT_S": str(timeout_s),
    }


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def _rank_main(
    home: connection.Connection,
    variables: dict[str, str],
    log: Path | None,
    enter: Callable[[int], None] | None,
    work: Callable,
    arguments: dict,
) -> None:
    """The whole life of a rank. Ends without running exit handlers: gloo's threads now and then abort in them."""
    if enter is not None:
        enter(int(variables["GROUP_RANK"]))  # before there is a second thread: a namespace is a thread's
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
        lost = is_lost_peer(text)
        cut_off = lost and not _reaches(variables["MASTER_ADDR"], int(variables["MASTER_PORT"]))
        home.send(Failure(error if isinstance(error, UserError) else None, text, lost, cut_off))
        if lost and variables["RANK"] == "0":
            time.sleep(GRACE_S + REACH_S)  # the others try to reach us; the launcher ends this sooner
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


def is_lost_peer(text: str) -> bool:
    """Whether an error is only the echo of another rank's end (gloo reports it as a plain RuntimeError)."""
    signs = (
        "Connection closed by peer",
        "Connection reset by peer",
        "Timed out waiting",
        "Broken pipe",
        "Socket Timeout",
        "connection was closed",
        "connectFullMesh",
        "failed to recv",
        "wait timeout",
        "waiting for clients",
        "application timeout",
    )
    return any(sign.lower() in text.lower() for sign in signs)


def _reaches(address: str, port: int) -> bool:
    """Whether the first host's store answers."""
    try:
        socket.create_connection((address, port), timeout=REACH_S).close()
    except OSError:
        return False
    return True


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
                deadline = deadline or time.monotonic() + GRACE_S + REACH_S
            else:
                results[rank] = answer
    if failures:
        _raise_first(failures, sorted(waiting), len(pipes), ranks_per_host, folder)
    return results[0]


def _how_it_ended(code: int | None) -> str:
    if code is not None and code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code} and no answer"


def _raise_first(failures: dict[int, Failure], silent: list[int], world: int, ranks_per_host: int, folder: Path) -> None:
    """A rank's own mistake first, then our bug, then a lost process; echoes of those never hide them."""
    for failure in failures.values():
        if failure.error is not None:
            raise failure.error
    for rank, failure in failures.items():
        if not failure.lost_peer and "Traceback" in failure.text:
            raise RuntimeError(f"rank {rank} failed:\n{failure.text}")
    raise RankLost(_what_was_lost(failures, silent, world, ranks_per_host), remedy=f"resume with: python run.py resume={folder}")


def _what_was_lost(failures: dict[int, Failure], silent: list[int], world: int, ranks_per_host: int) -> str:
    """A process that died; else a host from which the first cannot be reached; else ranks that never answered; else who complained."""
    died = [(rank, failure) for rank, failure in failures.items() if not failure.lost_peer]
    if died:
        rank, failure = died[0]
        return f"rank {rank} on host {rank // ranks_per_host} was lost ({last_line(failure.text)})"
    cut = sorted({rank // ranks_per_host for rank, failure in failures.items() if failure.cut_off})
    if cut:
        others = sorted(set(range(world // ranks_per_host)) - set(cut) - {0})
        if not others and len(cut) > 1:
            cut = [0]  # nobody reaches the first host: it is that one
        named = ", ".join(f"host {host} (ranks {host * ranks_per_host} to {(host + 1) * ranks_per_host - 1})" for host in cut)
        return f"{named} cannot be reached over the network"
    if silent:
        named = ", ".join(f"rank {rank} on host {rank // ranks_per_host}" for rank in silent)
        return f"{named} hangs: it does not answer, and the others waited for it in vain"
    rank, failure = next(iter(failures.items()))
    return f"rank {rank} on host {rank // ranks_per_host} lost its peers ({last_line(failure.text)})"


def last_line(text: str) -> str:
    return text.strip().splitlines()[-1]


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
