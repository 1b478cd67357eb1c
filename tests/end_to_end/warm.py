"""Command lines in processes that are forked from one with everything imported: of a start of 5 seconds they save nearly all.

Such a process has its own session, folder, environment and output, reads the program's file as `__main__`, and ends as any other does.
`python -m tests.end_to_end.warm` is the server: a JSON object a line in, the exit code a line out.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@functools.cache
def _server_of(thread: int) -> subprocess.Popen:
    """Each thread has a server of its own: one answers one line at a time, and two threads' lines are to run at once."""
    server = subprocess.Popen([sys.executable, "-m", __name__], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(server.kill)
    return server


def run(program: tuple[str, ...], words: tuple[str, ...], environment: dict[str, str], output: Path, timeout_s: float) -> int:
    """The exit code of `python PROGRAM WORDS`, from the checkout. What it prints is in `output`/out and `output`/err.

    `program`: run.py, or -m and a module. Raises subprocess.TimeoutExpired.
    """
    server = _server_of(threading.get_ident())
    assert server.stdin is not None and server.stdout is not None
    asked = {"program": program, "words": words, "environment": environment, "output": str(output), "timeout_s": timeout_s}
    server.stdin.write(json.dumps(asked) + "\n")
    server.stdin.flush()
    code = json.loads(server.stdout.readline())
    if code is None:
        raise subprocess.TimeoutExpired([*program, *words], timeout_s, (output / "out").read_text(), (output / "err").read_text())
    return code


def _serve() -> None:
    for asked in map(json.loads, sys.stdin):
        child = os.fork()
        if not child:
            return _become(**asked)
        print(json.dumps(_ended(child, asked["timeout_s"])), flush=True)
    return None


def _ended(child: int, timeout_s: float) -> int | None:
    """Its exit code; None where it had to be killed, with all that it started."""
    until = time.monotonic() + timeout_s
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _become(program: list[str], words: list[str], environment: dict[str, str], output: str, timeout_s: float) -> None:
    from launchers.agent import start as start_agent

    os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    for number, name in enumerate(("/dev/null", f"{output}/out", f"{output}/err")):
        handle = os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        os.dup2(handle, number)
        os.close(handle)
    sys.argv = [*program[program[0] == "-m" :], *words]
    start_agent("fork")  # of this young process, so that ranks need not import anything either
    if program[0] == "-m":
        runpy.run_module(program[1], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(program[0], run_name="__main__")


if __name__ == "__main__":
    import run  # noqa: F401
    from launchers.agent import import_libraries

    import_libraries()
    _serve()
