"""One hostile case: a command line in a fork of a process that has imported everything, so that hundreds take minutes."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import math
import os
import resource
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from experiments.reliability.caches import with_kernels

LIMIT_S = 60
#: What a case may take: memory that no refusal needs, and output that a pipe can hold.
MOST_BYTES, MOST_OUTPUT = 48 << 30, 1 << 20
#: Exit codes that are right.
REFUSED, TAKEN, DOCUMENTED = frozenset({2}), frozenset({0, 3}), frozenset({0, 2, 3})

Verdict = Literal["one_line_exit_2", "other_documented", "tracebacks", "wrongly_accepted", "over_60_s"]
VERDICTS: tuple[Verdict, ...] = ("one_line_exit_2", "other_documented", "tracebacks", "wrongly_accepted", "over_60_s")


@dataclass(frozen=True)
class Case:
    """`words` of run.py, or with `program` recsys_lab of `python -m recsys_lab`; `{here}` in them stands for the case's own folder.

    `expected`: exit codes that are right. `named`: what the line must say. `prepare` makes what lies in that folder. `most_file_bytes`: a
    larger file cannot be written, as on a full disk. `powerless`: permissions bind this user, as they bind everybody but root.
    """

    part: str
    name: str
    words: tuple[str, ...]
    expected: frozenset[int] = REFUSED
    named: str = ""
    prepare: Callable[[Path], object] | None = None
    program: str = "run"
    most_file_bytes: int | None = None
    variables: tuple[tuple[str, str], ...] = ()
    powerless: bool = False


@dataclass(frozen=True)
class Ended:
    """`code` None: it did not end within the limit."""

    case: Case
    code: int | None
    out: str
    err: str

    @property
    def verdict(self) -> Verdict:
        """`tracebacks` has exit code 1 too, a death by a signal, and a refusal of more than one line."""
        if self.code is None:
            return "over_60_s"
        if "Traceback (most recent call last)" in self.err + self.out or self.code not in (0, 2, 3, 4, 130):
            return "tracebacks"
        if self.code not in self.case.expected:
            return "wrongly_accepted"
        if self.code != 2:
            return "other_documented"
        lines = [line for line in self.err.splitlines() if line.strip()]
        one_line = len(lines) == 1 and lines[0].startswith("error: ")
        return "one_line_exit_2" if one_line and self.case.named in self.err else "tracebacks"

    def __str__(self) -> str:
        shown = (self.err.strip() or self.out.strip())[-600:]
        return f"{self.verdict}: {self.case.part}: {self.case.name}: {' '.join(self.case.words)[:300]}\n    exit {self.code}: {shown}"


@dataclass(frozen=True)
class Running:
    case: Case
    folder: Path
    pid: int
    out: int
    err: int
    begun: float

    def ended(self) -> Ended | None:
        """None while it runs. Past its limit it is killed, with ranks that it has left."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid == 0 and time.monotonic() - self.begun < LIMIT_S:
            return None
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        if pid == 0:
            os.waitpid(self.pid, 0)
        shutil.rmtree(self.folder, ignore_errors=True)
        return Ended(self.case, None if pid == 0 else os.waitstatus_to_exitcode(status), _text(self.out), _text(self.err))


def run_all(cases: Sequence[Case], folder: Path, jobs: int, within_s: float = math.inf) -> Iterator[Ended]:
    """What became of each case, `jobs` at a time, as they end. Everything that they write is inside `folder`.

    After `within_s` no further case is begun.
    """
    waiting, running, cache = list(enumerate(cases)), [], with_kernels(folder / "cache")
    until = time.monotonic() + within_s
    while running or (waiting and time.monotonic() < until):
        while waiting and len(running) < jobs and time.monotonic() < until:
            number, case = waiting.pop(0)
            running.append(_start(case, folder / f"case{number}", cache))
        time.sleep(0.005)
        for each in list(running):
            if (ended := each.ended()) is not None:
                running.remove(each)
                yield ended


def _start(case: Case, folder: Path, cache: Path) -> Running:
    here = folder / "here"
    here.mkdir(parents=True)
    sys.stdout.flush()
    (out, out_of_child), (err, err_of_child) = _pipe(), _pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.dup2(out_of_child, 1)
            os.dup2(err_of_child, 2)
            code = _in_child(case, here, cache)
        finally:
            os._exit(code)
    os.close(out_of_child)
    os.close(err_of_child)
    return Running(case, folder, pid, out, err, time.monotonic())


def _pipe() -> tuple[int, int]:
    """Holds all that a case prints: a file would be full where its disk is."""
    ends = os.pipe()
    fcntl.fcntl(ends[1], fcntl.F_SETPIPE_SZ, MOST_OUTPUT)
    os.set_blocking(ends[0], False)
    return ends


def _in_child(case: Case, here: Path, cache: Path) -> int:
    os.setsid()
    if case.prepare is not None:
        case.prepare(here)  # here, and not in the parent: a library that has used its threads cannot be forked
    os.chdir(here)
    os.environ |= {name: value.replace("{here}", str(here)) for name, value in (("XDG_CACHE_HOME", str(cache)), *case.variables)}
    if case.powerless:
        let_permissions_bind()
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    if case.most_file_bytes is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (case.most_file_bytes, case.most_file_bytes))
    import run
    from recsys_lab.__main__ import main

    code: object = 1
    try:
        code = (run.main if case.program == "run" else main)([word.replace("{here}", str(here)) for word in case.words])
    except SystemExit as end:
        code = 0 if end.code is None else end.code
    except BaseException:  # noqa: BLE001  as Python itself would end
        traceback.print_exc()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    return code if isinstance(code, int) else 1


def let_permissions_bind() -> None:
    """Takes from root what lets it read and write all files (capabilities 1 and 2), in this thread and those that it starts."""
    libc, head = ctypes.CDLL(None, use_errno=True), (ctypes.c_uint32 * 2)(0x20080522, 0)
    held = (ctypes.c_uint32 * 6)()
    if libc.capget(head, held) == 0:
        held[0] &= ~0b110
        libc.capset(head, held)


def _text(pipe: int) -> str:
    with os.fdopen(pipe, "rb", buffering=0) as file:
        return b"".join(iter(lambda: file.read(MOST_OUTPUT) or b"", b"")).decode(errors="backslashreplace")
