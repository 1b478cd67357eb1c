"""What the numbers of exported tables cost in quality: clicks of the test split scored with both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from recsys_lab.data.protocol import DataSet
from recsys_lab.errors import UserError
from recsys_lab.export.program import DenseArch
from recsys_lab.export.tables import decoded, encoded, rows_of
from recsys_lab.export.trained_run import TrainedRun
from recsys_lab.record.metrics import quality
from recsys_lab.tables import Table

#: Of the test split, so many rows at most: their rows of the tables are held in memory.
MOST_ROWS = 1 << 20
_BATCH = 4096


@dataclass(frozen=True)
class Change:
    """AUC of clicks before and after, over so many `examples`. `why_not`: why it was not measured."""

    before: float | None = None
    after: float | None = None
    examples: int = 0
    why_not: str = ""


def auc_change(run: TrainedRun, dense_arch: DenseArch, read: Mapping[str, Table], format: str) -> Change:
    """Measured where the run's data are there as it was trained on them, and it predicts clicks."""
    if dense_arch.model.objective != "click" or any(table.pooling == "none" for table in read.values()):
        return Change(why_not="the model ranks items or reads sequences")
    try:
        data = run.experiment.open_data(max(table.rows for table in run.plan.tables))
    except UserError as error:
        return Change(why_not=f"the data cannot be read: {error}")
    known = run.record.environment.get("data") or {}
    if known.get("fingerprint") not in (None, data.fingerprint):
        return Change(why_not="the data are others than when it was trained")
    if "test" not in data.splits or not data.learnable or not data.labelled:
        return Change(why_not="there is no test split with labels")
    return _measured(run, dense_arch, read, format, data)


def _measured(run: TrainedRun, dense_arch: DenseArch, read: Mapping[str, Table], format: str, data: DataSet) -> Change:
    split, names = data.splits["test"], [feature.name for feature in data.features]
    rows = min(split.rows, MOST_ROWS)
    batches = [split.read(np.arange(first, min(first + _BATCH, rows))) for first in range(0, rows, _BATCH)]
    ids: dict[str, list[np.ndarray]] = {table.name: [] for table in read.values()}
    for batch in batches:
        for name, own in zip(names, batch.ids_by_feature()):
            ids[read[name].name].append(np.unique(own))
    own_rows = {name: np.unique(np.concatenate(own)) for name, own in ids.items()}
    tables = {table.name: table for table in read.values()}
    exact = {name: rows_of(tables[name], own, run.reader) for name, own in own_rows.items()}
    written = {name: decoded(encoded(weights, format)) for name, weights in exact.items()}
    labels = np.concatenate([batch.labels for batch in batches])

    def auc(weights: Mapping[str, torch.Tensor]) -> float:
        lookup: Callable[[str, np.ndarray], torch.Tensor] = lambda name, i: weights[name][np.searchsorted(own_rows[name], i)]  # noqa: E731
        logits = np.concatenate([_logits(dense_arch, read, names, batch, lookup) for batch in batches])
        return float(quality(logits, labels, "test")["auc"])

    try:
        return Change(auc(exact), auc(written), rows)
    except UserError as error:  # one class alone
        return Change(why_not=str(error))


@torch.no_grad()
def _logits(
    dense_arch: DenseArch, read: Mapping[str, Table], names: list[str], batch: Any, lookup: Callable[[str, np.ndarray], torch.Tensor]
) -> np.ndarray:
    dense = None if batch.dense is None else torch.from_numpy(np.ascontiguousarray(batch.dense))
    vectors = {}
    for position, (name, own) in enumerate(zip(names, batch.ids_by_feature())):
        table, counts = read[name], torch.from_numpy(batch.lengths[position].astype(np.int64))
        bags = torch.repeat_interleave(torch.arange(len(counts)), counts)
        pooled = torch.zeros(len(counts), table.dim).index_add(0, bags, lookup(table.name, own))
        vectors[name] = pooled / counts.clamp(min=1)[:, None] if table.pooling == "mean" else pooled
    return dense_arch(dense, {name: vectors[name] for name in read}, {}).numpy()
