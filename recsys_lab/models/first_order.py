"""Weights of a first-order model (logistic regression), from which a model with a first-order part can begin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class FirstOrder:
    """The logit of a sample is `bias`, plus its ids' weights, plus its dense values times `dense`.

    Attributes:
        tables: by table the rows with a weight, int64 [n], rising, and their weights, float32 [n]. Other rows have 0.
        dense: float32 [K].
        bias: of the logit.
    """

    tables: Mapping[str, tuple[np.ndarray, np.ndarray]]
    dense: np.ndarray
    bias: float

    def of_rows(self, table: str, rows: np.ndarray) -> np.ndarray:
        """float32 [n]: the weights of these `rows` (int64 [n], in any order) of `table`."""
        known, weights = self.tables.get(table, (np.empty(0, np.int64), np.empty(0, np.float32)))
        if not len(known):
            return np.zeros(len(rows), np.float32)
        place = np.minimum(np.searchsorted(known, rows), len(known) - 1)
        return np.where(known[place] == rows, weights[place], np.float32(0))
