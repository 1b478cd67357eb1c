"""What the columns are that the config does not name: numbers or categories. Told from the first rows of a table."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import polars as pl

from recsys_lab.base.files import pasted_list
from recsys_lab.errors import UserError

#: Counts and amounts reach far: half of the rows are below this share of the largest. Ids and ages are not so.
_MOST_MEDIAN = 0.1
#: Ids by the order of their frequency look like counts.
_NAMES_ID = re.compile(r"(?i:(?:^|[_\W])(?:[ui]?id|code|zip|user|item|movie|product|query|doc|session)s?$)|[a-z]I[dD]$")
#: Fewer values than these are well told as categories.
_LEAST_VALUES = 10

Kind = Literal["measure", "count", "category"]


@dataclass(frozen=True)
class Columns:
    """`counts`: of the dense ones, those whose logarithm is read."""

    dense: tuple[str, ...]
    categorical: tuple[str, ...]
    counts: tuple[str, ...] = ()


def guessed(
    frame: pl.DataFrame,
    dense: Sequence[str] | None,
    categorical: Sequence[str] | None,
    taken: Collection[str | None],
    written: Collection[str] = (),
) -> Columns:
    """`dense` and `categorical`, or where one is None, the columns of `frame` that are so and that nothing else has `taken`.

    `written`: those that are numbers, as people write them.
    """
    others = [c for c in frame.columns if c not in taken and c not in (dense or ()) and c not in (categorical or ())]
    kinds: dict[str, Kind] = {name: "measure" if name in written else kind_of(frame[name]) for name in others} if dense is None else {}
    counts = [name for name, kind in kinds.items() if kind == "count" and not _NAMES_ID.search(name)]
    measures = [name for name, kind in kinds.items() if kind == "measure" or name in counts] if dense is None else dense
    categories = [name for name in others if name not in measures] if categorical is None else categorical
    return Columns(tuple(measures), tuple(categories), tuple(counts))


def checked(columns: Columns) -> Columns:
    """`columns` with a category or more. UserError where there is none."""
    if columns.categorical:
        return columns
    remedy = f"name one or more: {pasted_list('data.categorical', columns.dense[:1])}" if columns.dense else "name one or more"
    raise UserError("categories are needed: they become the tables", where="data.categorical", given="none", remedy=remedy)


def kind_of(column: pl.Series) -> Kind:
    """Numbers with a fraction are measures. Whole ones are categories, as 3.0 may be an id beside a missing one, or counts."""
    if column.dtype == pl.String:
        words = column.str.strip_chars().replace("", None).drop_nulls()
        numbers = words.cast(pl.Float64, strict=False)
        if numbers.has_nulls():
            return "category"
    elif column.dtype.is_numeric():
        numbers = column.cast(pl.Float64)
    else:
        return "category"
    known = numbers.filter(numbers.is_not_nan())
    if (known != known.floor()).any():
        return "measure"
    if known.n_unique() < _LEAST_VALUES:
        return "category"
    reaches_far = abs(known.median()) <= _MOST_MEDIAN * known.max() and known.min() > -known.max()  # type: ignore[arg-type,operator]
    return "count" if reaches_far else "category"
