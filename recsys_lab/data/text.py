"""Text files, plain or .gz, read block by block in constant memory; a bad line is named as FILE:LINE.

A format parses a whole block at once. Only a block that it cannot parse is looked at line by line, to find which line is bad and why.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import sys
import threading
import zlib
from collections.abc import Iterator, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
from tqdm import tqdm

from recsys_lab.errors import UserError

BLOCK_BYTES = 16 << 20
LONGEST_LINE_BYTES = 1 << 20
SHOW_PROGRESS_AFTER_S = 3.0
_LOOK_BYTES = 64 << 10
BAD_LINE_CHOICES = ("fail", "skip")


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
    sha256: str | None = None  # of the bytes as stored

    def notes(self) -> list[str]:
        """What the user should be told."""
        return [f"{self.skipped:,} bad lines skipped, the first: {self.first_skipped}"] if self.skipped else []


def check_on_bad_line(on_bad_line: str) -> None:
    if on_bad_line not in BAD_LINE_CHOICES:
        raise UserError("no such choice", where="data.on_bad_line", given=on_bad_line, allowed=", ".join(BAD_LINE_CHOICES))


def read_columns(
    path: Path, line_format: LineFormat[Parsed], on_bad_line: str, reading: Reading, block_bytes: int = BLOCK_BYTES
) -> Iterator[Parsed]:
    """The parsed blocks of `path`, in order. Adds to `reading`.

    Raises UserError: unreadable or truncated file, wrong header, bad line (unless `on_bad_line` is skip).
    """
    line_number = 1
    for block in _blocks(path, reading, block_bytes):
        if line_number == 1:
            block = block.removeprefix(b"\xef\xbb\xbf")
            if line_format.header is not None:
                first, block = block.split(b"\n", 1)
                _check_header(first, line_format.header, path)
                line_number = 2
            if not block:
                continue
        lines = block.count(b"\n")
        if b"\r" in block:
            block = block.replace(b"\r\n", b"\n")
        columns = line_format.parse(block)
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
    for block in _blocks(path, Reading(), _LOOK_BYTES):
        return block.decode("utf-8-sig", errors="replace").replace("\r\n", "\n").split("\n")[:-1][:lines]
    return []


def _without_bad_lines(block: bytes, line_format: LineFormat, path: Path, first_line: int, on_bad_line: str, reading: Reading) -> bytes:
    """`block` without its bad lines; raises the first one's error unless they are to be skipped."""
    good = []
    for offset, line in enumerate(block.split(b"\n")[:-1]):
        try:
            complaint = line_format.complaint(line.decode("utf-8"))
        except UnicodeDecodeError as error:
            complaint = Complaint("not UTF-8 text", given=f"byte 0x{line[error.start]:02x}")
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
    try:
        given = line.decode("utf-8").rstrip("\r")
    except UnicodeDecodeError as error:
        raise UserError("not UTF-8 text", where=f"{path}:1", given=f"byte 0x{line[error.start]:02x}", allowed=header) from None
    if given != header:
        raise UserError("wrong header", where=f"{path}:1", given=shorten(given, 120), allowed=header)


def _blocks(path: Path, reading: Reading, block_bytes: int) -> Iterator[bytes]:
    """Blocks of whole lines of about `block_bytes`; the last line gets its line feed if it has none."""
    rest = b""
    try:
        with path.open("rb") as stored, progress(path.stat().st_size, f"reading {path.name}", "B") as bar:
            hashed = _HashingReader(stored, bar)
            text = gzip.GzipFile(fileobj=hashed) if path.suffix == ".gz" else hashed
            while chunk := text.read(block_bytes):
                end = chunk.rfind(b"\n") + 1
                if end:
                    yield rest + chunk[:end]
                    rest = chunk[end:]
                else:
                    rest += chunk
                if len(rest) > LONGEST_LINE_BYTES:
                    raise UserError("a line is longer than 1 MiB: this is no text table", where=path)
            reading.sha256 = hashed.sha256.hexdigest()
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"the .gz file is truncated or corrupt ({error})", where=path, remedy="fetch or compress it again") from None
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror or error}", where=path, remedy="check the file and its permissions") from None
    if rest:
        yield rest + b"\n"


class _HashingReader(io.RawIOBase):
    """Bytes as stored on disk, hashed and counted on their way."""

    def __init__(self, stored: io.BufferedReader, bar: tqdm):
        self.stored, self.bar, self.sha256 = stored, bar, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self.stored.read(size)
        self.sha256.update(data)
        self.bar.update(len(data))
        return data

    def readable(self) -> bool:
        return True


#: tqdm's own lock spans processes: a rank that ends without Python's clean-up would leave its semaphore behind.
_BAR_LOCK = threading.RLock()


def progress(total: int, what: str, unit: str) -> tqdm:
    """A bar on stderr, on a terminal only, once the work takes more than a few seconds."""
    tqdm.set_lock(_BAR_LOCK)
    return tqdm(
        total=total,
        desc=what,
        unit=unit,
        unit_scale=True,
        delay=SHOW_PROGRESS_AFTER_S,
        disable=not sys.stderr.isatty(),
        leave=False,
        file=sys.stderr,
    )


def shorten(text: str, length: int = 40) -> str:
    """`text` quoted, on one line and cut to `length`."""
    return repr(text if len(text) <= length else text[: length - 3] + "...")
