"""Columns that teach a model nothing, or too much: checked while a table is read, and reported in one line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from recsys_lab.base.files import pasted_list
from recsys_lab.data.table import encode
from recsys_lab.data.table.encode import DECIMAL_COMMA, JSON, THREE_DIGITS, WRITTEN_OUT, bags

#: A date, as 2014-10-21, 20141021 or 21.10.2014, also with a time, or with its hour as YYMMDDHH or YYYYMMDDHH; minutes may follow.
_MONTH_AND_DAY = r"(?:0[1-9]|1[0-2])-?(?:0[1-9]|[12]\d|3[01])"
_WRITTEN = rf"(?:(?:\d{{4}}-|(?:19|20)\d\d){_MONTH_AND_DAY}|\d{{1,2}}[./]\d{{1,2}}[./]\d{{4}})(?:[T ]\d.*)?|[A-Z][a-z]{{2}} .*\d\d:\d\d.*"
_DATE = rf"^(?:{_WRITTEN}|(?:19|20)?\d{{2}}{_MONTH_AND_DAY}(?:[01]\d|2[0-3])(?:[0-5]\d){{0,2}})$"
#: JSON's arrays, and signs that separate several values in a cell. Words have blanks and commas as well.
_LISTS = {
    JSON: r"^\[.*[, ].*\]$|^\(.*,.*\)$",
    "|": r"^[^|]+(?:\|[^|]+)+$",
    "^": r"^[^\^]+(?:\^[^\^]+)+$",
    ";": r"^[^;]+(?:;[^;]+)+$",
}
_LISTS_OR_WORDS = {",": r"^[^,]+(?:,[^,]+)+$", " ": r"^[^ ]+(?: +[^ ]+)+$"}
_OBJECT = r'^\{".*\}$'
#: From this share of its cells on, a column is one of lists.
_LEAST_LISTS = 0.2
#: Seconds or milliseconds since 1970, of the years 1995 to 2036. Ids can look so too: the column's name must speak of time.
_UNIX_TIME = r"^(?:[89]\d{8}|1\d{9}|20\d{8})(?:\d{3})?$"
_NAMES_TIME = re.compile(r"time|date|epoch|(?:^|_)(?:ts|at)$", re.IGNORECASE)
#: Of a column with fewer values nothing is said: any few numbers can look like dates.
_LEAST_DATES = 3
#: From so many distinct values a row on, a column has nearly a value a row.
_NEARLY = 0.95
#: Of fewer rows of validation or test, with a value, it is not said that train knows hardly any; nor where it knows more than this share.
_LEAST_HELD_OUT, _HARDLY = 10, 0.02
#: 0.25 kg, 1.5k. Of more units than these, they are parts of ids.
_UNIT, _MOST_UNITS = r"^-?[\d.,]*\d ?([A-Za-zµ]{1,6})$", 5
#: A column gives the label away only if its values have this many rows on average. Rare values have one label by chance.
_LEAST_ROWS = 10
#: A float of 1e15 or more, without a fraction, as programs write it.
_GREAT_FLOAT = r"^-?(?:\d{16,}\.0*|\d(?:\.\d+)?[eE]\+?(?:1[5-9]|[2-9]\d|\d{3}))$"
#: What is reported of a column of each kind and of several, and whether a model is better off without them.
_REPORTS = {
    "label": ("equals the label", "equal the label", True),
    "leaks": ("gives the label away", "give the label away", True),
    "ids": ("has a value a row", "have a value a row", True),
    "nearly_ids": ("has nearly a value a row", "have nearly a value a row", True),
    "objects": ("has objects of JSON, each counts as one value", "have objects of JSON, each counts as one value", True),
    "constant": ("is constant", "are constant", True),
    "unknown": (
        "has hardly a value in validation or test that train has, check that they are written alike",
        "have hardly a value in validation or test that train has, check that they are written alike",
        False,
    ),
    "commas": ("looks like numbers with a decimal comma", "look like numbers with a decimal comma", False),
    "thousands": (
        'looks like numbers with a comma before three digits (say "," where 5,690 is 5.69)',
        'look like numbers with a comma before three digits (say "," where 5,690 is 5.69)',
        False,
    ),
    "written_out": (
        "looks like numbers with signs of money, shares or thousands",
        "look like numbers with signs of money, shares or thousands",
        False,
    ),
    "units": (
        "has numbers with a unit after them, write the number alone",
        "have numbers with a unit after them, write the number alone",
        False,
    ),
    "mixed": (
        "has numbers beside a word, leave the cell empty where a number is missing",
        "have numbers beside a word, leave the cell empty where a number is missing",
        False,
    ),
    "lists": (
        "has several values in a cell, each combination counts as one value",
        "have several values in a cell, each combination counts as one value",
        False,
    ),
    "rounded": (
        "has ids above 2^53 in floats, where several become one, store them as whole numbers or words",
        "have ids above 2^53 in floats, where several become one, store them as whole numbers or words",
        False,
    ),
    "dates": ("looks like a date, give its hour and weekday as columns", "look like dates, give hour and weekday as columns", False),
}


@dataclass
class ColumnChecks:
    """Names of columns by what is odd about them."""

    columns: dict[str, list[str]] = field(default_factory=lambda: {kind: [] for kind in _REPORTS})
    separators: dict[str, str] = field(default_factory=dict)
    decimals: dict[str, str] = field(default_factory=dict)

    def look(self, name: str, column: pl.Series, labels: np.ndarray, *, number: bool = False) -> None:
        """Takes note of the column `name`, as text, of all rows. `number`: it is read as one, so its values may all differ."""
        dates = f"{_DATE}|{_UNIX_TIME}" if _NAMES_TIME.search(name) else _DATE
        kind = _kind(column.replace("", None), labels, number, dates)
        if kind is not None:
            self.columns[kind].append(name)
        if kind == "lists":
            self.separators[name] = list_separator(column.replace("", None).drop_nulls()) or ""
        if kind in ("commas", "thousands", "written_out"):
            self.decimals[name] = encode.decimal_of(column.replace("", None).drop_nulls())

    def look_for_rounded(self, name: str, cells: pl.Series) -> None:
        """Takes note of the column `name`, as text, if it has whole numbers above 2^53 that a float has rounded."""
        great = cells.filter(cells.str.contains(_GREAT_FLOAT)).cast(pl.Float64, strict=False)
        if (great.abs() >= encode.MOST_EXACT).any():
            self.columns["rounded"].append(name)

    def compare(self, name: str, column: pl.Series, split: np.ndarray) -> None:
        """Takes note of the categories `name`, nothing odd so far, if train (`split` 0) has hardly a value of validation or test."""
        if any(name in own for own in self.columns.values()):
            return
        train = column.filter(pl.Series(split == 0)).unique()
        held_out = [column.filter(pl.Series(split == code)).drop_nulls() for code in (1, 2)]
        known = [(int(cells.is_in(train.implode()).sum()), len(cells)) for cells in held_out]
        if any(rows >= _LEAST_HELD_OUT and of_train <= _HARDLY * rows for of_train, rows in known):
            self.columns["unknown"].append(name)


def _kind(cells: pl.Series, labels: np.ndarray, number: bool, dates: str) -> str | None:
    """What is odd about a column; None: nothing. `dates`: the pattern of a date in it."""
    known = cells.drop_nulls()
    values = known.unique()
    if len(values) + bool(cells.null_count()) <= 1:
        return "constant"
    if kind := _tells(cells, labels):
        return kind
    if number:
        return None
    if len(values) >= _LEAST_DATES and values.str.contains(dates).all():
        return "dates"
    if len(values) >= _LEAST_DATES and (written := _written(values)) is not None:
        return written
    if len(values) and values.str.contains(_OBJECT).all():
        return "objects"
    if _is_mixed(values):
        return "mixed"
    if list_separator(known) is not None:
        return "lists"
    if len(values) == len(cells):
        return "ids"
    return "nearly_ids" if len(values) >= _NEARLY * len(known) and 2 * len(known) >= len(cells) and len(values) > 2 else None


def _written(values: pl.Series) -> str | None:
    """How distinct values are numbers that are written out for people; None: they are none, or plain ones."""
    commas = values.filter(values.str.contains(",", literal=True))
    if values.str.contains(f"{DECIMAL_COMMA}|{THREE_DIGITS}|^-?\\d+$").all() and len(commas):
        return "thousands" if commas.str.contains(THREE_DIGITS).all() else "commas"
    is_written = values.str.contains(f"{WRITTEN_OUT}|^-?[\\d.,]*\\d$").all() and values.str.contains(WRITTEN_OUT).any()
    if is_written:
        return "written_out"
    has_units = values.str.contains(_UNIT).all() and values.str.contains(r"\d[.,]\d").any()
    return "units" if has_units and values.str.extract(_UNIT, 1).n_unique() <= _MOST_UNITS else None


def list_separator(known: pl.Series) -> str | None:
    """What separates the values in the cells of a column without missing ones; None where a cell is one value.

    Blanks and commas separate values only where few values make many cells. Names and sentences do not.
    """
    for separator, pattern in (_LISTS | _LISTS_OR_WORDS).items():
        if known.str.contains(pattern).sum() < _LEAST_LISTS * len(known):
            continue
        if separator in _LISTS or 2 * bags(known, separator)[0].n_unique() <= known.n_unique():
            return separator
    return None


def _is_mixed(values: pl.Series) -> bool:
    """Whether distinct values are numbers, some with a fraction, but for one or two words, such as NA and NULL."""
    numbers = values.cast(pl.Float64, strict=False)
    known = numbers.drop_nulls()
    return len(known) >= _LEAST_DATES and 1 <= numbers.null_count() <= 2 and bool((known != known.floor()).any())


def _tells(cells: pl.Series, labels: np.ndarray) -> str | None:
    """Whether every value has one label only, a missing one being a value too; or it is missing just where the label is one of the two."""
    both = pl.DataFrame({"cell": cells, "label": labels})
    if both["label"].n_unique() < 2:
        return None
    groups = both.group_by("cell").agg(rows=pl.len(), clicks=pl.col("label").cast(pl.Int64).sum())
    if groups.select(((pl.col("clicks") == 0) | (pl.col("clicks") == pl.col("rows"))).all()).item():
        if len(groups) == 2:
            return "label"
        if len(cells) >= _LEAST_ROWS * len(groups):
            return "leaks"
    missing = cells.is_null().to_numpy()
    return "leaks" if (missing == (labels == 0)).all() or (missing == (labels == 1)).all() else None


def notes(
    columns: Mapping[str, Sequence[str]],
    separators: Mapping[str, str],
    decimals: Mapping[str, str],
    named: Collection[str],
    dropped: Sequence[str],
) -> list[str]:
    """One line, or none, of what the checks found, by kind. `named`: columns that the config names, which `data.drop` cannot have."""
    reports = [f"{', '.join(own)} {_REPORTS[kind][len(own) > 1]}" for kind, own in columns.items() if own]
    if not reports:
        return []
    useless = [name for kind, own in columns.items() for name in own if _REPORTS[kind][2]]
    unnamed = [name for name in useless if name not in named]
    remedies = [pasted_list("data.drop", [*dropped, *unnamed])] if unnamed else []
    remedies += ["take them out of data.dense and data.categorical"] if len(unnamed) < len(useless) else []
    without = f"; without them: {', '.join(remedies)}" if remedies else ""
    as_lists = f"; as lists: {shlex.quote(f'data.lists={encode.as_pairs(separators)}')}" if separators else ""
    as_numbers = f"; as numbers: {shlex.quote(f'data.decimal={encode.as_pairs(decimals)}')}" if decimals else ""
    return [f"check these columns: {'; '.join(reports)}{without}{as_lists}{as_numbers}"]
