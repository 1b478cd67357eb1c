"""What a column says of each row of a split, for judging a model by it: a column of the data's files, or a feature with one id a row."""

from __future__ import annotations

import numpy as np

from recsys_lab.data.protocol import DataSet, Values
from recsys_lab.errors import UserError, did_you_mean

_BLOCK_ROWS = 1 << 16


def check_column(data: DataSet, column: str, where: str) -> None:
    """Raises UserError where `data` have no such column. `where`: the key that names it."""
    own = data.columns.names if data.columns is not None else []
    names = list(dict.fromkeys([*own, *(feature.name for feature in data.features if feature.mean_length == 1)]))
    if column not in names:
        remedy = did_you_mean(column, names) or f"name another, or {where}=null"
        raise UserError("no such column to judge by", where=where, given=column, allowed=", ".join(names) or "none", remedy=remedy)


def values_of(data: DataSet, column: str, split: str) -> Values:
    """The values of `column` in `split`, row by row. Of a feature they are rows of its table. UserError where they cannot be read."""
    if data.columns is not None and column in data.columns.names:
        return data.columns.read(column, split)
    place, rows = [feature.name for feature in data.features].index(column), data.splits[split]
    codes = np.empty(rows.rows, np.int64)
    for first in range(0, rows.rows, _BLOCK_ROWS):
        block = rows.read(np.arange(first, min(first + _BLOCK_ROWS, rows.rows)))
        if (block.lengths[place] != 1).any():
            raise UserError("a feature with another number of values than one a row", where="evaluate", given=column, allowed="one value")
        start = int(block.lengths[:place].sum())
        codes[first : first + len(block.labels)] = block.ids[start : start + len(block.labels)]
    distinct, codes = np.unique(codes, return_inverse=True)
    return Values(codes, [f"row {row}" for row in distinct])
