"""One process a rank on this machine: started, listened to, and stopped. Nothing hangs and nothing is left.

Processes are forked from a server that has imported the heavy libraries once. So a start costs tenths of a second a rank. The server is
itself a fork of the process that starts first, `warm`, and imports while that one reads and plans. Where that was not called in time, it is
a process of its own. Ranks see the same environment variables that torchrun sets.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import multiprocessing
import os
import re
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import connection, forkserver, resource_tracker, util
from pathlib import Path
from typing import Any, cast

from recsys_lab.base.files import pasted
from recsys_lab.base.streams import Streams
from recsys_lab.errors import RankLost, Terminated, UserError, unwritable

PRELOAD = "launchers.preload"
DEAF = "launchers.deaf"
#: Linux's number of what `prctl` is to set.
PR_SET_PDEATHSIG = 1
#: The files that this process has open, by number.
OPEN_FILES = "/proc/self/fd"
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
#: The driver's own library (NVML) is asked for GPUs. CUDA itself would start, and cannot start again in a rank that was forked from it.
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
#: Rounds that a thread of OpenMP waits in a loop before it sleeps. With its own 300,000 an iteration takes twenty times as long as soon as
#: the machine runs something else (docs/decisions/waiting-threads.md). Read when torch is loaded, which is later than here.
SPINS = "3000"
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", SPINS)
#: The same for the threads of numpy's OpenBLAS, which else take the cores for 50 ms when numpy is loaded: its least, 2 ** 4 rounds.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")


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


#: Whether `warm` has forked the server.
_WARM: list[bool] = []


def warm() -> None:
    """Forks the server of ranks from this process. For one that has computed nothing: threads, groups and caches do not survive a fork."""
    resource_tracker.ensure_running()  # with what is replaced now
    inner: Any = util
    spawn, inner.spawnv_passfds = inner.spawnv_passfds, _forked_server
    try:
        _start_server()
        _WARM.append(True)
    finally:
        inner.spawnv_passfds = spawn


def cool() -> None:
    """Ends the server that `warm` forked, if it did: nothing is trained."""
    server: Any = forkserver._forkserver
    if not _WARM or server._forkserver_pid is None:
        return
    _WARM.clear()
    os.kill(server._forkserver_pid, signal.SIGKILL)
    os.waitpid(server._forkserver_pid, 0)
    os.close(server._forkserver_alive_fd)
    server._forkserver_pid = server._forkserver_alive_fd = server._forkserver_address = None


def _start_server() -> None:
    """Starts the server of ranks, unless it runs. Its socket has a name no longer than that takes, so that no kill leaves one."""
    server: Any = forkserver._forkserver
    kept = multiprocessing.current_process()._config  # type: ignore[attr-defined]
    before, known, process = kept.get("tempdir"), server._forkserver_address, server._forkserver_pid
    with tempfile.TemporaryDirectory(prefix="recsys_lab-", dir="/tmp" if len(tempfile.gettempdir()) > 60 else None) as place:  # of 107
        kept["tempdir"] = place  # where Python puts the socket
        try:
            forkserver.ensure_running()
            if server._forkserver_address != known and os.path.isdir(OPEN_FILES):
                server._forkserver_address = f"{OPEN_FILES}/{os.open(server._forkserver_address, os.O_PATH | os.O_CLOEXEC)}"
        finally:
            kept["tempdir"] = before
    if _WARM and process not in (None, server._forkserver_pid):
        importlib.import_module(PRELOAD)  # the first could not, and had no way to say why


def _forked_server(_path: bytes, _args: Sequence[str], handles: Sequence[int]) -> int:
    """The server's process id. `handles`: on which it listens, and whose end says that it is no longer wanted."""
    process = os.fork()
    if process:
        return process
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):  # as launchers/deaf.py
        signal.signal(number, signal.SIG_IGN)
    _die_with_parent(signal.SIGKILL)  # until it listens, which tells it too
    _close_driver()  # its parent's, before the files of that are closed
    kept, serve = sorted(handles), cast(Callable[..., None], forkserver.main)
    for first, last in zip((3, *(handle + 1 for handle in kept)), (*kept, os.sysconf("SC_OPEN_MAX"))):
        os.closerange(first, last)  # the other end of what is to end, among them
    try:
        importlib.import_module(PRELOAD)
        _close_driver()  # its own
        _die_with_parent(0)
        serve(*handles, [])
    finally:
        os._exit(0)


def _die_with_parent(signal_number: int) -> None:
    """The signal that this process gets when its parent ends, where the system has that; 0: none."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal_number)


def _close_driver() -> None:
    """Ends NVIDIA's NVML where a library began it. What is forked could neither use the files that it has open, nor begin it again."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return
    for _ in range(100):  # it counts who began it
        if nvml.nvmlShutdown() != 0:
            return


def run(
    work: Callable[..., Any],
    arguments: dict,
    folder: Path,
    ranks: Sequence[dict[str, str]],
    enter: Callable[[int], None] | None = None,
    listener: socket.socket | None = None,
) -> Any:
    """Runs `work(**arguments)` on every rank and returns what rank 0 returned. `ranks`: each one's environment variables.

    `enter(host)` is the first thing that a rank does, in its own process. `listener`: where the ranks meet, which rank 0 takes over;
    without one it listens at MASTER_PORT. Raises a rank's own UserError; RankLost when a process died, hangs or is cut off; RuntimeError
    with the rank's traceback for our bugs; Terminated where SIGTERM or SIGHUP told this process or a rank to
    end.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([PRELOAD, DEAF])  # of a server that is not there yet
    _start_server()
    logs = folder / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    pipes, processes = [], []
    try:
        for rank, variables in enumerate(ranks):
            here, there = context.Pipe(duplex=False)
            log = None if rank == 0 else logs / f"rank{rank}.log"
            meeting = listener if rank == 0 else None
            process = context.Process(target=_rank_main, args=(there, variables, log, enter, meeting, work, arguments), name=f"rank {rank}")
            try:
                process.start()
            except EOFError:  # the server ended while it imported
                importlib.import_module(PRELOAD)
                raise
            there.close()
            if meeting is not None:
                meeting.close()  # of rank 0 alone from now on: when it dies, nobody answers
            pipes.append(here)
            processes.append(process)
        return _collect(processes, pipes, int(ranks[0]["LOCAL_WORLD_SIZE"]), folder)
    except Terminated:
        _let_end(processes)
        raise
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


def listen_here(world: int) -> socket.socket:
    """On a free port of this machine, which is nobody else's from now on and cannot be reached from another machine."""
    return socket.create_server((THIS_MACHINE, 0), backlog=max(world, 128))


def _rank_main(
    home: connection.Connection,
    variables: dict[str, str],
    log: Path | None,
    enter: Callable[[int], None] | None,
    listener: socket.socket | None,
    work: Callable,
    arguments: dict,
) -> None:
    """The whole life of a rank. Ends without running exit handlers: gloo's threads now and then abort in them."""
    if enter is not None:
        enter(int(variables["GROUP_RANK"]))  # before there is a second thread: a namespace is a thread's
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # it and Ctrl-C reach the launcher, which stops us
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ.update(variables)
    if listener is not None:
        os.environ["RECSYS_LAB_LISTENER"] = str(listener.detach())
    if log is not None:
        handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
    import torch

    torch.set_num_threads(int(variables["OMP_NUM_THREADS"]))
    Streams().__enter__()  # a rank goes on where nobody reads what it says
    code = 0
    try:
        home.send(work(**arguments))
    except BaseException as error:  # the launcher decides what it was
        code = 1
        text = traceback.format_exc()
        lost = is_lost_peer(text, error)
        cut_off = lost and not _reaches(variables["MASTER_ADDR"], int(variables["MASTER_PORT"]))
        mistake = error if isinstance(error, UserError) else None
        if isinstance(error, OSError) and not lost:
            mistake = unwritable(error, f"rank {variables['RANK']}")
        home.send(Failure(mistake, text, lost, cut_off, isinstance(error, Terminated)))
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
            except (EOFError, OSError):  # before its answer, or within it
                processes[rank].join(10 * GRACE_S)  # it is at its end, which a busy machine tells late
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
    raise RankLost(_what_was_lost(failures, silent, world, ranks_per_host), remedy=f"resume with: python run.py {pasted('resume', folder)}")


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


def _let_end(processes: list) -> None:
    """Tells ranks to end, and gives those that train the time to write a checkpoint."""
    for process in processes:
        if process.is_alive():
            process.terminate()
    until = time.monotonic() + CHECKPOINT_S
    for process in processes:
        process.join(max(0.0, until - time.monotonic()))


def _stop(processes: list) -> None:
    for process in processes:
        if process.is_alive():
            process.kill()
    for process in processes:
        process.join()
