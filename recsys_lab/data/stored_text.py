"""Text files as they are stored, plain or .gz, read block by block in constant memory. Their first bytes say what they are."""

from __future__ import annotations

import gzip
import hashlib
import io
import shlex
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from recsys_lab.base.files import what_is
from recsys_lab.base.progress import Progress
from recsys_lab.data.sources import unreadable
from recsys_lab.errors import UserError

BLOCK_BYTES = 16 << 20
LONGEST_LINE_BYTES = 1 << 20
GZIP = b"\x1f\x8b"
_OTHERS = {
    GZIP: "gzip",
    b"PK\x03\x04": "zip, or a spreadsheet",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\xfd7zXZ": "xz",
    b"BZh": "bzip2",
    b"\x04\x22\x4d\x18": "lz4",
    b"PAR1": "Parquet",
}
_MARKS = {b"\xff\xfe\x00\x00": "UTF-32", b"\x00\x00\xfe\xff": "UTF-32", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
_UTF8_MARK = b"\xef\xbb\xbf"
_LOOK_BYTES = 4096
NUL = "byte 0x00"


def blocks(
    path: Path, block_bytes: int = BLOCK_BYTES, done: Callable[[str], None] = lambda _: None, quoted: bool = False
) -> Iterator[bytes]:
    """Blocks of whole lines of about `block_bytes`. The last line gets its line feed if it has none. A byte order mark is dropped.

    `quoted`: a block ends where no quote is open, as a row may have several lines then.

    `done` is called with the sha256 of the bytes as stored. Raises UserError for a file that is missing, unreadable or truncated. Also for
    another compression than the name says, and for another encoding than UTF-8. Also for lines that end in a carriage return alone, and for
    lines longer than 1 MiB.
    """
    if (kind := what_is(path)) is not None:
        raise UserError("not a file that can be read", where=path, given=kind)
    rest, first = b"", True
    try:
        with path.open("rb") as stored, Progress(path.stat().st_size, f"reading {path.name}", "B") as bar:
            _check_compression(stored.peek(8)[:8], path)
            hashed = _HashingReader(stored, bar)
            text = gzip.GzipFile(fileobj=hashed) if path.suffix == ".gz" else hashed
            while chunk := text.read(block_bytes):
                if first:
                    _check_content(chunk, path)
                    _check_encoding(chunk, path)
                    chunk, first = chunk.removeprefix(_UTF8_MARK), False
                rest += chunk
                end = _end_of_rows(rest, quoted)
                if end:
                    yield rest[:end]
                    rest = rest[end:]
                if len(rest) > LONGEST_LINE_BYTES:
                    if quoted and b"\n" in rest:  # a quote that is never closed: the reader names its line
                        break
                    raise UserError("a line is longer than 1 MiB: this is no text table", where=path)
            done(hashed.sha256.hexdigest())
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"the .gz file is truncated or corrupt ({error})", where=path, remedy="fetch or compress it again") from None
    except OSError as error:
        raise unreadable(path, error) from None
    if rest:
        yield rest.removesuffix(b"\n") + b"\n"


def _end_of_rows(text: bytes, quoted: bool) -> int:
    """Where the last whole row of `text` ends; 0 for none."""
    end = text.rfind(b"\n") + 1
    is_open = quoted and text.count(b'"', 0, end) % 2 == 1
    while end and is_open:
        before = text.rfind(b"\n", 0, end - 1) + 1
        is_open ^= text.count(b'"', before, end) % 2 == 1
        end = before
    return end


def no_text(block: bytes) -> str | None:
    """What makes `block` no text: a byte that is not UTF-8, or NUL. None of text."""
    if b"\0" in block:
        return NUL
    if not block.isascii():
        try:
            block.decode("utf-8")
        except UnicodeDecodeError as error:
            return f"byte 0x{block[error.start]:02x}"
    return None


def _check_compression(head: bytes, path: Path) -> None:
    kind = next((words for magic, words in _OTHERS.items() if head.startswith(magic)), None)
    if path.suffix == ".gz" and head and not head.startswith(GZIP):
        given = kind or "other bytes"
        raise UserError("named .gz, and not compressed with gzip", where=path, given=given, remedy="name it what it is, or compress it")
    if path.suffix != ".gz" and kind:
        remedy = "name it .gz" if kind == "gzip" else "name it .parquet, for data=table" if kind == "Parquet" else "unpack it"
        raise UserError("not plain text", where=path, given=kind, allowed="text, or text compressed with gzip and named .gz", remedy=remedy)


def _check_content(head: bytes, path: Path) -> None:
    """Of what is in a .gz: `clicks.parquet.gz` is no text either."""
    if kind := next((words for magic, words in _OTHERS.items() if head.startswith(magic)), None):
        given, remedy = f"{kind}, within gzip", f"unpack it: gunzip {shlex.quote(str(path))}"
        raise UserError("not text", where=path, given=given, allowed="text, or text compressed with gzip and named .gz", remedy=remedy)


def _check_encoding(head: bytes, path: Path) -> None:
    look = head[:_LOOK_BYTES]
    even, odd = look[::2], look[1::2]
    of_even, of_odd = (half.count(0) / max(len(half), 1) for half in (even, odd))
    unmarked = "UTF-16LE" if of_even < 0.1 and of_odd > 0.5 else "UTF-16BE" if of_odd < 0.1 and of_even > 0.5 else None
    if encoding := next((name for mark, name in _MARKS.items() if look.startswith(mark)), unmarked):
        raise UserError("not UTF-8 text", where=f"{path}:1", given=encoding, remedy=f"convert it: iconv -f {encoding} -t UTF-8")
    if b"\r" in head and b"\n" not in head:
        what = "lines end in a carriage return alone"
        raise UserError(what, where=f"{path}:1", allowed="a line feed, or both", remedy="convert it: tr '\\r' '\\n'")


class _HashingReader(io.RawIOBase):
    """Bytes as stored on disk, hashed and counted on their way."""

    def __init__(self, stored: io.BufferedReader, bar: Progress):
        self.stored, self.bar, self.sha256 = stored, bar, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self.stored.read(size)
        self.sha256.update(data)
        self.bar.update(len(data))
        return data

    def readable(self) -> bool:
        return True
