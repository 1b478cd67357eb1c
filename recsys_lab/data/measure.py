"""Access statistics of any data set: its train split read once, from the first row to the last."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from recsys_lab.data.dataset import table_names
from recsys_lab.data.protocol import DataSet, Feature, Split
from recsys_lab.errors import UserError, cannot_write
from recsys_lab.tables import AccessStatistics, measured_access

_BLOCK_ROWS = 1 << 16


def measure_row_counts(dataset: DataSet, rows: int | None = None) -> list[np.ndarray]:
    """For each table int64 [rows of the table]: how often the first `rows` samples (None: all) of train look each row up."""
    split = dataset.splits["train"]
    samples = split.rows if rows is None else min(rows, split.rows)
    starts = range(0, samples, _BLOCK_ROWS)
    return counted(split, dataset.features, (np.arange(first, min(first + _BLOCK_ROWS, samples), dtype=np.int64) for first in starts))


def counted(split: Split, features: Sequence[Feature], blocks: Iterable[np.ndarray]) -> list[np.ndarray]:
    """For each table int64 [rows of the table]: how often the samples of `blocks` look each row up; one block is in memory at a time."""
    counts = {f.table_name: np.zeros(f.rows, np.int64) for f in features}
    for block in blocks:
        for feature, ids in zip(features, split.read(block).ids_by_feature()):
            unique_ids, seen = np.unique(ids, return_counts=True)
            counts[feature.table_name][unique_ids] += seen
    return list(counts.values())


def measure_access(dataset: DataSet, rows: int | None = None) -> AccessStatistics:
    """Statistics of the first `rows` samples (None: all) of the train split."""
    samples = dataset.splits["train"].rows if rows is None else min(rows, dataset.splits["train"].rows)
    detail = f"{samples:,} samples of train"
    counts = measure_row_counts(dataset, rows)
    return AccessStatistics({t: measured_access(t, c, samples, detail) for t, c in zip(table_names(dataset.features), counts)})


def save_access(access: AccessStatistics, path: Path) -> None:
    """As JSON. UserError where `path` cannot be written."""
    try:
        path.write_text(json.dumps(access.to_json(), indent=1))
    except OSError as error:
        raise cannot_write(error, path) from None


def load_access(path: Path) -> AccessStatistics:
    """What `save_access` wrote. UserError where that is not what `path` holds."""
    try:
        return AccessStatistics.from_json(json.loads(path.read_text()))
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=path) from None
    except (ValueError, TypeError, KeyError):
        raise UserError("these are no access statistics", where=path, remedy="measure them again") from None
