"""Reads row-wise Adagrad's state of column shards under a plan that joins some of them (column_cuts.py)."""

from __future__ import annotations

import re

import torch

from recsys_lab.executor.some_rows import SomeRows
from recsys_lab.train.checkpoint import Piece, Reader

_KEY = re.compile(r"(?P<state>table\..+?)(?:\.columns_(?P<start>\d+)_(?P<stop>\d+))?")
#: Rows that are read at a time.
_ROWS = 1 << 20


def fill_merged(reader: Reader, piece: Piece, dim: int) -> None:
    """Fills `piece`, state of a shard of a table of `dim` columns, with the mean of those shards that it consists of.

    Raises UserError where they were not saved.
    """
    match = _KEY.fullmatch(piece.key)
    assert match is not None, piece.key
    start, stop = int(match["start"] or 0), int(match["stop"] or dim)
    parts = sorted((columns, key) for key in reader.keys() if (columns := _columns_of(key, match["state"])) and start <= columns[0] < stop)
    if not parts or [a for (a, _), _ in parts] != [start, *(b for (_, b), _ in parts[:-1])] or parts[-1][0][1] != stop:
        reader.fill(piece)  # says what is missing
        return
    count = piece.tensor.shape[0]
    for first in range(0, count, _ROWS):
        last = min(count, first + _ROWS)
        mean, part = torch.zeros(last - first, dtype=torch.float64), torch.zeros(last - first)
        for (begin, end), key in parts:
            reader.fill(Piece(key, (piece.offset[0] + first,), part, None if piece.rows is None else piece.rows[first:last]))
            mean += part.double() * (end - begin)
        values, rows = (mean / (stop - start)).float(), slice(first, last)
        if isinstance(piece.tensor, torch.Tensor):
            piece.tensor[rows] = values.to(piece.tensor)
        else:
            assert not isinstance(piece.tensor, SomeRows)  # of what is saved alone
            piece.tensor.write(values, (rows,))


def _columns_of(key: str, state: str) -> tuple[int, int] | None:
    match = _KEY.fullmatch(key)
    return (int(match["start"]), int(match["stop"])) if match and match["start"] and match["state"] == state else None
