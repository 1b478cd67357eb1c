"""The data set that every opener here returns (see protocol.py), and a split that is part of another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from recsys_lab.data.protocol import Columns, Feature, HeldOutItems, HistoryCounts, Hottest, Rows, Split
from recsys_lab.errors import UserError
from recsys_lab.tables import AccessStatistics
from recsys_lab.tables.lengths import Lengths

if TYPE_CHECKING:
    from recsys_lab.data.in_order import InOrder


@dataclass(frozen=True)
class OpenDataSet:
    """A `DataSet` in plain fields.

    `row_counts`: exact look-ups per row of each table in the train split, where they were counted, in the order of `table_names`.
    `hottest_by_law`: where they follow from a formula instead, the rows of a table from the most frequent one on.
    `held_out`: by split, the items that models are to find.
    `groups`: features that interact, where such groups were planted.
    `labelled`: whether labels are known; else they are zero. `keep`: writes into a folder what reads later rows as these.
    `item_names`: of the held-out items, from item 1 on, as the data write them.
    `columns`: those of its files, by which a model can be judged. `unknown_values`: by column, rows of a new file whose value has no row of
    its own. `own_rows`: a fingerprint of which value has which row, where that follows from the train file alone; else empty.
    `history`: how long those of train are; None: there are no sequences, or only their mean is known.
    `in_order`: what samples in a row have in common, of data that cannot be read; None: they are read.
    `history_counts`: of a log.
    `chooses_settings`: settings that the config leaves open are chosen by the rows (config/default_hyperparameters.py).
    """

    features: tuple[Feature, ...]
    dense_features: int
    splits: Mapping[str, Split]
    access: AccessStatistics
    fingerprint: str
    notes: tuple[str, ...] = ()
    best_auc: Mapping[str, float] = field(default_factory=dict)
    learnable: bool = True
    row_counts: Callable[[], list[np.ndarray]] | None = None
    hottest_by_law: Hottest | None = None
    held_out: Mapping[str, HeldOutItems] = field(default_factory=dict)
    groups: tuple[tuple[str, ...], ...] = ()
    chooses_settings: bool = False
    labelled: bool = True
    keep: Callable[[Path], None] | None = None
    item_names: Callable[[], Sequence[str]] | None = None
    columns: Columns | None = None
    unknown_values: Mapping[str, int] = field(default_factory=dict)
    own_rows: str = ""
    history: Lengths | None = None
    in_order: Callable[[], InOrder] | None = None
    history_counts: HistoryCounts | None = None

    def hottest(self, table: str, rows: int) -> np.ndarray:
        """The `rows` most frequent rows of `table`, int64, in falling frequency. Of equally frequent ones the lower id first."""
        if self.row_counts is not None:
            return most_frequent(self.row_counts()[table_names(self.features).index(table)], rows)
        if self.hottest_by_law is not None:
            return self.hottest_by_law(table, rows)
        raise UserError("the rows of this data set were not counted", where="data", remedy="choose a sharder that places whole tables")


@dataclass(frozen=True)
class PartOfSplit:
    """Rows [first, first + rows) of another split."""

    whole: Split
    first: int
    rows: int

    def read(self, rows: np.ndarray) -> Rows:
        return self.whole.read(rows + self.first)


def table_names(features: Iterable[Feature]) -> list[str]:
    """The tables that `features` read, each once, in the order in which they first appear."""
    return list(dict.fromkeys(feature.table_name for feature in features))


def most_frequent(counts: np.ndarray, rows: int) -> np.ndarray:
    """int64 [rows]: indices of the greatest `counts`, falling. Of equal ones the lower index first."""
    return np.argsort(-counts, kind="stable")[:rows]


def one_hot_rows(labels: np.ndarray, dense: np.ndarray | None, ids: np.ndarray) -> Rows:
    """`Rows` from `ids` [B, F] with one id a feature."""
    count, features = ids.shape
    return Rows(labels, dense, np.ones((features, count), np.int32), ids.T.astype(np.int64, order="C").ravel())


def refuse_empty(split: str, rows: int, where: object) -> None:
    """UserError when a split has no rows."""
    if rows == 0:
        raise UserError(f"the {split} split is empty", where=where, given="0 rows", allowed="1 row or more", remedy="check the file")
