"""Interaction files: a log, one interaction a line (user, item and perhaps rating and time), or sequences, one user a line.

Which of the two, the separator and the columns are read from the first lines, or given. Ids are words: digits or not.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from recsys_lab.data.text import Check, TextFormat, first_lines
from recsys_lab.errors import UserError

KINDS = ("log", "sequences")
USER, ITEM, RATING, TIME, OTHER = COLUMNS = ("user", "item", "rating", "time", "other")
_NAMES = {
    USER: {"user", "user_id", "userid", "uid"},
    ITEM: {"item", "item_id", "itemid", "movie_id", "movieid", "product_id", "productid", "asin"},
    RATING: {"rating", "ratings", "score", "stars"},
    TIME: {"time", "timestamp", "unix_time", "ts"},
}
_SEPARATORS = ("\t", "::", ",", " ")
_TYPED = re.compile(r"[^:\s]+:(token|token_seq|float|float_seq)")
_NUMBER = r"^-?[0-9]{1,18}(\.[0-9]{1,18})?$"
_ID = r"^[^ \t\r]([^\r]*[^ \t\r])?$"
_BLANKS = " \t"
_WHOLE_SECONDS = re.compile(r"[0-9]{9,13}(\.[0-9]+)?")  # from 1973 on, in seconds or milliseconds
_LOOK_LINES = 1000
_MOST = 0.9  # of the lines looked at are as they should be: the others may be bad ones


@dataclass(frozen=True)
class Layout:
    """How a file is written. `columns` of a log: what each field is. `guessed`: what the user should check, or nothing."""

    kind: str  # log | sequences
    separator: str
    header: str | None
    columns: tuple[str, ...]
    guessed: str = ""

    @property
    def has_times(self) -> bool:
        return TIME in self.columns


def sniff(path: Path, kind: str | None, columns: Sequence[str] | None) -> Layout:
    """The layout of `path` from its first lines; `kind` and `columns` where they were given. Raises UserError where it is not clear."""
    check_given(kind, columns)
    lines = [line for line in first_lines(path, _LOOK_LINES) if line.strip()]
    if not lines:
        raise UserError("the file is empty", where=path, allowed="a line an interaction, or a line a user")
    separator = next(s for s in _SEPARATORS if s in lines[0].strip() or s == " ")
    first = fields_of(lines[0], separator)
    if kind != "sequences" and _is_header(first):
        return Layout("log", separator, lines[0], tuple(columns or _named(first, path)))
    if columns is not None:
        return Layout("log", separator, None, tuple(columns))
    split = [fields_of(line, separator) for line in lines]
    usual, seen = Counter(len(fields) for fields in split).most_common(1)[0]
    if kind == "sequences" or kind is None and not (usual in (2, 3, 4) and seen >= _MOST * len(lines)):
        return Layout("sequences", separator, None, ())
    return _bare_log([fields for fields in split if len(fields) == usual], separator, path)


def check_given(kind: str | None, columns: Sequence[str] | None) -> None:
    """UserError for a format or columns that there cannot be."""
    if kind is not None and kind not in KINDS:
        raise UserError(
            "no such choice", where="data.format", given=kind, allowed=f"{', '.join(KINDS)}, or null: told from the first lines"
        )
    if columns is None:
        return
    if kind == "sequences":
        raise UserError("sequences have no columns", where="data.columns", given=list(columns), allowed="null, or data.format=log")
    for name in columns:
        if name not in COLUMNS:
            raise UserError("no such column", where="data.columns", given=name, allowed=", ".join(COLUMNS))
    if any(columns.count(name) > 1 for name in COLUMNS[:-1]) or USER not in columns or ITEM not in columns:
        raise UserError("user and item are needed, each column once", where="data.columns", given=list(columns), allowed=", ".join(COLUMNS))


def fields_of(line: str, separator: str) -> list[str]:
    """A line's fields. Of blanks any number separates."""
    return re.split(" +", line.strip(" ")) if separator == " " else line.split(separator)


def _names_in(first: list[str]) -> list[str]:
    """Those of a header's fields, less quotes and the types that RecBole's carry (`user_id:token`)."""
    plain = [field.strip(_BLANKS + "\"'") for field in first]
    return [field.rsplit(":", 1)[0].lower() if _TYPED.fullmatch(field) else field.lower() for field in plain]


def _is_header(first: list[str]) -> bool:
    """Whether all fields carry a type, or one is called as users or items are."""
    return all(_TYPED.fullmatch(field) for field in first) or not {*_NAMES[USER], *_NAMES[ITEM]}.isdisjoint(_names_in(first))


def _named(first: list[str], path: Path) -> tuple[str, ...]:
    """What each field is by a header's names. UserError where these do not name one user and one item column."""
    names = _names_in(first)
    columns = tuple(next((column for column, known in _NAMES.items() if name in known), OTHER) for name in names)
    for column in (USER, ITEM):
        if columns.count(column) != 1:
            raise UserError(
                f"the header does not name one {column} column",
                where=f"{path}:1",
                given=", ".join(names),
                allowed=", ".join(sorted(_NAMES[column])),
                remedy="or say what each field is: 'data.columns=[user,item,other,time]'",
            )
    return columns


def _bare_log(lines: list[list[str]], separator: str, path: Path) -> Layout:
    """A log without a header: two to four fields, in the usual order. `lines` have equally many."""
    fields = len(lines[0])
    if fields == 3:
        third = TIME if sum(bool(_WHOLE_SECONDS.fullmatch(line[2])) for line in lines) >= _MOST * len(lines) else RATING
        return Layout("log", separator, None, (USER, ITEM, third), f"the third field is taken for a {third} (else: data.columns)")
    if fields in (2, 4):
        return Layout("log", separator, None, (USER, ITEM, RATING, TIME)[:fields])
    raise UserError(
        "the first lines do not say what the fields of this log are",
        where=f"{path}:1",
        given=f"{fields} fields",
        remedy="say what each is: 'data.columns=[user,item,other,time]'",
    )


def text_format(layout: Layout) -> TextFormat:
    """How Polars reads a file of this layout, and what a good line holds."""
    if layout.kind == "sequences":
        ids = _sequence(layout)
        shown = "a user and its items: ids of letters or digits"
        fields = (
            Check("line", ids.list.len() > 1, "a user without an item", shown),
            Check("line", ids.list.eval(pl.element().str.contains(_ID)).list.all(), "an id is empty, or has blanks around it", shown),
        )
        return TextFormat(("line",), None, checks=fields)
    names = _column_names(layout)
    checks = []
    for name, column in zip(names, layout.columns):
        if column in (USER, ITEM):
            what, allowed = f"no {column}, or blanks around it", "an id of letters or digits"
            checks.append(Check(name, pl.col(name).str.contains(_ID), what, allowed))
        elif column != OTHER:
            what, allowed = f"the {column} is not a number", "digits, with a point or without"
            checks.append(Check(name, pl.col(name).str.contains(_NUMBER), what, allowed))
    return TextFormat(names, layout.separator, header=layout.header, checks=tuple(checks))


def events_of(frame: pl.DataFrame, layout: Layout) -> pl.DataFrame:
    """A row an interaction: `user`, `item` (words) and, where the log has it, `time` (float64)."""
    if layout.kind == "sequences":
        ids = _sequence(layout)
        return frame.select(ids.list.first().alias(USER), ids.list.slice(1).alias(ITEM)).explode(ITEM)
    return frame.select(USER, ITEM, *([pl.col(TIME).cast(pl.Float64)] if layout.has_times else []))


def _column_names(layout: Layout) -> tuple[str, ...]:
    """Of a log, each once: there may be several other columns."""
    return tuple(f"{column} {number}" if column == OTHER else column for number, column in enumerate(layout.columns))


def _sequence(layout: Layout) -> pl.Expr:
    """The list of a line's fields."""
    line = pl.col("line").str.replace_all(" +", " ").str.strip_chars(" ") if layout.separator == " " else pl.col("line")
    return line.str.split(layout.separator)
