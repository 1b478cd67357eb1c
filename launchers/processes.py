"""The ranks of one run on this machine: started, listened to, and stopped. Nothing hangs and nothing is left.

The agent (agent.py) forks them, so that a rank starts in tenths of a second. They see the environment variables that torchrun sets.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import re
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

from recsys_lab.base.files import pasted
from recsys_lab.base.streams import Streams
from recsys_lab.errors import RankLost, Terminated, UserError, unwritable

#: How long ranks may take to write a checkpoint after SIGTERM: SLURM and Kubernetes kill after 30 seconds.
CHECKPOINT_S = 20.0
THIS_MACHINE, LOOPBACK = "127.0.0.1", "lo"
#: Ranks of one machine listen to it alone: gloo's pairs and NCCL's first words too, whatever the user's own variables say.
ON_THIS_MACHINE = {"GLOO_SOCKET_IFNAME": LOOPBACK, "NCCL_SOCKET_IFNAME": LOOPBACK}
#: How long ranks may take to end after another one failed, before they are killed.
GRACE_S = 3.0
#: How long a rank that lost its peers tries to reach the first host. So a host that is cut off can be named.
REACH_S = 2.0
#: What gloo, torch's stores and NCCL say where a peer went away.
LOST_PEER = (
    "connection (closed by (remote )?peer|reset by peer|was closed)|broken pipe|failed to recv|connectFullMesh|remote process exit|"
    "timed out waiting|(socket|wait|application) timeout|waiting for clients|NCCL communicator was aborted"
)
#: A port of this machine that is free, chosen when rank 0 is started.
ANY_PORT = 0
#: FBGEMM asks for GPUs when it is imported. torch then asks the driver's management library: CUDA could not start again in a forked rank.
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
#: Rounds that a thread of OpenMP waits in a loop before it sleeps. With its own 300,000 an iteration takes twenty times as long as soon as
#: the machine runs something else (docs/decisions/waiting-threads.md). Read when torch is loaded, which is later than here.
SPINS = "3000"
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", SPINS)
#: The same for the threads of numpy's OpenBLAS, which else take the cores for 50 ms when numpy is loaded: its least, 2 ** 4 rounds.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")


@dataclass(frozen=True)
class Request:
    """A run that the agent is to start. `work`: a function and its keyword arguments, pickled, as ranks alone import what they need.

    `folder`: of the run; `logs`: of ranks but the first. `ranks`: each one's environment variables. `enter`: the first thing that a rank
    does, with its host's number. `path`: Python's, of the launcher.
    """

    work: bytes
    folder: Path
    logs: Path
    ranks: tuple[dict[str, str], ...]
    enter: Callable[[int], None] | None
    path: tuple[str, ...]


@dataclass
class Failure:
    """What a rank sends home when it fails. `lost_peer`: it only noticed that another rank went away; `cut_off`: and cannot reach
    the first host either. `terminated`: it ended as SIGTERM told it, or another rank.
    """

    error: UserError | None
    text: str
    lost_peer: bool
    cut_off: bool = False
    terminated: bool = False


def run_ranks(request: Request, launcher: connection.Connection) -> bytes:
    """In the agent: what rank 0 returned, pickled. Raises as `agent.run`; SystemExit where the launcher has ended."""
    context = multiprocessing.get_context("fork")
    lifeline = context.Pipe(duplex=False)  # whose end tells ranks that the agent has ended
    variables, listener = request.ranks, None
    if int(variables[0]["MASTER_PORT"]) == ANY_PORT:
        listener = listen_here(len(variables))
        variables = tuple(one | {"MASTER_PORT": str(listener.getsockname()[1])} for one in variables)
    pipes, processes = [], []
    try:
        for rank, own in enumerate(variables):
            reader, writer = context.Pipe(duplex=False)
            process = context.Process(target=_rank_main, args=(request, rank, own, writer, lifeline, listener), name=f"rank {rank}")
            process.start()
            writer.close()
            if listener is not None:
                listener.close()  # of rank 0 alone from now on: when it dies, nobody answers
                listener = None
            pipes.append(reader)
            processes.append(process)
        return _collect(processes, pipes, int(variables[0]["LOCAL_WORLD_SIZE"]), request.folder, launcher)
    except Terminated:
        _let_end(processes, launcher)
        raise
    finally:
        _stop(processes)
        for end in (*pipes, *lifeline):
            end.close()


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


def listen_here(world: int) -> socket.socket:
    """On a free port of this machine, which is nobody else's from now on and cannot be reached from another machine."""
    return socket.create_server((THIS_MACHINE, 0), backlog=max(world, 128))


def _rank_main(
    request: Request,
    rank: int,
    variables: dict[str, str],
    answers: connection.Connection,
    lifeline: tuple[connection.Connection, connection.Connection],
    listener: socket.socket | None,
) -> None:
    """The whole life of a rank. Ends without running exit handlers: gloo's threads now and then abort in them."""
    if request.enter is not None:
        request.enter(int(variables["GROUP_RANK"]))  # before there is a second thread: a namespace is a thread's
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # it and Ctrl-C reach the launcher, which stops us
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    lifeline[1].close()
    threading.Thread(target=_end_with_agent, args=(lifeline[0],), daemon=True).start()
    sys.path[:] = request.path
    os.environ.update(variables)
    if listener is not None:
        os.environ["RECSYS_LAB_LISTENER"] = str(listener.detach())
    if rank > 0:
        handle = os.open(request.logs / f"rank{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
    import torch

    torch.set_num_threads(int(variables["OMP_NUM_THREADS"]))
    Streams().__enter__()  # a rank goes on where nobody reads what it says
    code = 0
    try:
        work, arguments = pickle.loads(request.work)  # noqa: S301  written by our own launcher
        answers.send(pickle.dumps(work(**arguments)))
    except BaseException as error:  # the launcher decides what it was
        code = 1
        text = traceback.format_exc()
        lost_peer = is_lost_peer(text, error)
        cut_off = lost_peer and not _reaches(variables["MASTER_ADDR"], int(variables["MASTER_PORT"]))
        mistake = error if isinstance(error, UserError) else None
        if isinstance(error, OSError) and not lost_peer:
            mistake = unwritable(error, f"rank {rank}")
        answers.send(Failure(mistake, text, lost_peer, cut_off, isinstance(error, Terminated)))
        if lost_peer and rank == 0:
            time.sleep(GRACE_S + REACH_S)  # the others try to reach us; the launcher ends this sooner
    finally:
        answers.close()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _end_with_agent(lifeline: connection.Connection) -> None:
    connection.wait([lifeline])
    os._exit(1)


def is_lost_peer(text: str, error: BaseException | None = None) -> bool:
    """Whether an error is only the echo of another rank's end (gloo reports it as a plain RuntimeError). No stream that nobody reads is."""
    return not isinstance(error, BrokenPipeError) and re.search(LOST_PEER, text, re.IGNORECASE) is not None


def _reaches(address: str, port: int) -> bool:
    """Whether the first host's store answers."""
    try:
        socket.create_connection((address, port), timeout=REACH_S).close()
    except OSError:
        return False
    return True


def _collect(
    processes: list, pipes: list[connection.Connection], ranks_per_host: int, folder: Path, launcher: connection.Connection | None = None
) -> Any:
    """What rank 0 sent. Raises what ranks failed with; Terminated where the launcher says so; SystemExit where it has ended."""
    results: dict[int, Any] = {}
    failures: dict[int, Failure] = {}
    waiting = dict(enumerate(pipes))
    others = [] if launcher is None else [launcher]
    deadline: float | None = None
    while waiting:
        patience = None if deadline is None else max(0.0, deadline - time.monotonic())
        ready = connection.wait([*waiting.values(), *others], timeout=patience)
        if not ready:
            break
        if launcher in ready:
            raise Terminated if _is_there(launcher) else SystemExit(1)
        for rank in [r for r, pipe in waiting.items() if pipe in ready]:
            try:
                answer = waiting[rank].recv()
            except (EOFError, OSError):  # before its answer, or within it
                processes[rank].join(10 * GRACE_S)  # it is at its end, which a busy machine tells late
                answer = Failure(None, how_it_ended(processes[rank].exitcode), False)
            del waiting[rank]
            if isinstance(answer, Failure):
                failures[rank] = answer
                deadline = deadline or time.monotonic() + GRACE_S + REACH_S
            else:
                results[rank] = answer
    if failures:
        _raise_first(failures, sorted(waiting), len(pipes), ranks_per_host, folder)
    return results[0]


def _is_there(launcher: connection.Connection | None) -> bool:
    """Whether the launcher, from which something came, still runs."""
    try:
        return launcher is not None and launcher.recv() is None
    except (EOFError, OSError):
        return False


def how_it_ended(code: int | None) -> str:
    if code is not None and code < 0:
        names = {int(one): one.name for one in signal.Signals}  # most of those for programs' own use have none
        return f"killed by {names.get(-code, f'signal {-code}')}"
    return f"ended with exit code {code} and no answer"


def _raise_first(failures: dict[int, Failure], silent: list[int], world: int, ranks_per_host: int, folder: Path) -> None:
    """A rank's own mistake first, then our bug, then a lost process; echoes of those never hide them. Unless all had to end."""
    if any(failure.terminated for failure in failures.values()):
        raise Terminated
    for failure in failures.values():
        if failure.error is not None:
            raise failure.error
    for rank, failure in failures.items():
        if not failure.lost_peer and "Traceback" in failure.text:
            raise RuntimeError(f"rank {rank} failed:\n{failure.text}")
    raise lost(_what_was_lost(failures, silent, world, ranks_per_host), folder)


def lost(what: str, folder: Path) -> RankLost:
    """The error that says `what` was lost, and how to resume."""
    return RankLost(what, remedy=f"resume with: python run.py {pasted('resume', folder)}")


def _what_was_lost(failures: dict[int, Failure], silent: list[int], world: int, ranks_per_host: int) -> str:
    """A process that died. Else a host from which the first cannot be reached, else ranks that never answered, else who complained."""
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
    """Without gloo's advice, which is the same for all errors."""
    return text.strip().splitlines()[-1].partition(". This is typically caused by")[0]


def _let_end(processes: list, launcher: connection.Connection) -> None:
    """Tells ranks to end, and gives those that train the time to write a checkpoint. Less where the launcher ends."""
    for process in processes:
        process.terminate()
    until = time.monotonic() + CHECKPOINT_S
    while alive := [process.sentinel for process in processes if process.is_alive()]:
        ready = connection.wait([launcher, *alive], max(0.0, until - time.monotonic()))
        if not ready or (launcher in ready and not _is_there(launcher)):
            return


def _stop(processes: list) -> None:
    for process in processes:
        process.kill()
    for process in processes:
        process.join()
