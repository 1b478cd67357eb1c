"""The same data for tables that are cut by columns into tables of their own: each slice has a feature, with the ids of the whole.

Towers are of features. So slices of one table may be in several towers (DMT, Luo et al. 2024, footnote 1).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from recsys_lab.data.cache import digest
from recsys_lab.data.dataset import OpenDataSet
from recsys_lab.data.protocol import Feature, Rows, Split
from recsys_lab.tables import AccessStatistics


@dataclass(frozen=True)
class SlicedSplit:
    """A split in which each feature comes `slices` times, one after the other."""

    whole: Split
    slices: int

    @property
    def rows(self) -> int:
        return self.whole.rows

    def read(self, rows: np.ndarray) -> Rows:
        read = self.whole.read(rows)
        ids = np.concatenate([ids for ids in read.ids_by_feature() for _ in range(self.slices)])
        return replace(read, lengths=np.repeat(read.lengths, self.slices, axis=0), ids=ids)


def sliced(dataset: OpenDataSet, slices: int) -> OpenDataSet:
    """`dataset` with `slices` features, and as many tables, in place of each. Itself where there is one. A slice is called NAME:NUMBER."""
    if slices == 1:
        return dataset
    numbers, counts = range(slices), dataset.row_counts

    def own_name(name: str, number: int) -> str:
        return f"{name}:{number}"

    def slice_of(feature: Feature, number: int) -> Feature:
        table = None if feature.table is None else own_name(feature.table, number)
        return replace(feature, name=own_name(feature.name, number), table=table)

    whole = dataset.access.tables
    return replace(
        dataset,
        features=tuple(slice_of(feature, number) for feature in dataset.features for number in numbers),
        splits={name: SlicedSplit(split, slices) for name, split in dataset.splits.items()},
        access=AccessStatistics({own_name(t, n): replace(access, table=own_name(t, n)) for t, access in whole.items() for n in numbers}),
        fingerprint=digest([dataset.fingerprint, "sliced", slices]),
        notes=(*dataset.notes, f"each table is cut by columns into {slices}, which are features of their own"),
        row_counts=None if counts is None else (lambda: [count for count in counts() for _ in numbers]),
        hottest_by_law=lambda table, rows: dataset.hottest(table.rpartition(":")[0], rows),
        groups=tuple(tuple(own_name(name, number) for name in group for number in numbers) for group in dataset.groups),
    )
