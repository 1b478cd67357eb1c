"""The data set that every opener here returns (see the protocols in batch.py), and a split that is part of another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from recsys_lab.data.batch import Feature, Rows, Split
from recsys_lab.errors import UserError
from recsys_lab.tables import AccessStatistics


@dataclass(frozen=True)
class OpenDataSet:
    """A `DataSet` in plain fields. `row_counts`: exact look-ups per row of each feature in the train split, where they were counted."""

    features: tuple[Feature, ...]
    dense_features: int
    splits: Mapping[str, Split]
    access: AccessStatistics
    fingerprint: str
    notes: tuple[str, ...] = ()
    best_auc: Mapping[str, float] = field(default_factory=dict)
    learnable: bool = True
    row_counts: Callable[[], list[np.ndarray]] | None = None


@dataclass(frozen=True)
class PartOfSplit:
    """Rows [first, first + rows) of another split."""

    whole: Split
    first: int
    rows: int

    def read(self, rows: np.ndarray) -> Rows:
        return self.whole.read(rows + self.first)


def one_hot_rows(labels: np.ndarray, dense: np.ndarray | None, ids: np.ndarray) -> Rows:
    """`Rows` from `ids` [B, F] with one id a feature."""
    count, features = ids.shape
    return Rows(labels, dense, np.ones((features, count), np.int32), ids.T.astype(np.int64, order="C").ravel())


def refuse_empty(split: str, rows: int, where: object) -> None:
    """UserError when a split has no rows."""
    if rows == 0:
        raise UserError(f"the {split} split is empty", where=where, given="0 rows", allowed="1 row or more", remedy="check the file")
