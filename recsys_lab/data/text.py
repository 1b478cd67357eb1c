"""Text files parsed block by block. A bad line is named as FILE:LINE.

A format parses a whole block at once. A block that it cannot parse is looked at line by line. So the bad line is found, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Protocol, TypeVar

import numpy as np

from recsys_lab.base.ranges import OneOf
from recsys_lab.data.stored_text import BLOCK_BYTES, blocks, no_text
from recsys_lab.errors import UserError

_LOOK_BYTES = 64 << 10
OnBadLine = Annotated[str, OneOf(("fail", "skip"))]


@dataclass(frozen=True)
class Columns:
    """n parsed rows. `missing`: bit f set where feature f has no value."""

    labels: np.ndarray  # [n] uint8
    dense: np.ndarray | None  # [n, K] float32
    ids: np.ndarray  # [n, F] int32 or uint32
    missing: np.ndarray | None = None  # [n] uint32

    def __len__(self) -> int:
        return len(self.labels)


#: What a format makes of a block of lines: `Columns`, or a frame of what they say.
Parsed = TypeVar("Parsed", bound=Sized, covariant=True)


@dataclass(frozen=True)
class Complaint:
    """What is wrong with a line, in the words of `UserError`."""

    what: str
    given: str | None = None
    allowed: str | None = None

    def at(self, where: str) -> UserError:
        return UserError(self.what, where=where, given=self.given, allowed=self.allowed, remedy="mend the line, or data.on_bad_line=skip")


class LineFormat(Protocol[Parsed]):
    """How the lines of a file are read. `header` is the first line that there must be, None for none."""

    @property
    def header(self) -> str | None: ...

    def parse(self, block: bytes) -> Parsed | None:
        """The lines of `block` (each ends in a line feed), or None if any of them may be bad."""
        ...

    def complaint(self, line: str) -> Complaint | None:
        """What is wrong with one line, None if nothing is."""
        ...


@dataclass
class Reading:
    """What reading a file has found so far."""

    skipped: int = 0
    first_skipped: str | None = None
    sha256: str | None = None  # of the bytes as stored, once all are read

    def done(self, sha256: str) -> None:
        self.sha256 = sha256

    def notes(self) -> list[str]:
        """What the user should know."""
        return [f"{self.skipped:,} bad lines skipped, the first: {self.first_skipped}"] if self.skipped else []


def read_columns(
    path: Path, line_format: LineFormat[Parsed], on_bad_line: str, reading: Reading, block_bytes: int = BLOCK_BYTES
) -> Iterator[Parsed]:
    """The parsed blocks of `path`, in order. Adds to `reading`.

    Raises UserError: unreadable or truncated file, wrong header, bad line (unless `on_bad_line` is skip).
    """
    line_number = 1
    for block in blocks(path, block_bytes, reading.done):
        if line_number == 1:
            if line_format.header is not None:
                first, block = block.split(b"\n", 1)
                _check_header(first, line_format.header, path)
                line_number = 2
            if not block:
                continue
        lines = block.count(b"\n")
        if b"\r" in block:
            block = block.replace(b"\r\n", b"\n")
        columns = line_format.parse(block) if no_text(block) is None else None
        if columns is None:
            block = _without_bad_lines(block, line_format, path, line_number, on_bad_line, reading)
            columns = line_format.parse(block) if block else None
            assert columns is not None or not block, (
                f"{path}: lines {line_number} to {line_number + lines}: no bad line found, yet not parsed"
            )
        line_number += lines
        if columns is not None and len(columns):
            yield columns


def first_lines(path: Path, lines: int) -> list[str]:
    """The first lines of `path`, at most `lines`, as text to look at: bytes that are no text are replaced. Raises UserError as above."""
    for block in blocks(path, _LOOK_BYTES):
        return block.decode("utf-8", errors="replace").replace("\r\n", "\n").split("\n")[:-1][:lines]
    return []


def _without_bad_lines(block: bytes, line_format: LineFormat, path: Path, first_line: int, on_bad_line: str, reading: Reading) -> bytes:
    """`block` without its bad lines. Raises the first one's error unless they are to be skipped."""
    good = []
    for offset, line in enumerate(block.split(b"\n")[:-1]):
        wrong = no_text(line)
        complaint = Complaint("not UTF-8 text", given=wrong) if wrong else line_format.complaint(line.decode("utf-8"))
        if complaint is None:
            good.append(line + b"\n")
            continue
        error_here = complaint.at(f"{path}:{first_line + offset}")
        if on_bad_line == "fail":
            raise error_here
        reading.skipped += 1
        reading.first_skipped = reading.first_skipped or f"{path.name}:{first_line + offset}: {complaint.what}"
    return b"".join(good)


def _check_header(line: bytes, header: str, path: Path) -> None:
    if wrong := no_text(line):
        raise UserError("not UTF-8 text", where=f"{path}:1", given=wrong, allowed=header)
    given = line.decode("utf-8").rstrip("\r")
    if given != header:
        raise UserError("wrong header", where=f"{path}:1", given=shorten(given, 120), allowed=header)


def shorten(text: str, length: int = 40) -> str:
    """`text` quoted, on one line and cut to `length`."""
    return repr(text if len(text) <= length else text[: length - 3] + "...")
