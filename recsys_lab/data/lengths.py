"""How long the histories of a data set's samples are: measured on its train split, drawn or in the order in which they are stored."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from recsys_lab.data.cache import digest
from recsys_lab.data.dataset import OpenDataSet
from recsys_lab.data.protocol import Feature, SizedSplit, Split
from recsys_lab.errors import UserError
from recsys_lab.tables import AccessStatistics
from recsys_lab.tables.lengths import Lengths

#: Samples that are measured, evenly spread: where lengths are known, and where they are read, unless those have more ids than this.
SIZED, READ, IDS = 1 << 16, 4096, 1 << 22
#: Stretches of samples in a row, evenly spread, and samples of each.
STRETCHES, IN_ROW = 16, 8192


def lengths_of(split: Split, rows: np.ndarray) -> np.ndarray:
    """int64 [B]: of the rows with these numbers, the ids of the longest feature. They are read where the split does not know them."""
    return split.lengths(rows) if isinstance(split, SizedSplit) else split.read(rows).lengths.max(axis=0).astype(np.int64)


def with_history(dataset: OpenDataSet) -> OpenDataSet:
    """`dataset` with the lengths of its histories, measured where it does not have them. Itself where no feature is a sequence."""
    train = dataset.splits.get("train")
    if dataset.history is not None or train is None or not train.rows or all(f.pooling != "none" for f in dataset.features):
        return dataset
    most = SIZED if isinstance(train, SizedSplit) else _affordable(dataset, READ)
    rows = np.unique(np.linspace(0, train.rows - 1, min(train.rows, most)).astype(np.int64))
    return replace(dataset, history=Lengths.of(lengths_of(train, rows)))


def with_given_history(dataset: OpenDataSet, mean: float | None, spread: float | None, cap: float | None) -> OpenDataSet:
    """`dataset` as if its histories had this mean, standard deviation and longest: None: as they are. Look-ups follow in proportion.

    Raises UserError where samples have no histories, or there is no such distribution.
    """
    own = dataset.history
    if own is None:
        raise UserError("samples have no histories", where="simulate.history", remedy="data and a model of sequences")
    cap = (own.cap or own.values[-1]) if cap is None else cap
    history = Lengths.law(own.mean if mean is None else mean, own.spread if spread is None else spread, cap)
    longest = max(feature.mean_length for feature in dataset.features)

    def of(feature: Feature) -> Feature:
        is_history = feature.pooling == "none" and feature.mean_length == longest
        return replace(feature, mean_length=history.mean) if is_history else feature

    features, look_ups = tuple(map(of, dataset.features)), dict.fromkeys(dataset.access.tables, 0.0)
    for feature in features:
        look_ups[feature.table_name] += feature.mean_length
    access = {name: of_table.with_length(look_ups[name]) for name, of_table in dataset.access.tables.items()}
    return replace(
        dataset,
        features=features,
        access=AccessStatistics(access),
        history=history,
        fingerprint=digest([dataset.fingerprint, "history", history.mean, history.spread, cap]),
        notes=(*dataset.notes, f"simulated with histories of {history}"),
    )


def spreads_in_row(split: Split, read: int) -> dict[int, float]:
    """The standard deviation of the mean length of samples in a row, by how many. `read`: samples of a stretch whose lengths are read."""
    count = min(split.rows, IN_ROW if isinstance(split, SizedSplit) else read)
    starts = np.unique(np.linspace(0, split.rows - count, STRETCHES).astype(np.int64))
    in_row = np.stack([lengths_of(split, np.arange(start, start + count)) for start in starts]).astype(float)
    return {1 << power: _spread(in_row, 1 << power) for power in range(count.bit_length())}


def _spread(in_row: np.ndarray, size: int) -> float:
    """The standard deviation of the mean of so many samples in a row. `in_row` [stretches, samples]."""
    parts = in_row.shape[1] // size
    return float(in_row[:, : parts * size].reshape(-1, size).mean(axis=1).std())


def _affordable(dataset: OpenDataSet, samples: int) -> int:
    """So many samples, or fewer that have `IDS` ids."""
    return max(2, min(samples, int(IDS / max(sum(feature.mean_length for feature in dataset.features), 1))))
