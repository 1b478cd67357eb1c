"""The lines of a table as text. It finds the separator, the names in the header, and the first line that does not match the header.

A row is a line, or several where quotes hold a line's end.
"""

from __future__ import annotations

import contextlib
import csv
import io
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np
import polars as pl

from recsys_lab.data.stored_text import LONGEST_LINE_BYTES, blocks, no_text
from recsys_lab.data.text import shorten
from recsys_lab.errors import UserError

NO_HEADER = "if its first line is a row, put a line with the names of the columns before it"
_SEPARATORS = (",", "\t", ";", "|")
_LOOK_BYTES = 64 << 10
_LINE_FEED = ord("\n")


@dataclass
class TableLines:
    """What reading the lines of `path` has found so far. `rows`: those after the header."""

    path: Path
    separator: str = ""
    names: tuple[str, ...] = ()
    rows: int = 0
    number: int = 1  # of the next line
    _held: list[bytes] = field(default_factory=list)  # lines of a row whose quote is open
    _held_bytes: int = 0

    def checked(self) -> Iterator[bytes]:
        """The blocks of the file. Raises UserError, with the line, for the first row that is not as the header says. See `header_of`.

        The reader would rename a second column of the same name. It would take absent cells for missing values.
        """
        for block in blocks(self.path):
            self._take(block)
            yield block
        if self._held:
            raise self._never_closed()
        if not self.names:
            raise UserError("the file is empty", where=self.path, allowed="a header and a row or more")

    def _take(self, block: bytes) -> None:
        self._refuse_no_text(block)
        if self.names and not self._held and b'"' not in block:
            self._take_plain(block)
            return
        for line in _lines(block):
            self._take_line(line)

    def _refuse_no_text(self, block: bytes) -> None:
        if (wrong := no_text(block)) is not None:
            at = next(i for i, line in enumerate(block.split(b"\n")) if no_text(line))
            raise UserError("not UTF-8 text", where=f"{self.path}:{self.number + at}", given=wrong, remedy="mend the line")

    def _take_plain(self, block: bytes) -> None:
        """A block without quotes: its separators are counted all at once."""
        text = np.frombuffer(block, np.uint8)
        ends = np.flatnonzero(text == _LINE_FEED)
        fields = np.diff(np.searchsorted(np.flatnonzero(text == ord(self.separator)), ends), prepend=0) + 1
        wrong = np.flatnonzero(fields != len(self.names))
        if wrong.size:
            line = block.split(b"\n", int(wrong[0]) + 1)[wrong[0]]
            raise self._other_fields(line.decode(), int(fields[wrong[0]]), self.number + int(wrong[0]))
        self.rows, self.number = self.rows + len(ends), self.number + len(ends)

    def _take_line(self, line: bytes) -> None:
        odd = line.count(b'"') % 2 == 1
        self._held.append(line)
        self.number += 1
        if odd == (len(self._held) == 1):  # a quote is open now
            self._held_bytes += len(line)
            if self._held_bytes > LONGEST_LINE_BYTES:
                raise self._never_closed()
            return
        text, began = b"".join(self._held).decode(), self.number - len(self._held)
        self._held, self._held_bytes = [], 0
        if not self.names:
            self.separator = max(_SEPARATORS, key=text.count)
            self.names = checked_names([name.strip(" \t") for name in self._fields(text, began)], f"{self.path}:{began}")
            return
        fields = self._fields(text, began) or [""]
        if len(fields) != len(self.names):
            raise self._other_fields(text, len(fields), began)
        self.rows += 1

    def _fields(self, row: str, number: int) -> list[str]:
        """Of one row of text without its line end. UserError where its quotes make no fields."""
        where = f"{self.path}:{number}"
        try:
            text = row.removesuffix("\n").removesuffix("\r").replace("\r", " ")
            return next(csv.reader([text], delimiter=self.separator, strict=True), [])
        except csv.Error as error:
            if stray := self._stray_quote(row, where):
                raise stray from None
            what, given = f"not a row of a table ({error})", shorten(max(row.split(self.separator), key=len))
            allowed, remedy = f"{csv.field_size_limit():,} characters", "shorten the field, or take its column out of the file"
            raise UserError(what, where=where, given=given, allowed=allowed, remedy=remedy) from None

    def _stray_quote(self, row: str, where: str) -> UserError | None:
        """What to do about a quote that neither begins nor ends a field, as an inch mark; None where there is none."""
        separator = re.escape(self.separator)
        whole = f'(?:"(?:[^"]|"")*"|[^"{separator}\\r\\n]*)'
        rest = row[re.match(f"(?:{whole}{separator})*", row).end() :]  # type: ignore[union-attr]
        if re.match(f"{whole}(?:\\r?\\n|$)", rest) or re.fullmatch('"(?:[^"]|"")*', rest):
            return None
        field = re.split(f"{separator}|\\r?\\n", rest)[0]
        inside = field[1:].removesuffix('"') if field.startswith('"') else field
        remedy = "put the field in quotes, and double those within it" + f""": "{inside.replace('"', '""')}\"""" * (len(inside) <= 40)
        return UserError("not a row of a table (a quote within a field)", where=where, given=shorten(field), remedy=remedy)

    def _other_fields(self, row: str, fields: int, number: int) -> UserError:
        where, expected = f"{self.path}:{number}", len(self.names)
        if not row.strip():
            return UserError("a blank line", where=where, allowed=f"{expected} fields", remedy="take it out")
        what = f"too {'many' if fields > expected else 'few'} fields"
        remedy = "mend the line; a field that holds a separator stands in quotes"
        return UserError(what, where=where, given=fields, allowed=expected, remedy=remedy)

    def _never_closed(self) -> UserError:
        where = f"{self.path}:{self.number - len(self._held)}"
        if self.separator and (stray := self._stray_quote(b"".join(self._held).decode(), where)):
            return stray
        return UserError("a quote is opened and never closed", where=where, remedy="close it; a quote within a field is doubled")


def header_of(path: Path) -> TableLines:
    """With the separator and the names alone. UserError for an empty file, a column without a name, and a name that two columns have."""
    lines = TableLines(path)
    for block in blocks(path, _LOOK_BYTES):
        for line in _lines(block):
            if not lines.names:
                lines._refuse_no_text(line)
                lines._take_line(line)
        if lines.names:
            return lines
    if lines._held:
        raise lines._never_closed()
    raise UserError("the file is empty", where=path, allowed="a header and a row or more")


def first_rows(path: Path, rows: int) -> pl.DataFrame:
    """At most the first `rows` rows, every column as text, to look at. Missing cells are empty. No line but the header is refused."""
    header, lines = header_of(path), list[list[str]]()
    text = next(blocks(path, _LOOK_BYTES)).decode("utf-8", errors="replace").replace("\r\n", "\n").replace("\r", " ")
    with contextlib.suppress(csv.Error):  # the whole file is looked at when it is read
        lines = list(islice(csv.reader(io.StringIO(text, newline="\n"), delimiter=header.separator), rows + 1))
    width = len(header.names)
    table = [[*fields, *[""] * width][:width] for fields in lines[1:]]
    return pl.DataFrame(table, schema=dict.fromkeys(header.names, pl.String), orient="row")


def checked_names(names: Sequence[str], where: object) -> tuple[str, ...]:
    """The names of a table's columns. UserError where one has none, a control character, or that of another."""
    if not any(name.strip() for name in names):
        raise UserError("a blank line", where=where, allowed="a header with the names of the columns", remedy="take it out")
    for place, name in enumerate(names, 1):
        if not name.strip():
            given, remedy = f"column {place} of {len(names)}", "name it, or leave it out (an index that pandas wrote: index=False)"
            raise UserError("a column without a name", where=where, given=given, remedy=remedy + _of_no_header(names))
        if any(unicodedata.category(sign) == "Cc" for sign in name):
            raise UserError("a control character in a column's name", where=where, given=repr(name), remedy="name it in one line of text")
        if names.count(name) > 1:
            raise UserError("two columns have one name", where=where, given=name, remedy="rename one of them" + _of_no_header(names))
    return tuple(names)


def _of_no_header(names: Sequence[str]) -> str:
    """What to do besides where a header holds numbers: it may be the first row."""
    return f"; {NO_HEADER}" if has_numbers(names) else ""


def has_numbers(names: Sequence[str]) -> bool:
    """Whether one of `names` is a number, as in a row."""
    return any(re.fullmatch(r"-?[\d.]+", name) for name in names)


def _lines(block: bytes) -> list[bytes]:
    """The lines of a block, each with its line feed. A carriage return alone ends none."""
    return [line + b"\n" for line in block.split(b"\n")[:-1]]
