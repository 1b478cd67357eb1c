"""The standard streams of a command, made safe: whoever reads them may go away, their disk may be full, they may be closed.

A run continues when nobody reads its output. What could not be written is said once, at the end.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from types import TracebackType
from typing import Any, TextIO

from recsys_lab.errors import UserError


class Outlet(io.FileIO):
    """The open file `handle`. After a failed write it takes everything and keeps nothing. `error`: that of the failed write."""

    def __init__(self, handle: int):
        super().__init__(handle, "w", closefd=False)
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        if self.error is None:
            try:
                return super().write(data)
            except OSError as error:
                self.error = error
        return len(data)


class Streams:
    """`with Streams() as streams`: of a whole command, whose exit code is then `streams.code(code)`.

    Streams that are closed lead nowhere, else the next file that is opened would get their numbers, and what libraries print.
    Letters that an encoding lacks are escaped. What a test has put in place of a stream stays.
    """

    def __init__(self) -> None:
        self.out: Outlet | None = None
        self.before: tuple[Any, Any] | None = None

    def code(self, code: int) -> int:
        """`code`, or 2 and a line where the standard output could not be written. Not where its reader had enough, as `head` has."""
        error = None if self.out is None else self.out.error
        if error is None or error.errno == errno.EPIPE or code:
            return code
        print(f"error: standard output: cannot write: {error.strerror}; free space there, or send it elsewhere", file=sys.stderr)
        return UserError.exit_code

    def __enter__(self) -> Streams:
        _open_closed()
        if sys.stdout is sys.__stdout__ and sys.stderr is sys.__stderr__:
            before: tuple[Any, Any] = sys.stdout, sys.stderr
            self.before, self.out = before, Outlet(1)
            _flush(*before)
            encodings = [getattr(stream, "encoding", None) or "utf-8" for stream in before]
            sys.stdout = _text(self.out, encodings[0], line_buffering=self.out.isatty())
            sys.stderr = _text(Outlet(2), encodings[1], line_buffering=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.before is not None:
            _flush(sys.stdout, sys.stderr)
            sys.stdout, sys.stderr = self.before


def _text(outlet: Outlet, encoding: str, *, line_buffering: bool) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BufferedWriter(outlet), encoding=encoding, errors="backslashreplace", line_buffering=line_buffering)


def _flush(*streams: TextIO | None) -> None:
    for stream in streams:
        with contextlib.suppress(OSError, AttributeError):  # None: it was closed when Python began
            stream.flush()  # type: ignore[union-attr]


def quiet_interrupts() -> None:
    """Ctrl-C from now on is a word in place of a traceback, also while libraries are imported. The exit code stays that of the signal."""
    shown = sys.excepthook

    def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            print("interrupted", file=sys.stderr)
        else:
            shown(kind, error, trace)

    sys.excepthook = show


def _open_closed() -> None:
    """Opens 0, 1 and 2 to nowhere where they are closed."""
    for handle in range(3):
        try:
            os.fstat(handle)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != handle:
                os.dup2(opened, handle)
                os.close(opened)
            os.set_inheritable(handle, True)
