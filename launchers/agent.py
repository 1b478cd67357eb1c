"""The agent: a process that imports what ranks need, forks them, watches them, and says how they ended.

    launcher ──spawn──> agent ──fork──> ranks

Both are start methods of Python's `multiprocessing`. One agent serves all runs of its launcher, one after another. When a launcher ends,
however that happens, its agent ends, and with the agent its ranks.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import connection, resource_tracker
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from launchers.processes import CHECKPOINT_S, GRACE_S, Request, how_it_ended, lost, run_ranks
from recsys_lab.errors import Terminated
from recsys_lab.train.job import RANK

#: What every rank needs.
LIBRARIES = (RANK, "recsys_lab.pipeline", "recsys_lab.executor.shard", "recsys_lab.executor.sharding")
#: Agents by the process that started them: a process that was forked from one has none yet.
_AGENTS: dict[int, Agent] = {}
_ONE_AT_A_TIME = threading.Lock()
#: Signals to a whole process group. They reach the launcher too, which tells the agent what they mean.
_OF_A_GROUP = {signal.SIGINT, signal.SIGHUP}


def run(
    work: Callable[..., Any], arguments: dict, folder: Path, ranks: Sequence[dict[str, str]], enter: Callable[[int], None] | None = None
) -> Any:
    """Runs `work(**arguments)` on every rank and returns what rank 0 returned.

    Args:
        work, arguments, folder: those of `launchers.local.launch`.
        ranks: each one's environment variables. MASTER_PORT 0: a free port of this machine, on which rank 0 is given a socket.
        enter: `enter(host)` is the first thing that a rank does, in its own process.

    Raises:
        UserError: a rank's own.
        RankLost: a process died, hangs or is cut off.
        RuntimeError: with the rank's traceback, for our bugs.
        Terminated: SIGTERM or SIGHUP told this process or a rank to end.
    """
    logs = (folder / "logs").resolve()
    logs.mkdir(parents=True, exist_ok=True)
    request = Request(pickle.dumps((work, arguments)), folder, logs, tuple(ranks), enter, tuple(sys.path))
    with _ONE_AT_A_TIME:
        agent = start()
        try:
            answer = agent.answer(request)
        except BaseException:
            agent.end()
            raise
    if isinstance(answer, BaseException):
        raise answer
    return pickle.loads(answer)  # noqa: S301  written by our own rank


def start(method: str = "spawn", libraries: Sequence[str] = ()) -> Agent:
    """The agent of this process, started if it does not run. `method`: `fork` only where this process has computed nothing yet.

    `libraries`: what it imports beside those that every rank needs, where they are installed.
    """
    agent = _AGENTS.get(os.getpid())
    if agent is None or not agent.process.is_alive():
        context = multiprocessing.get_context(method)
        own_end, agents_end = context.Pipe()
        process = context.Process(target=_serve, args=(agents_end, own_end, libraries), name="agent of ranks")  # type: ignore[attr-defined]
        resource_tracker.ensure_running()  # in place of within `start`, where it would let signals through
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _OF_A_GROUP)  # in the agent from its first moment on
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        agents_end.close()
        agent = _AGENTS[os.getpid()] = Agent(process, own_end)
        atexit.register(agent.end)  # before multiprocessing waits for its processes
    return agent


@dataclass(frozen=True)
class Agent:
    """As the launcher sees it."""

    process: BaseProcess
    pipe: connection.Connection

    def answer(self, request: Request) -> Any:
        """What rank 0 returned, pickled, or the error of the run. Raises Terminated once ranks had the time to write a checkpoint."""
        ends: list[Any] = [self.pipe, self.process.sentinel]
        try:
            self.pipe.send(request)
            connection.wait(ends)
            return self.pipe.recv()
        except Terminated:
            self.process.terminate()  # where it still imports
            with contextlib.suppress(OSError):
                self.pipe.send(None)
                connection.wait(ends, CHECKPOINT_S + GRACE_S)
            raise
        except (EOFError, OSError):
            self.process.join(GRACE_S)
            raise lost(f"the agent of the ranks was lost ({how_it_ended(self.process.exitcode)})", request.folder) from None

    def end(self) -> None:
        """Ends it with its ranks."""
        atexit.unregister(self.end)
        self.pipe.close()
        self.process.terminate()  # where it still imports; else it ends with the pipe
        self.process.join(GRACE_S)
        self.process.kill()
        self.process.join()


def import_libraries(others: Sequence[str] = ()) -> None:
    """Imports what ranks need. It stays, so it is not searched for garbage: a search in a rank would copy memory that ranks share.

    `others`: what some runs need too. Where one of them fails, the rank that needs it says so.
    """
    gc.disable()
    try:
        for name in LIBRARIES:
            importlib.import_module(name)
        from recsys_lab.plan.scheme import known_schemes

        for scheme in known_schemes().values():
            importlib.import_module(scheme.execution.partition(":")[0])
        for name in others:
            with contextlib.suppress(Exception):
                importlib.import_module(name)
    finally:
        gc.freeze()
        gc.enable()


def _serve(pipe: connection.Connection, launchers_end: connection.Connection, libraries: Sequence[str]) -> None:
    """The life of the agent."""
    launchers_end.close()
    for number in _OF_A_GROUP:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _OF_A_GROUP)
    broken: Exception | None = None
    try:
        import_libraries(libraries)
    except Exception as error:  # noqa: BLE001  of a broken installation: the launcher raises it
        broken = error
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with contextlib.suppress(EOFError, OSError):
        while (request := pipe.recv()) is not None:
            pipe.send(broken or _answer(request, pipe))


def _answer(request: Request, launcher: connection.Connection) -> Any:
    try:
        return run_ranks(request, launcher)
    except (Exception, Terminated) as error:  # noqa: BLE001  the launcher raises it
        return error
