"""The header of a table as text: its separator, and the names of its columns."""

from __future__ import annotations

import csv
import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from recsys_lab.data import json_lines
from recsys_lab.data.separators import QUOTABLE, fields_of, lines_before, refuse_json, refuse_sparse, said_before, separator_of
from recsys_lab.data.text import Reading, TextFormat, first_lines, read_text, shorten
from recsys_lab.errors import UserError

NO_HEADER = "if its first line is a row, name the columns: data.columns=[...]"
#: Of a thousand rows that are wide.
_LOOK_BYTES = 1 << 20
_LOOK_LINES = 100


def table_format(path: Path, names: Sequence[str] | None = None) -> TextFormat:
    """How the rows of `path` are written. `names`: of its columns, where it has no header.

    UserError for an empty file, for names that no column can have, and for another number of names than the first row has fields.
    """
    stored = first_lines(path, _LOOK_LINES)
    if not stored:
        raise UserError("the file is empty", where=path, allowed="a header and a row or more")
    skipped, named = lines_before(stored, path)
    lines = [line for line in stored[skipped:] if line.strip()] or [""]
    at = f"{path}:{skipped + 1}"
    if (keys := json_lines.names_in(lines)) is not None:
        if names is not None:
            raise UserError("the objects of JSON have names", where=path, given="data.columns", remedy="take it out")
        columns = checked_names(keys, at)
        return TextFormat(columns, None, before=skipped, keys=columns)
    refuse_json(lines[0], path)
    refuse_sparse(lines, path)
    separator = named or separator_of(lines, None if names is None else len(names))
    separator = separator if separator != " " or " " in lines[0].strip() else ","
    fields, quoted = _fields(lines[0], separator, at), separator in QUOTABLE
    if names is None:
        return TextFormat(checked_names(fields, at), separator, lines[0], quoted=quoted, before=skipped)
    if len(names) != len(fields):
        given, allowed = f"{len(names)} names", f"{len(fields)}, one for each field of its first line: {shorten(lines[0])}"
        raise UserError("not a name a column", where="data.columns", given=given, allowed=allowed)
    return TextFormat(checked_names(names, "data.columns"), separator, quoted=quoted, before=skipped)


def said_before_rows(path: Path) -> list[str]:
    """A note, or none, of the lines before the header of a table as text."""
    stored = first_lines(path, _LOOK_LINES)
    return said_before(stored[: lines_before(stored, path)[0]])


def _fields(line: str, separator: str, where: str) -> list[str]:
    if separator not in QUOTABLE:
        return [field.strip(' \t"') for field in fields_of(line, separator)]
    try:
        return [field.strip(" \t") for field in next(csv.reader([line], delimiter=separator, strict=True), [])]
    except csv.Error as error:
        raise UserError(f"not a header ({error})", where=where, given=shorten(line), remedy="mend its quotes") from None


def first_rows(path: Path, rows: int, names: Sequence[str] | None = None) -> pl.DataFrame:
    """At most the first `rows` rows, every column as text. UserError, with its line, for a bad one."""
    text_format = table_format(path, names)
    frame = next(read_text(path, text_format, "fail", Reading(may_skip=False), _LOOK_BYTES), None)
    return pl.DataFrame(schema=dict.fromkeys(text_format.names, pl.String)) if frame is None else frame.head(rows)


def checked_names(names: Sequence[str], where: object) -> tuple[str, ...]:
    """The names of a table's columns. UserError where one has none, a control character, or that of another."""
    if not any(name.strip() for name in names):
        raise UserError("a blank line", where=where, allowed="a header with the names of the columns", remedy="take it out")
    for number, name in enumerate(names, 1):
        if not name.strip():
            given, remedy = f"column {number} of {len(names)}", "name it, or leave it out (an index that pandas wrote: index=False)"
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
