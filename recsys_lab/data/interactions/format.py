"""Interaction files: a log, one interaction a line (user, item and perhaps rating and time), or sequences, one user a line.

Which of the two, the separator and the columns are read from the first lines, or given. Ids are words: digits or not.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from recsys_lab.data.interactions.guess import (
    ELSE,
    ITEM,
    MISSING,
    OTHER,
    RATING,
    TIME,
    USER,
    bare_columns,
    looks_like_header,
    pasted,
    proposed,
    refuse_contradicted,
    refuse_log_as_sequences,
    refuse_odd_times,
    said_header,
    unclear,
)
from recsys_lab.data.interactions.named import names_and_rows
from recsys_lab.data.interactions.times import KINDS as TIMES
from recsys_lab.data.interactions.times import NUMBERS, kind_of_times
from recsys_lab.data.parquet import is_parquet
from recsys_lab.data.parts import Part, Source
from recsys_lab.data.separators import QUOTABLE, fields_of, lines_before, refuse_json, separator_of, with_blank
from recsys_lab.data.text import Check, TextFormat, first_lines
from recsys_lab.errors import UserError

KINDS = ("log", "sequences")
COLUMNS = (USER, ITEM, RATING, TIME, OTHER)
#: By column, names in lower case without signs. Those of a later set count where a column has none of an earlier one.
_NAMES: dict[str, tuple[set[str], ...]] = {
    USER: (
        {
            "user",
            "userid",
            "uid",
            "username",
            "visitorid",
            "customer",
            "buyerid",
            "personid",
            "playerid",
            "readerid",
            "customerno",
            "custid",
            "customerid",
            "reviewerid",
            "memberid",
            "clientid",
            "accountid",
            "profileid",
        },
        {"session", "sessionid"},
    ),
    ITEM: (
        {"item", "itemid", "movieid", "productid", "asin", "isbn", "articleid", "businessid", "trackid", "songid", "videoid", "newsid"}
        | {"parentasin", "artistid", "venueid", "locationid", "poiid", "placeid", "gameid", "appid", "bookid", "recipeid", "animeid"}
        | {"stockcode", "product", "productcode", "itemcode", "itemno", "articleno", "upc", "ean", "gtin", "jobid", "photoid", "hotelid"}
        | {"goodsid", "skuid", "sku", "adid", "storyid", "postid", "courseid", "showid", "bookmarkid", "aid", "contentid", "listingid"},
    ),
    RATING: ({"rating", "ratings", "score", "stars"},),
    TIME: (
        {"time", "timestamp", "unixtime", "ts", "eventtime", "eventtimestamp", "datetime", "createdat", "createdtime", "date", "eventdate"}
        | {"timestampms", "visittime", "clicktime", "viewtime", "reviewtime", "unixreviewtime", "checkintime", "occurredat"}
        | {"timeframe", "utctimestamp", "tdat", "invoicedate", "orderdate", "purchasedate", "transactiondate", "ordertime", "purchasetime"},
    ),
}
ID_NAMES = {column: frozenset().union(*_NAMES[column]) for column in (USER, ITEM)}
_NAMES_TIME = re.compile(r"date|time|(?:^|_)(?:ts|at|day|hour)(?:$|_)", re.IGNORECASE)
_TYPED = re.compile(r"[^:\s]+:(token|token_seq|float|float_seq)")
_NUMBER = r"^-?[0-9]{1,18}([.,][0-9]{1,18})?$"
_ID = r"^[^ \t\r]([^\r]*[^ \t\r])?$"
_ROUNDED = r"^-?[0-9](\.[0-9]+)?[eE]\+[0-9]{2,3}$|^-?[0-9]{16,}\.0*$"  # an id above 2^53 that was stored as a float
WHOLE = r"^(-?[0-9]+)\.0+$"  # as tables write whole numbers where some are missing
_COMMENT = "^[#%]( |$)"
_BLANKS = " \t"
LOOK_LINES = 1000
_FEWEST_LINES = 20  # of a part, where another may have more
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
    before: tuple[str, ...] = ()  # lines before the header or the first row
    names: tuple[str, ...] | None = None  # of the columns of Parquet or JSON, in the order of `columns`
    keys: int = 0  # how many of the last columns stand in the names of folders

    @property
    def has_times(self) -> bool:
        return TIME in self.columns

    @property
    def is_bare(self) -> bool:
        """Whether no names say what the columns are, and no key does."""
        return bool(self.guessed) and self.header is None and self.names is None


def sniff(source: Source, kind: str | None, columns: Sequence[str] | None) -> Layout:
    """The layout of a log from its first lines; `kind` and `columns` where they were given. Raises UserError where it is not clear."""
    check_given(kind, columns)
    part, stored = _first_with_lines(source)
    path, skipped, separator = part.path, 0, None
    if not is_parquet(path):
        if not any(line.strip() for line in stored):
            raise UserError("the file is empty", where=source.path, allowed="a line an interaction, or a line a user")
        skipped, separator = lines_before(stored, path)
    lines = [line for line in stored[skipped:] if line.strip()]
    if (named := names_and_rows(path, lines, LOOK_LINES)) is not None:
        layout = _of_names(*named, part, kind, columns)
    else:
        refuse_json(lines[0], path)
        separator = with_blank(separator or separator_of(lines, None if columns is None else len(columns)), lines)
        layout = _told(lines, separator, kind, columns, part)
    quoted = layout.names is None and layout.kind == "log" and layout.separator in QUOTABLE
    return replace(layout, before=tuple(stored[:skipped]), quoted=quoted)


def _first_with_lines(source: Source) -> tuple[Part, list[str]]:
    """The first part with rows enough to judge by, else that with most, and its first lines where it is text.

    Programs write parts without rows as well, with a header or without.
    """
    most: tuple[Part, list[str]] = (source.parts[0], [])
    for part in source.parts:
        if is_parquet(part.path):
            return part, []
        lines = first_lines(part.path, LOOK_LINES)
        most = max(most, (part, lines), key=lambda one: len(one[1]))
        if len(most[1]) >= _FEWEST_LINES:
            break
    return most


def _of_names(names: list[str], rows: list[list[str]], part: Part, kind: str | None, columns: Sequence[str] | None) -> Layout:
    """`sniff` of a part whose columns have names of their own."""
    if kind == "sequences":
        allowed = "log, or null: sequences are lines of text"
        raise UserError("a part with named columns is a log", where="data.format", given=kind, allowed=allowed)
    first, rows = _with_path(names, rows, part)
    if columns is not None and len(columns) not in (len(names), len(first)):
        allowed = f"{len(first)} columns: {', '.join(first)}"
        raise UserError("not a name a column", where="data.columns", given=f"{len(columns)} names", allowed=allowed)
    if columns is not None:
        layout = Layout("log", "", None, (*columns, *[OTHER] * (len(first) - len(columns))))
    elif _is_header(first):
        layout = _named(first, rows, "", None, part.path)
    else:
        raise _unknown_names("the names of the columns are not known", part.path, first, rows)
    return replace(_with_times(layout, rows, part.path), names=tuple(names), keys=len(part.keys))


def _with_path(first: list[str], rows: list[list[str]], part: Part) -> tuple[list[str], list[list[str]]]:
    """Names and rows with the columns that the path of a part has."""
    values = [value for _, value in part.keys]
    return [*first, *(key for key, _ in part.keys)], [[*row, *values] for row in rows] if values else rows


def _told(lines: list[str], separator: str, kind: str | None, columns: Sequence[str] | None, part: Part) -> Layout:
    """`sniff` of lines that are rows, but for a header."""
    path, keys = part.path, len(part.keys)
    split = [fields_of(line, separator, kind != "sequences") for line in lines]
    first, rows = split[0], [row for row in split[1:] if len(row) == len(split[0])]
    names, whole = _with_path(first, rows, part)
    if kind == "sequences":
        return Layout("sequences", separator, None, ())
    if columns is not None:
        fields = len(columns) - keys if len(columns) == len(names) else len(columns)
        has_header = _is_header(names) or len(first) == fields and looks_like_header(first, rows)
        guessed = said_header(first) if has_header and not _is_header(names) else ""
        every = (*columns, *[OTHER] * (fields + keys - len(columns)))
        layout = Layout("log", separator, lines[0] if has_header else None, every, guessed, keys=keys)
        return _with_times(layout, whole if has_header else _with_path(first, split, part)[1], path)
    if _is_header(names):
        return replace(_with_times(_named(names, whole, separator, lines[0], path), whole, path), keys=keys)
    usual, seen = Counter(len(fields) for fields in split).most_common(1)[0]
    is_log = usual in (2, 3, 4) and seen >= _MOST * len(lines)
    if seen >= _MOST * len(lines) and rows and looks_like_header(first, rows):
        if len(first) == 1:
            raise unclear([first], path)
        raise _unknown_names("the first line looks like a header, whose names are not known", f"{path}:1", names, whole)
    if kind is None and not is_log:
        refuse_log_as_sequences(split, seen >= _MOST * len(lines), path)
        return Layout("sequences", separator, None, ())
    rows = [fields for fields in split if len(fields) == usual]
    columns = bare_columns(rows, path)
    guessed = f"fields without names are taken for {', '.join(columns)} ({ELSE})"
    layout = _with_times(Layout("log", separator, None, columns, guessed), rows, path)
    return replace(layout, columns=(*columns, *[OTHER] * keys), keys=keys)


def _unknown_names(what: str, where: object, names: Sequence[str], rows: Sequence[Sequence[str]]) -> UserError:
    return UserError(
        what,
        where=where,
        given=", ".join(names),
        allowed="a user and an item column, such as user_id, item_id and timestamp",
        remedy=f"say what each field is: '{pasted(proposed(rows))}'",
    )


def _with_times(layout: Layout, rows: Sequence[Sequence[str]], path: Path) -> Layout:
    """`layout` with how its times are written. UserError where they would not sort."""
    if not layout.has_times:
        return layout
    refuse_odd_times(layout.columns, rows, path)
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


def plain_name(field: str) -> str:
    """A header's field without quotes, blanks around it and the type that RecBole's carry (`user_id:token`)."""
    plain = field.strip(_BLANKS + "\"'")
    return plain.rsplit(":", 1)[0] if _TYPED.fullmatch(plain) else plain


def _names_in(first: list[str]) -> list[str]:
    """Those of a header's fields in lower case, less signs."""
    return [re.sub(r"[\W_]", "", plain_name(field).lower()) for field in first]


def _is_header(first: list[str]) -> bool:
    """Whether all fields carry a type, or one is called as users or items are."""
    return all(_TYPED.fullmatch(field) for field in first) or not set().union(*_NAMES[USER], *_NAMES[ITEM]).isdisjoint(_names_in(first))


def _named(first: list[str], rows: list[list[str]], separator: str, header: str | None, path: Path) -> Layout:
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
    timed = {place for place, name in enumerate(names) if name in _NAMES[TIME][0]}
    refuse_contradicted(tuple(columns), shown, rows, path, timed=timed)
    taken = ", ".join(f"{column}: {shown[columns.index(column)]}" for column in COLUMNS[:-1] if column in columns)
    dated = [name for name in shown if _NAMES_TIME.search(name)] if TIME not in columns else []
    no_time = f"; none for the time, which may be in {', '.join(dated)}" if dated else ""
    return Layout("log", separator, header, tuple(columns), f"taken for {taken}{no_time} ({ELSE})")


def _is_missing(values: Sequence[str]) -> bool:
    return bool(values) and MISSING.issuperset(values)


def text_format(layout: Layout) -> TextFormat:
    """How Polars reads a file of this layout, and what a good line holds."""
    if layout.kind == "sequences":
        ids = _sequence(layout)
        shown = "a user and its items: ids of letters or digits"
        fields = (
            Check("line", ids.list.len() > 1, "a user without an item", shown),
            Check("line", ids.list.eval(pl.element().str.contains(_ID)).list.all(), "an id is empty, or has blanks around it", shown),
        )
        return TextFormat(("line",), None, before=len(layout.before), checks=fields)
    names = column_names(layout)[: len(layout.columns) - layout.keys]
    checks = checks_of(layout, names)
    if layout.names is not None:
        stored = {name: key for name, column, key in zip(names, layout.columns, layout.names) if column != OTHER}
        return TextFormat(tuple(stored), None, before=len(layout.before), keys=tuple(stored.values()), checks=checks)
    return TextFormat(names, layout.separator, header=layout.header, quoted=layout.quoted, before=len(layout.before), checks=checks)


def checks_of(layout: Layout, names: Collection[str]) -> tuple[Check, ...]:
    """What the columns `names` of a log hold."""
    checks = []
    if layout.names is None and names and (first := column_names(layout)[0]) in names:
        checks.append(Check(first, ~pl.col(first).str.contains(_COMMENT), "a comment", "a row; comments before the first one"))
    for name, column in zip(column_names(layout), layout.columns):
        if name not in names:
            continue
        if column in (USER, ITEM):
            what, allowed = f"no {column}, or blanks around it", "an id of letters or digits"
            checks.append(Check(name, pl.col(name).str.contains(_ID) & ~pl.col(name).is_in(MISSING), what, allowed))
            what, allowed = f"the {column} is a float, in which several great ids become one", "all digits of an id, or letters"
            checks.append(Check(name, ~pl.col(name).str.contains(_ROUNDED), what, allowed))
        elif column == TIME:
            kind = TIMES[layout.times]
            checks.append(Check(name, kind.read(pl.col(name)).is_not_null(), f"the time is not {kind.what}", kind.allowed))
        elif column == RATING:
            allowed = "digits, with a point or without"
            checks.append(Check(name, pl.col(name).str.contains(_NUMBER), "the rating is not a number", allowed))
    return tuple(checks)


def events_of(frame: pl.DataFrame, layout: Layout, sides: Collection[str] = ()) -> pl.DataFrame:
    """A row an interaction: `user`, `item` (words) and, where the log has it, `time` (int64, or float64 where one has a fraction).

    The columns `sides` of the frame follow as they are.
    """
    if layout.kind == "sequences":
        ids = _sequence(layout)
        return frame.select(ids.list.first().alias(USER), ids.list.slice(1).alias(ITEM)).explode(ITEM)
    events = frame.select(
        pl.col(USER, ITEM).str.replace(WHOLE, "$1"),
        *([TIMES[layout.times].read(pl.col(TIME))] if layout.has_times else []),
        *(pl.col(name) for name in sides),
    )
    if layout.has_times and layout.times == NUMBERS and not frame[TIME].str.contains("[.eE]|[0-9]{19}").any():
        return events.with_columns(frame[TIME].cast(pl.Int64))
    return events


def column_names(layout: Layout) -> tuple[str, ...]:
    """Of a log, each once: there may be several other columns."""
    return tuple(f"{column} {number}" if column == OTHER else column for number, column in enumerate(layout.columns))


def _sequence(layout: Layout) -> pl.Expr:
    """The list of a line's fields."""
    line = pl.col("line").str.replace_all(" +", " ").str.strip_chars(" ") if layout.separator == " " else pl.col("line")
    return line.str.split(layout.separator)
