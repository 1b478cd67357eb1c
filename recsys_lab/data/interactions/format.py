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

from recsys_lab.data.text import Complaint, first_lines, shorten
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
_SHOWN = {"\t": "tabs", "::": "two colons", ",": "commas", " ": "blanks"}
_TYPED = re.compile(r"[^:\s]+:(token|token_seq|float|float_seq)")
_NUMBER = r"-?[0-9]{1,18}(\.[0-9]{1,18})?"
_BLANKS = " \t"
_INSIDE = "\x1f"  # stands for two colons while a block is parsed: no line may hold it
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


@dataclass(frozen=True)
class LogFormat:
    """One interaction a line. Parsed: a frame with `user`, `item` (words) and, where the log has it, `time` (float64)."""

    layout: Layout

    @property
    def header(self) -> str | None:
        return self.layout.header

    def parse(self, block: bytes) -> pl.DataFrame | None:
        columns, separator = self.layout.columns, self.layout.separator
        if not _clean(block):
            return None
        if separator == " ":
            block = _single_blanks(block)
        elif len(separator) > 1:
            block, separator = block.replace(separator.encode(), _INSIDE.encode()), _INSIDE
        if block.count(separator.encode()) != block.count(b"\n") * (len(columns) - 1):
            return None
        names = [f"{i} {column}" for i, column in enumerate(columns)]
        try:
            frame = pl.read_csv(block, has_header=False, separator=separator, quote_char=None, schema=dict.fromkeys(names, pl.String))
        except pl.exceptions.PolarsError:
            return None
        frame = frame.select(pl.col(name).alias(column) for name, column in zip(names, columns) if column != OTHER)
        numbers = [column for column in (RATING, TIME) if column in columns]
        if any(frame.null_count().row(0)) or not _are_words(frame) or not all(frame[c].str.contains(f"^{_NUMBER}$").all() for c in numbers):
            return None
        return frame.select(USER, ITEM, *([pl.col(TIME).cast(pl.Float64)] if TIME in columns else []))

    def complaint(self, line: str) -> Complaint | None:
        fields, columns = fields_of(line, self.layout.separator), self.layout.columns
        if not _clean(line.encode()):
            return Complaint("a control character", shorten(line))
        if len(fields) != len(columns):
            few = "too few fields" if len(fields) < len(columns) else "too many fields"
            return Complaint(few, f"{len(fields)}", f"{len(columns)}, separated by {_SHOWN[self.layout.separator]}: {', '.join(columns)}")
        for name, text in zip(columns, fields):
            if name in (USER, ITEM) and (wrong := _no_word(name, text)):
                return wrong
            if name in (RATING, TIME) and not re.fullmatch(_NUMBER, text):
                return Complaint(f"the {name} is not a number", shorten(text), "digits, with a point or without")
        return None


@dataclass(frozen=True)
class SequenceFormat:
    """One user a line: the user, then its items in the order of time. Parsed: a frame with `user` and `item`, a row an interaction."""

    layout: Layout
    header = None

    def parse(self, block: bytes) -> pl.DataFrame | None:
        separator = self.layout.separator
        if not _clean(block):
            return None
        if separator == " ":
            block = _single_blanks(block)
        try:
            lines = pl.DataFrame({"line": block.decode("utf-8").split("\n")[:-1]}, schema={"line": pl.String})
        except UnicodeDecodeError:
            return None
        fields = pl.col("line").str.split(separator)
        split = lines.select(fields.list.first().alias(USER), fields.list.slice(1).alias(ITEM))
        if (split[ITEM].list.len() == 0).any():
            return None
        frame = split.explode(ITEM)
        return frame if _are_words(frame) else None

    def complaint(self, line: str) -> Complaint | None:
        fields = fields_of(line, self.layout.separator)
        if not _clean(line.encode()):
            return Complaint("a control character", shorten(line))
        if len(fields) < 2:
            return Complaint("a user without an item", shorten(line), f"a user and its items, separated by {_SHOWN[self.layout.separator]}")
        return next((wrong for name, text in zip([USER] + [ITEM] * len(fields), fields) if (wrong := _no_word(name, text))), None)


def _single_blanks(block: bytes) -> bytes:
    """One blank between fields and none around them."""
    if b"  " in block or b" \n" in block or b"\n " in block or block[:1] == b" ":
        block = re.sub(rb"(?m)^ | $", b"", re.sub(rb" +", b" ", block))
    return block


def _clean(text: bytes) -> bool:
    return b"\r" not in text and b"\0" not in text and _INSIDE.encode() not in text


def _are_words(frame: pl.DataFrame) -> bool:
    """Whether every id has a letter at least and no blanks around it."""
    return all(((c.str.strip_chars(_BLANKS) == c) & (c.str.len_bytes() > 0)).all() for c in (frame[USER], frame[ITEM]))


def _no_word(name: str, text: str) -> Complaint | None:
    if text.strip(_BLANKS) == text != "":
        return None
    return Complaint(f"blanks around the {name}" if text else f"no {name}", shorten(text), "an id of letters or digits")
