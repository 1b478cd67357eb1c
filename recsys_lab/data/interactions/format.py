"""Interaction files: a log, one interaction a line (user, item and perhaps rating and time), or sequences, one user a line.

Which of the two, the separator and the columns are read from the first lines, or given. Ids are words: digits or not.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from recsys_lab.data.interactions.guess import (
    ELSE,
    ITEM,
    OTHER,
    RATING,
    TIME,
    USER,
    bare_columns,
    refuse_contradicted,
    refuse_log_as_sequences,
)
from recsys_lab.data.interactions.times import KINDS as TIMES
from recsys_lab.data.interactions.times import NUMBERS, kind_of_times
from recsys_lab.data.table.header import SEPARATORS
from recsys_lab.data.text import Check, TextFormat, first_lines
from recsys_lab.errors import UserError

KINDS = ("log", "sequences")
COLUMNS = (USER, ITEM, RATING, TIME, OTHER)
#: By column, names in lower case without signs. Those of a later set count where a column has none of an earlier one.
_NAMES: dict[str, tuple[set[str], ...]] = {
    USER: (
        {"user", "userid", "uid", "username", "visitorid", "customerid", "reviewerid", "memberid"},
        {"session", "sessionid"},
    ),
    ITEM: (
        {"item", "itemid", "movieid", "productid", "asin", "isbn", "articleid", "businessid", "trackid", "songid", "videoid", "newsid"},
    ),
    RATING: ({"rating", "ratings", "score", "stars"},),
    TIME: (
        {"time", "timestamp", "unixtime", "ts", "eventtime", "eventtimestamp", "datetime", "createdat", "createdtime", "date", "eventdate"}
        | {"timestampms", "visittime", "clicktime", "viewtime", "reviewtime", "unixreviewtime", "checkintime", "occurredat", "timeframe"},
    ),
}
_TYPED = re.compile(r"[^:\s]+:(token|token_seq|float|float_seq)")
_NUMBER = r"^-?[0-9]{1,18}(\.[0-9]{1,18})?$"
_ID = r"^[^ \t\r]([^\r]*[^ \t\r])?$"
_ROUNDED = r"^-?[0-9](\.[0-9]+)?[eE]\+[0-9]{2,3}$"  # an id above 2^53 that was stored as a float
_BLANKS = " \t"
_MISSING = {"", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "\\N"}
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
    times: str = NUMBERS  # how times are written: a key of `times.KINDS`
    quoted: bool = False  # a field may stand in quotes, as in `data=table`

    @property
    def has_times(self) -> bool:
        return TIME in self.columns


def sniff(path: Path, kind: str | None, columns: Sequence[str] | None) -> Layout:
    """The layout of `path` from its first lines; `kind` and `columns` where they were given. Raises UserError where it is not clear."""
    check_given(kind, columns)
    lines = [line for line in first_lines(path, _LOOK_LINES) if line.strip()]
    if not lines:
        raise UserError("the file is empty", where=path, allowed="a line an interaction, or a line a user")
    separator = _separator(lines[0].strip())
    split = [fields_of(line, separator, kind != "sequences") for line in lines]
    first = split[0]
    if kind != "sequences" and (_is_header(first) or columns is not None and _is_other_header(split, columns)):
        rows = [row for row in split[1:] if len(row) == len(first)]
        return _as_log(
            _named(first, rows, separator, lines[0], path) if columns is None else Layout("log", separator, lines[0], tuple(columns)), rows
        )
    if columns is not None:
        return _as_log(Layout("log", separator, None, tuple(columns)), split)
    usual, seen = Counter(len(fields) for fields in split).most_common(1)[0]
    rows = [fields for fields in split if len(fields) == usual]
    if kind == "sequences" or kind is None and not (usual in (2, 3, 4) and seen >= _MOST * len(lines)):
        if kind is None and seen >= _MOST * len(lines) > 1:
            refuse_log_as_sequences(rows, path)
        return Layout("sequences", separator, None, ())
    columns = bare_columns(rows, path)
    return _as_log(Layout("log", separator, None, columns, f"fields without names are taken for {', '.join(columns)} ({ELSE})"), rows)


def _separator(line: str) -> str:
    """What stands between the fields of `line`: of several signs that a table may have, the one that makes most fields."""
    for separator in ("\t", "::"):
        if separator in line:
            return separator
    best = max((",", ";", "|"), key=lambda sign: len(fields_of(line, sign, True)))
    return best if best in line else " "


def _as_log(layout: Layout, rows: Sequence[Sequence[str]]) -> Layout:
    """`layout` with quotes where `data=table` has them, and with how its times are written."""
    layout = replace(layout, quoted=layout.separator in SEPARATORS)
    if not layout.has_times:
        return layout
    place = layout.columns.index(TIME)
    return replace(layout, times=kind_of_times([row[place] for row in rows if len(row) > place]) or NUMBERS)


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


def fields_of(line: str, separator: str, quoted: bool = False) -> list[str]:
    """A line's fields. Of blanks any number separates. `quoted`: a field may stand in quotes, but for blanks and two colons."""
    if quoted and separator in SEPARATORS and '"' in line:
        return next(csv.reader([line], delimiter=separator), [])
    return re.split(" +", line.strip(" ")) if separator == " " else line.split(separator)


def _names_in(first: list[str]) -> list[str]:
    """Those of a header's fields in lower case, less signs and the types that RecBole's carry (`user_id:token`)."""
    plain = [field.strip(_BLANKS + "\"'") for field in first]
    names = [field.rsplit(":", 1)[0] if _TYPED.fullmatch(field) else field for field in plain]
    return [re.sub(r"[\W_]", "", name.lower()) for name in names]


def _is_header(first: list[str]) -> bool:
    """Whether all fields carry a type, or one is called as users or items are."""
    return all(_TYPED.fullmatch(field) for field in first) or not set().union(*_NAMES[USER], *_NAMES[ITEM]).isdisjoint(_names_in(first))


def _is_other_header(split: list[list[str]], columns: Sequence[str]) -> bool:
    """Whether the first line alone has no time where `columns` has times."""
    if TIME not in columns or len(split[0]) != len(columns):
        return False
    place = columns.index(TIME)
    values = [row[place] for row in split[1:] if len(row) > place]
    return kind_of_times(values) is not None and kind_of_times([split[0][place]]) is None


def _named(first: list[str], rows: list[list[str]], separator: str, header: str, path: Path) -> Layout:
    """A log by its header's names. UserError where these do not name one user and one item column, or name what the values are not."""
    names, shown = _names_in(first), [field.strip(_BLANKS + "\"'") for field in first]
    columns = [OTHER] * len(names)
    for column, ranks in _NAMES.items():
        places: list[int] = []
        for known in ranks:
            places = places or [i for i, name in enumerate(names) if name in known and not _is_missing([row[i] for row in rows])]
        if column in (USER, ITEM) and len(places) != 1:
            raise UserError(
                f"the header does not name one {column} column",
                where=f"{path}:1",
                given=", ".join(shown),
                allowed=", ".join(sorted(set().union(*ranks))),
                remedy="or say what each field is: 'data.columns=[user,item,other,time]'",
            )
        if column == TIME:  # of several the one that tells most events of a user apart
            user = columns.index(USER)
            places = sorted(places, key=lambda i: -len({(row[user], row[i]) for row in rows}))
        if places:
            columns[places[0]] = column
    refuse_contradicted(tuple(columns), shown, rows, path)
    taken = ", ".join(f"{column}: {shown[columns.index(column)]}" for column in COLUMNS[:-1] if column in columns)
    return Layout("log", separator, header, tuple(columns), f"taken for {taken} ({ELSE})")


def _is_missing(values: Sequence[str]) -> bool:
    return bool(values) and _MISSING.issuperset(values)


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
            what, allowed = f"the {column} is a float, in which several great ids become one", "all digits of an id, or letters"
            checks.append(Check(name, ~pl.col(name).str.contains(_ROUNDED), what, allowed))
        elif column == TIME:
            kind = TIMES[layout.times]
            checks.append(Check(name, kind.read(pl.col(name)).is_not_null(), f"the time is not {kind.what}", kind.allowed))
        elif column == RATING:
            allowed = "digits, with a point or without"
            checks.append(Check(name, pl.col(name).str.contains(_NUMBER), "the rating is not a number", allowed))
    return TextFormat(names, layout.separator, header=layout.header, quoted=layout.quoted, checks=tuple(checks))


def events_of(frame: pl.DataFrame, layout: Layout) -> pl.DataFrame:
    """A row an interaction: `user`, `item` (words) and, where the log has it, `time` (int64, or float64 where one has a fraction)."""
    if layout.kind == "sequences":
        ids = _sequence(layout)
        return frame.select(ids.list.first().alias(USER), ids.list.slice(1).alias(ITEM)).explode(ITEM)
    events = frame.select(USER, ITEM, *([TIMES[layout.times].read(pl.col(TIME))] if layout.has_times else []))
    if layout.has_times and layout.times == NUMBERS and not frame[TIME].str.contains("[.eE]|[0-9]{19}").any():
        return events.with_columns(frame[TIME].cast(pl.Int64))
    return events


def _column_names(layout: Layout) -> tuple[str, ...]:
    """Of a log, each once: there may be several other columns."""
    return tuple(f"{column} {number}" if column == OTHER else column for number, column in enumerate(layout.columns))


def _sequence(layout: Layout) -> pl.Expr:
    """The list of a line's fields."""
    line = pl.col("line").str.replace_all(" +", " ").str.strip_chars(" ") if layout.separator == " " else pl.col("line")
    return line.str.split(layout.separator)
