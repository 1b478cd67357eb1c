"""Text files of fields, read block by block by Polars. A bad line is named as FILE:LINE.

A `TextFormat` says how the rows are written and what a good row holds. Polars parses each block. Only a block that Polars refuses, or whose
quotes leave a doubt, is read again by Python's `csv`. That pass names the bad line.
"""

from __future__ import annotations

import csv
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl

from recsys_lab.data import json_lines
from recsys_lab.data.stored_text import BLOCK_BYTES, LONGEST_LINE_BYTES, NUL, blocks, no_text
from recsys_lab.errors import UserError

LOOK_BYTES = 64 << 10
OnBadLine = Literal["fail", "skip"]
_UNIT = "\x1f"  # Polars and csv take one character: it stands for two colons
_MOST_NAMES_SHOWN = 8
MEND = "mend the line"
TO_UTF8 = "mend the line; or convert the file, where all of it is Latin-1: iconv -f WINDOWS-1252 -t UTF-8 FILE > NEW"
_SHOWN = {
    "\t": "tabs",
    "::": "two colons",
    ",": "commas",
    " ": "blanks",
    ";": "semicolons",
    "|": "bars",
    "\x01": "\\x01",
    "\x02": "\\x02",
    "^": "^",
}
csv.field_size_limit(LONGEST_LINE_BYTES)


@dataclass(frozen=True)
class Columns:
    """n parsed rows. `missing`: bit f set where feature f has no value."""

    labels: np.ndarray  # [n] uint8
    dense: np.ndarray | None  # [n, K] float32
    ids: np.ndarray  # [n, F] int32 or uint32
    missing: np.ndarray | None = None  # [n] uint32


@dataclass(frozen=True)
class Check:
    """What a good field holds. `good` is an expression of the columns, all of them strings."""

    column: str
    good: pl.Expr
    what: str
    allowed: str


@dataclass(frozen=True)
class TextFormat:
    """How the rows of a file are written, and what a good row holds.

    Args:
        names: of the columns.
        separator: between fields. Of blanks any number separates. None: the line is one field, or an object of JSON.
        header: the first line that there must be.
        quoted: a field in quotes may hold separators and line ends.
        extra_empty: a row may have more fields than `names`, if they are empty.
        before: lines before the header or the first row, which are none.
        keys: a line is an object of JSON, whose values under these keys are the fields. One that it lacks is empty.
        checks: what a good row holds.
    """

    names: tuple[str, ...]
    separator: str | None
    header: str | None = None
    quoted: bool = False
    extra_empty: bool = False
    before: int = 0
    keys: tuple[str, ...] | None = None
    checks: tuple[Check, ...] = ()

    @property
    def expected(self) -> str:
        """The fields of a row, for messages."""
        names = f": {', '.join(self.names)}" if len(self.names) <= _MOST_NAMES_SHOWN else ""
        return f"{len(self.names)}, separated by {_SHOWN.get(self.separator or ' ', repr(self.separator))}{names}"


@dataclass(frozen=True)
class Complaint:
    """What is wrong with a line, in the words of `UserError`."""

    what: str
    given: str | None = None
    allowed: str | None = None
    remedy: str = MEND

    def at(self, where: str) -> UserError:
        return UserError(self.what, where=where, given=self.given, allowed=self.allowed, remedy=self.remedy)


@dataclass
class Reading:
    """What reading a file has found so far. `may_skip`: whether a key of the reader's skips bad lines, which refusals name."""

    may_skip: bool = True
    skipped: int = 0
    first_skipped: str | None = None
    sha256: str | None = None  # of the bytes as stored, once all are read

    def done(self, sha256: str) -> None:
        """A file is read to its end. Of several files the digests are digested."""
        self.sha256 = sha256 if self.sha256 is None else hashlib.sha256(f"{self.sha256} {sha256}".encode()).hexdigest()

    def refuse(self, bad: dict[int, Complaint], path: Path, place: str, first: int, on_bad_line: str) -> None:
        """UserError for the first of the `bad` lines, by their number from `first` on; or counts them. `place`: before the number."""
        if not bad:
            return
        line, complaint = min(bad.items())
        if on_bad_line == "fail" and complaint.remedy == MEND and self.may_skip:
            complaint = replace(complaint, remedy=f"{MEND}, or data.on_bad_line=skip")
        if on_bad_line == "fail":
            raise complaint.at(f"{path}{place}{first + line}")
        self.skipped += len(bad)
        self.first_skipped = self.first_skipped or f"{path.name}{place}{first + line}: {complaint.what}"

    def notes(self) -> list[str]:
        """What the user should know."""
        return [f"{self.skipped:,} bad lines skipped, the first: {self.first_skipped}"] if self.skipped else []


def read_text(
    path: Path, text_format: TextFormat, on_bad_line: str, reading: Reading, block_bytes: int = BLOCK_BYTES
) -> Iterator[pl.DataFrame]:
    """The rows of `path` in order, a frame of strings a block; missing fields are empty. Adds to `reading`.

    Raises UserError: unreadable or truncated file, wrong header, bad line (unless `on_bad_line` is skip).
    """
    line_number = 1
    for block in blocks(path, block_bytes, reading.done, text_format.quoted):
        if line_number == 1:
            *before, block = block.split(b"\n", text_format.before)
            line_number += len(before)
            if text_format.header is not None:
                first, block = block.split(b"\n", 1)
                _check_header(first, text_format.header, path, line_number)
                line_number += 1
        lines = block.count(b"\n")
        frame, bad = parse(block, text_format)
        reading.refuse(bad, path, ":", line_number, on_bad_line)
        line_number += lines
        if frame.height:
            yield frame


def parse(block: bytes, text_format: TextFormat) -> tuple[pl.DataFrame, dict[int, Complaint]]:
    """The good rows of whole lines, and what is wrong with the others, by their line from 0 on."""
    if b"\r" in block and not text_format.quoted:
        block = block.replace(b"\r\n", b"\n")
    if text_format.keys is not None:
        return _of_json(block, text_format, text_format.keys)
    block, separator = _one_character(block, text_format.separator)
    frame = None if no_text(block) else _by_polars(block, separator, text_format)
    if frame is not None:
        return checked(frame, None, text_format, {})
    block, lines, bad = _by_csv(block, separator, text_format)
    frame = _by_polars(block, separator, text_format, checked=True)
    if frame is not None and frame.height == len(lines):
        return checked(frame, lines, text_format, bad)
    remedy = "quote every field that has a quote in it, and double that"
    return pl.DataFrame(), bad or {0: Complaint("its quotes can be read in two ways", remedy=remedy)}


def _of_json(block: bytes, text_format: TextFormat, keys: tuple[str, ...]) -> tuple[pl.DataFrame, dict[int, Complaint]]:
    frame, lines, wrong = json_lines.rows_of(block, keys)
    frame.columns = list(text_format.names)
    remedy = "mend the line: text in double quotes, and no comma at its end"
    bad = {number: Complaint("not a JSON object", shorten(line), remedy=remedy) for number, line in wrong.items()}
    return checked(frame, lines, text_format, bad)


def first_lines(path: Path, lines: int) -> list[str]:
    """The first lines of `path`, at most `lines`, to look at: bytes that are no text are replaced. The first line must be text.

    Raises UserError as `read_text` does."""
    for block in blocks(path, LOOK_BYTES):
        if wrong := no_text(block[: block.index(b"\n")]):
            raise UserError("not UTF-8 text", where=f"{path}:1", given=wrong, remedy="mend the line" if wrong == NUL else TO_UTF8)
        return block.decode("utf-8", errors="replace").replace("\r\n", "\n").split("\n")[:-1][:lines]
    return []


def shorten(text: str, length: int = 40) -> str:
    """`text` quoted, on one line and cut to `length`."""
    return repr(text if len(text) <= length else text[: length - 3] + "...")


def _one_character(block: bytes, separator: str | None) -> tuple[bytes, str | None]:
    """The block and its separator, which is one character then. Of blanks one is left between fields, and none around them."""
    if separator == " ":
        return re.sub(rb"(?m)^ | $", b"", re.sub(rb" +", b" ", block)), separator
    if separator is not None and len(separator) > 1:
        return block.replace(separator.encode(), _UNIT.encode()), _UNIT
    return block, separator


def _by_polars(block: bytes, separator: str | None, text_format: TextFormat, checked: bool = False) -> pl.DataFrame | None:
    """The rows as strings. None if Polars refuses them, or, unless they are `checked`, if one may be short or its quotes leave a doubt."""
    names = text_format.names
    schema = dict.fromkeys(names, pl.String)
    if not block:
        return pl.DataFrame(schema=schema)
    if separator is None:
        return pl.read_lines(block, name=names[0])
    quote = '"' if text_format.quoted else None
    try:
        frame = pl.read_csv(
            block, has_header=False, separator=separator, quote_char=quote, schema=schema, empty_string_is_null=False, raise_if_empty=False
        )
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        return None
    if checked:
        return frame
    between = block.count(separator.encode())
    if quote and b'"' in block:
        if frame.select(pl.any_horizontal(pl.all().str.contains('["\n]').any())).item():
            return None
        between -= frame.select(pl.sum_horizontal(pl.all().str.count_matches(separator, literal=True).sum())).item()
    # Polars refuses a row with too many fields and fills one with too few: one that is short lacks separators.
    return frame if between == frame.height * (len(names) - 1) and frame.height == block.count(b"\n") else None


def _by_csv(block: bytes, separator: str | None, text_format: TextFormat) -> tuple[bytes, list[int], dict[int, Complaint]]:
    """The rows with the right number of fields, the line of each, and what is wrong with the others."""
    stored, bad = block.split(b"\n")[:-1], dict[int, Complaint]()
    quoted, expected = text_format.quoted, len(text_format.names)
    taken = -1  # the last line that csv has taken

    def lines(start: int) -> Iterator[str]:
        nonlocal taken
        for number, line in enumerate(stored[start:], start):
            if wrong := no_text(line):
                remedy = TO_UTF8 if wrong != NUL else "mend the line" if quoted else Complaint.remedy
                bad[number] = Complaint("not UTF-8 text", given=wrong, remedy=remedy)
                continue
            taken = number
            yield line.decode().removesuffix("\r").replace("\r", " ") + "\n"

    def rows_from(start: int) -> Iterator[list[str]]:
        if separator is None:
            return ([line] for line in lines(start))
        return csv.reader(lines(start), delimiter=separator, quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE, strict=True)

    rows = rows_from(0)
    good, numbers = [], []
    while True:
        after = taken
        try:
            fields = next(rows)
        except StopIteration:
            break
        except csv.Error as error:
            first = _first_after(after, bad)
            bad[first] = _quote_complaint(error, taken > first, stored[first])
            rows, taken = rows_from(first + 1), first  # lines after it may be good ones
            continue
        first = _first_after(after, bad) if quoted else taken
        row = b"\n".join(stored[first : taken + 1])
        if complaint := _fields_complaint(fields, row, text_format):
            bad[first] = complaint
            if taken > first:
                rows, taken = rows_from(first + 1), first
            continue
        if len(fields) > expected:
            row = (separator or "").join(fields[:expected]).encode()
        good.append(row + b"\n")
        numbers.append(first)
    return b"".join(good), numbers, bad


def _first_after(line: int, bad: dict[int, Complaint]) -> int:
    line += 1
    while line in bad:
        line += 1
    return line


def _fields_complaint(fields: list[str], row: bytes, text_format: TextFormat) -> Complaint | None:
    """What is wrong with a row by the number of its fields, or by its quotes."""
    expected = len(text_format.names)
    remedy = "mend the line; a field that holds a separator stands in quotes" if text_format.quoted else Complaint.remedy
    if not row.strip() and text_format.separator is not None:
        return Complaint("a blank line", allowed=f"{expected} fields", remedy=remedy)
    if text_format.quoted and row.count(b'"') % 2:
        return _quote_complaint(None, False, row)
    if len(fields) < expected or len(fields) > expected and not (text_format.extra_empty and not any(fields[expected:])):
        what = "too few fields" if len(fields) < expected else "too many fields"
        return Complaint(what, str(len(fields)), text_format.expected, remedy)
    return None


def _quote_complaint(error: csv.Error | None, many_lines: bool, row: bytes) -> Complaint:
    """Of a row that csv refuses, or that has an odd number of quotes (no `error`)."""
    if "field larger" in str(error) and not many_lines:
        return Complaint(
            "a field is too long", given=shorten(row.decode()), allowed=f"{LONGEST_LINE_BYTES:,} characters", remedy="shorten it"
        )
    never_closed = many_lines or "unexpected end" in str(error)
    what = "a quote is opened and never closed" if never_closed else "a quote within a field"
    return Complaint(what, given=shorten(row.decode()), remedy="put a field that has a quote in it in quotes, and double those within it")


def checked(
    frame: pl.DataFrame, lines: list[int] | None, text_format: TextFormat, bad: dict[int, Complaint]
) -> tuple[pl.DataFrame, dict[int, Complaint]]:
    """The rows of `frame` that pass the checks, and what is wrong with the others, beside what is `bad` already.

    `lines`: of each row, None where a row is a line.
    """
    wrong = [~check.good.fill_null(False) for check in text_format.checks]
    if not wrong or not frame.height or not frame.select(pl.any_horizontal(wrong).any()).item():
        return frame, bad
    by_check = frame.select(place.alias(str(number)) for number, place in enumerate(wrong))
    is_bad = by_check.select(pl.any_horizontal(pl.all())).to_series()
    for row in is_bad.arg_true():
        check = text_format.checks[by_check.row(row).index(True)]
        bad[row if lines is None else lines[row]] = Complaint(check.what, shorten(frame[check.column][row]), check.allowed)
    return frame.filter(~is_bad), bad


def _check_header(line: bytes, header: str, path: Path, number: int) -> None:
    if wrong := no_text(line):
        raise UserError("not UTF-8 text", where=f"{path}:{number}", given=wrong, allowed=header)
    given = line.decode("utf-8").rstrip("\r")
    if given != header:
        raise UserError("wrong header", where=f"{path}:{number}", given=shorten(given, 120), allowed=header)
