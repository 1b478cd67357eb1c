"""What samples have in common that follow one another, as they are stored: those of one user repeat its items, and are as long."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from recsys_lab.data.dataset import OpenDataSet, table_names
from recsys_lab.data.lengths import spreads_in_row
from recsys_lab.data.protocol import Feature, Split
from recsys_lab.tables import AccessStatistics

#: Stretches of the train split that are read, evenly spread, and samples of each, unless they have more ids.
STRETCHES, SAMPLES, IDS = 4, 8192, 1 << 22
#: Parts of a stretch that are counted.
PARTS = 64


@dataclass(frozen=True)
class InOrder:
    """By number of samples in a row: `distinct` rows that they look up, of each table, and the standard deviation of their mean length.

    `note`: what the user should know of it.
    """

    distinct: Mapping[str, Mapping[int, float]]
    spreads: Mapping[int, float]
    note: str = ""


def in_stored_order(dataset: OpenDataSet) -> OpenDataSet:
    """`dataset` with statistics of samples in the order in which they are stored. Itself where it has none to train on."""
    if "train" not in dataset.splits:
        return dataset
    known = measured(dataset.splits["train"], dataset.features) if dataset.in_order is None else dataset.in_order()
    access = {name: dataset.access[name].in_order(distinct) for name, distinct in known.distinct.items()}
    history = dataset.history and dataset.history.in_order(known.spreads)
    notes = (*dataset.notes, known.note) if known.note else dataset.notes
    return replace(dataset, access=AccessStatistics(access), history=history, notes=notes)


def measured(split: Split, features: Sequence[Feature], most: int = SAMPLES, ids: int = IDS) -> InOrder:
    """Of a split's samples: stretches of at most `most` samples and about `ids` ids are read."""
    look_ups = sum(feature.mean_length for feature in features)
    samples = max(1, min(most, split.rows, int(ids / max(look_ups, 1))))
    starts = np.unique(np.linspace(0, split.rows - samples, STRETCHES).astype(np.int64))
    counts = np.mean([_distinct(split, features, int(start), samples) for start in starts], axis=0)  # [tables, sizes]
    sizes = _sizes(samples)
    distinct = {name: dict(zip(sizes, of_table.tolist())) for name, of_table in zip(table_names(features), counts)}
    has_histories = any(feature.pooling == "none" for feature in features)
    return InOrder(distinct, spreads_in_row(split, samples) if has_histories else {})


def _sizes(samples: int) -> list[int]:
    """Powers of two up to `samples`, which ends them."""
    return [*(1 << power for power in range((samples - 1).bit_length())), samples]


def _distinct(split: Split, features: Sequence[Feature], start: int, samples: int) -> np.ndarray:
    """[tables, sizes]: the different rows of a table that so many of the `samples` from `start` on look up, on average over its parts."""
    read = split.read(np.arange(start, start + samples, dtype=np.int64))
    of_tables: dict[str, list[np.ndarray]] = {name: [] for name in table_names(features)}
    for feature, lengths, own in zip(features, read.lengths, read.ids_by_feature()):
        of_tables[feature.table_name].append(own * samples + np.repeat(np.arange(samples), lengths))
    counts = []
    for parts in of_tables.values():
        rows, sample = np.divmod(np.sort(np.concatenate(parts)), samples)
        counts.append([_of_parts(sample, rows, size, min(PARTS, samples // size)) for size in _sizes(samples)])
    return np.array(counts, float)


def _of_parts(sample: np.ndarray, rows: np.ndarray, size: int, parts: int) -> float:
    """The different rows of the first `parts` times `size` samples, on average a part. `rows` [N] rise, and `sample` [N] within each."""
    within = sample < size * parts
    part, own = sample[within] // size, rows[within]
    return float(np.count_nonzero(np.diff(own) | np.diff(part)) + bool(len(own))) / parts
