"""Random ids, random dense values, random labels: for speed only, as there is nothing to learn."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property

import numpy as np

from recsys_lab.base.ranges import Count, DenseFeatures, Length, RowCount, RowCountFromZero, Seed
from recsys_lab.data.cache import digest
from recsys_lab.data.dataset import OpenDataSet
from recsys_lab.data.generated import Exponent, Shape, make_features, rounded_note
from recsys_lab.data.protocol import Feature, Rows, Split

CLICK_RATE = 0.25


@dataclass(frozen=True)
class RandomSplit:
    """Rows of one split."""

    shape: Shape
    name: str
    rows: int

    def read(self, rows: np.ndarray) -> Rows:
        labels = (self.shape.label_draws(self.name, rows) < CLICK_RATE).astype(np.float32)
        ids = self.shape.ids(self.shape.ranks(self.name, rows))
        return Rows(labels, self.shape.dense(self.name, rows), self.shape.id_lengths(len(rows)), ids)


@dataclass(frozen=True)
class RepeatedSplit:
    """`rows` rows, of which the first `distinct` come again and again. They are made once and kept: reading them costs a copy."""

    split: RandomSplit
    distinct: int

    @property
    def rows(self) -> int:
        return self.split.rows

    @cached_property
    def _kept(self) -> tuple[np.ndarray, np.ndarray | None, list[np.ndarray]]:
        """labels [P], dense [P, K] and each feature's ids [P, L] of the P distinct rows."""
        rows = self.split.read(np.arange(self.distinct, dtype=np.int64))
        ids = np.split(rows.ids, np.cumsum(rows.lengths.sum(1))[:-1])
        return rows.labels, rows.dense, [of_feature.reshape(self.distinct, -1) for of_feature in ids]

    def read(self, rows: np.ndarray) -> Rows:
        labels, dense, ids = self._kept
        at = rows % self.distinct
        lengths = self.split.shape.id_lengths(len(rows))
        values = np.empty(int(lengths.sum()), np.int64)
        for of_feature, out in zip(ids, np.split(values, np.cumsum(lengths.sum(1))[:-1])):
            _copy_rows(of_feature, at, out.reshape(len(rows), of_feature.shape[1]))
        dense = None if dense is None else _copy_rows(dense, at, np.empty((len(rows), dense.shape[1]), dense.dtype))
        return Rows(labels[at], dense, lengths, values)


def _copy_rows(table: np.ndarray, at: np.ndarray, out: np.ndarray) -> np.ndarray:
    """out = table[at]; rows one after the other, as they are in file order, in one piece: a third less time."""
    if len(at) and at[-1] - at[0] == len(at) - 1 and (np.diff(at) == 1).all():
        out[:] = table[at[0] : at[-1] + 1]
    else:
        table.take(at, axis=0, out=out, mode="clip")  # no row is out of range: nothing is checked twice
    return out


def open_random(
    wanted: tuple[Feature, ...] | None = None,
    *,
    rows_train: RowCount,
    rows_validation: RowCount,
    rows_test: RowCountFromZero,
    rows_per_table: list[RowCount],
    look_ups: list[Length] | None,
    dense_features: DenseFeatures,
    exponent: Exponent,
    seed_of_draws: Seed,
    distinct_rows: Count | None = None,
) -> OpenDataSet:
    """The features that are `wanted`, else one a table. `exponent` 0: uniform ids, above: a power law.

    `distinct_rows`: a split has so many different rows and repeats them; None: all are different.
    """
    sizes = {"train": rows_train, "validation": rows_validation, "test": rows_test}
    shape = Shape(make_features(wanted, rows_per_table, look_ups), dense_features, float(exponent), seed_of_draws)

    def split(name: str, rows: int) -> Split:
        drawn = RandomSplit(shape, name, rows)
        return drawn if distinct_rows is None or distinct_rows >= rows else RepeatedSplit(drawn, distinct_rows)

    repeated = [] if distinct_rows is None else [distinct_rows]
    return OpenDataSet(
        shape.features,
        dense_features,
        {name: split(name, rows) for name, rows in sizes.items() if rows},
        shape.access(),
        digest(["random", sizes, [asdict(f) for f in shape.features], dense_features, float(exponent), seed_of_draws, *repeated]),
        ("random labels: for speed only, quality means nothing", *rounded_note(shape.features)),
        learnable=False,
        hottest_by_law=shape.hottest,
    )
