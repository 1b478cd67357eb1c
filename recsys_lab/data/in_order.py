"""How many different rows samples look up that follow one another, as they are stored: those of one user repeat its items."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from recsys_lab.data.dataset import OpenDataSet, table_names
from recsys_lab.data.lengths import history_in_order
from recsys_lab.tables import AccessStatistics

#: Stretches of the train split that are read, evenly spread, and samples of each, unless they have more ids.
STRETCHES, SAMPLES, IDS = 4, 8192, 1 << 22
#: Parts of a stretch that are counted.
PARTS = 64


def in_stored_order(dataset: OpenDataSet) -> OpenDataSet:
    """`dataset` with access statistics of samples in the order in which they are stored. Itself where it has none to train on."""
    if "train" not in dataset.splits:
        return dataset
    rows, look_ups = dataset.splits["train"].rows, sum(feature.mean_length for feature in dataset.features)
    samples = max(1, min(SAMPLES, rows, int(IDS / max(look_ups, 1))))
    starts = np.unique(np.linspace(0, rows - samples, STRETCHES).astype(np.int64))
    counts = np.mean([_distinct(dataset, int(start), samples) for start in starts], axis=0)  # [tables, sizes]
    sizes = _sizes(samples)
    measured = {
        name: dataset.access[name].in_order(dict(zip(sizes, of_table.tolist())))
        for name, of_table in zip(table_names(dataset.features), counts)
    }
    return replace(dataset, access=AccessStatistics(measured), history=history_in_order(dataset))


def _sizes(samples: int) -> list[int]:
    """Powers of two up to `samples`, which ends them."""
    return [*(1 << power for power in range((samples - 1).bit_length())), samples]


def _distinct(dataset: OpenDataSet, start: int, samples: int) -> np.ndarray:
    """[tables, sizes]: the different rows of a table that so many of the `samples` from `start` on look up, on average over its parts."""
    read = dataset.splits["train"].read(np.arange(start, start + samples, dtype=np.int64))
    of_tables: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {name: [] for name in table_names(dataset.features)}
    for feature, lengths, own in zip(dataset.features, read.lengths, read.ids_by_feature()):
        of_tables[feature.table_name].append((np.repeat(np.arange(samples), lengths), own))
    counts = []
    for parts in of_tables.values():
        sample, rows = (np.concatenate(columns) for columns in zip(*parts))
        counts.append([_of_parts(sample, rows, size, min(PARTS, samples // size)) for size in _sizes(samples)])
    return np.array(counts, float)


def _of_parts(sample: np.ndarray, rows: np.ndarray, size: int, parts: int) -> float:
    """The different `rows` [N] of the first `parts` times `size` samples, on average a part; `sample` [N] of each row."""
    within = sample < size * parts
    part, own = sample[within] // size, rows[within]
    return len(np.unique(part * (int(rows.max(initial=0)) + 1) + own)) / parts
