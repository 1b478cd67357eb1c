"""The same data for a loss over every item: the rows of a rank's batch look the whole item table up, once.

So a full softmax needs nothing of its own where tables are sharded: the table's rows travel as any look-up does, and the steps count them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from recsys_lab.data.cache import digest
from recsys_lab.data.dataset import OpenDataSet, table_names
from recsys_lab.data.lengths import lengths_of
from recsys_lab.data.protocol import Rows, Split
from recsys_lab.tables import AccessStatistics, measured_access

FEATURE = "negative"


@dataclass(frozen=True)
class WithCatalogue:
    """A split whose feature number `feature`, empty in `whole`, has items 1 to `items` in the first row of every read."""

    whole: Split
    feature: int
    items: int

    @property
    def rows(self) -> int:
        return self.whole.rows

    def lengths(self, rows: np.ndarray) -> np.ndarray:
        """Of histories: the catalogue is none."""
        return lengths_of(self.whole, rows)

    def read(self, rows: np.ndarray) -> Rows:
        read = self.whole.read(rows)
        if not len(rows):
            return read
        lengths, ids = read.lengths.copy(), read.ids_by_feature()
        assert not len(ids[self.feature]), "the loss over every item has no other negatives"
        lengths[self.feature, 0], ids[self.feature] = self.items, np.arange(1, self.items + 1)
        return replace(read, lengths=lengths, ids=np.concatenate(ids))


def with_catalogue(dataset: OpenDataSet, rows_of_rank: int) -> OpenDataSet:
    """`dataset`, of which a rank reads `rows_of_rank` samples at once, with every item among them. Other splits stay as they are."""
    number = [feature.name for feature in dataset.features].index(FEATURE)
    feature, counts = dataset.features[number], dataset.row_counts
    items, each = feature.rows - 1, (feature.rows - 1) / rows_of_rank
    features = tuple(replace(one, mean_length=each) if one is feature else one for one in dataset.features)
    samples = dataset.splits["train"].rows
    at = table_names(features).index(feature.table_name)

    def row_counts() -> list[np.ndarray]:
        """Each item once more in as many samples as a rank reads at once."""
        assert counts is not None
        own = counts()
        more = np.full(feature.rows, max(1, round(samples / rows_of_rank)), np.int64)
        more[0] = 0
        return [count + more if index == at else count for index, count in enumerate(own)]

    access = dict(dataset.access.tables)
    if counts is not None:
        before = access[feature.table_name]
        access[feature.table_name] = measured_access(before.table, row_counts()[at], samples, f"{before.detail}, and every item a batch")
    return replace(
        dataset,
        features=features,
        splits=dict(dataset.splits) | {"train": WithCatalogue(dataset.splits["train"], number, items)},
        access=AccessStatistics(access),
        row_counts=None if counts is None else row_counts,
        fingerprint=digest([dataset.fingerprint, "catalogue", rows_of_rank]),
    )
