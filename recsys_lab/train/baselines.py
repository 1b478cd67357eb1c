"""Fits the baselines: scikit-learn's logistic regression on one-hot features, from a sample where the train split is large.

What the regression has learnt is a start for a model with a first-order part.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from recsys_lab.base.progress import Progress
from recsys_lab.data.protocol import DataSet, Feature, Split
from recsys_lab.models.first_order import FirstOrder
from recsys_lab.record.baselines import Baselines
from recsys_lab.record.metrics import quality
from recsys_lab.train.start import Start

#: Rows of the train split that the regression is fitted on, and of a split that it is judged on.
MOST_TRAIN_ROWS, MOST_JUDGED_ROWS = 60_000, 200_000
JUDGED = ("validation", "test")
#: Inverse strengths of regularisation that are tried, rising: the next fit begins where the last one ended.
STRENGTHS = (0.01, 0.03, 0.1, 0.3, 1.0)
MOST_ITERATIONS = 100
#: Standard error of the difference of two AUCs of nearly the same scores, times the root of how many rows have the rarer label.
MARGIN = 0.06
_CLIP = 20.0  # logits of a base rate of 0 or 1


#: Fits that this process keeps: jobs of a sweep ask for the same ones, seed by seed.
MOST_KEPT = 8
_KEPT: dict[tuple[Hashable, ...], Fitted] = {}


@dataclass(frozen=True)
class Fitted:
    """`figures`: of both baselines. `start`: from the regression; None where two features share a table, or bags are averaged."""

    figures: Baselines
    start: Start | None


def fitted(data: DataSet, seed: int) -> Fitted:
    """The base rate and the regression of `data`, judged on its held-out splits as a model is.

    They are fitted once in a process for the same data and the same rows: the seed draws these where a split is large.
    """
    sizes = {name: data.splits[name].rows for name in ("train", *JUDGED) if name in data.splits}
    draws = any(rows > (MOST_TRAIN_ROWS if name == "train" else MOST_JUDGED_ROWS) for name, rows in sizes.items())
    of = data.fingerprint, data.features, data.dense_features, *sizes.items(), seed if draws else None
    if of not in _KEPT:
        if len(_KEPT) == MOST_KEPT:
            del _KEPT[next(iter(_KEPT))]
        _KEPT[of] = _fit(data, seed)
    return _KEPT[of]


def _fit(data: DataSet, seed: int) -> Fitted:
    """One thread fits. Vectors are so short that a second one mostly waits: two took up to three times as long."""
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits

    train = data.splits["train"]
    encoder = _OneHot(len(data.features))
    inputs, labels = encoder.fitted(*_read(train, _drawn(train.rows, MOST_TRAIN_ROWS, seed)))
    judged = {
        name: encoder.applied(*_read(data.splits[name], _drawn(data.splits[name].rows, MOST_JUDGED_ROWS, seed)))
        for name in JUDGED
        if name in data.splits
    }
    rate = float(labels.mean())
    base_logit = float(np.clip(np.log(rate) - np.log1p(-rate), -_CLIP, _CLIP)) if 0 < rate < 1 else (2 * rate - 1) * _CLIP
    base = {name: quality(np.full(len(y), base_logit), y, name) for name, (_, y) in judged.items()}
    clicks = float(judged["validation"][1].mean()) * data.splits["validation"].rows
    margin = MARGIN / max(min(clicks, data.splits["validation"].rows - clicks), 1.0) ** 0.5
    if not 0 < rate < 1:
        nothing = FirstOrder({}, np.zeros(data.dense_features, np.float32), base_logit)
        return Fitted(Baselines(base, base, 0.0, len(labels), train.rows), Start(nothing, margin))
    model = LogisticRegression(solver="lbfgs", max_iter=MOST_ITERATIONS, warm_start=True)
    best: tuple[float, dict[str, Any], FirstOrder | None] | None = None
    with threadpool_limits(1), Progress(len(STRENGTHS), "logistic regression", "fits") as bar:
        for strength in STRENGTHS:
            model.set_params(C=strength)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that it could be fitted longer
                model.fit(inputs, labels)
            figures = {name: quality(model.decision_function(x), y, name) for name, (x, y) in judged.items()}
            if best is None or figures["validation"]["auc"] > best[1]["validation"]["auc"]:
                best = strength, figures, encoder.weights(data.features, model.coef_[0], float(model.intercept_[0]))
            bar.update()
    assert best is not None
    return Fitted(Baselines(base, best[1], best[0], len(labels), train.rows), None if best[2] is None else Start(best[2], margin))


def _drawn(rows: int, most: int, seed: int) -> np.ndarray:
    """int64, rising: the rows themselves, or `most` of them."""
    if rows <= most:
        return np.arange(rows, dtype=np.int64)
    return np.sort(np.random.default_rng(seed).choice(rows, most, replace=False)).astype(np.int64)


def _read(split: Split, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray | None, np.ndarray, np.ndarray]:
    """Labels [B], dense [B, K] or None, lengths [F, B], ids."""
    read = split.read(rows)
    return read.labels, read.dense, read.lengths, read.ids


class _OneHot:
    """A column for each value of each feature in the fitted sample, counted where a bag has it more than once.

    Dense values have mean 0 and variance 1. Values that the sample lacks have no column.
    """

    def __init__(self, features: int):
        self.features = features
        self.known: list[np.ndarray] = []
        self.mean = self.spread = np.zeros(0)

    def fitted(
        self, labels: np.ndarray, dense: np.ndarray | None, lengths: np.ndarray, ids: np.ndarray
    ) -> tuple[sparse.csr_matrix, np.ndarray]:
        ends = np.cumsum(lengths.sum(axis=1))
        self.known = [np.unique(part) for part in np.split(ids, ends[:-1])]
        if dense is not None:
            self.mean, self.spread = dense.mean(axis=0), dense.std(axis=0)
            self.spread[self.spread == 0] = 1.0
        return self.applied(labels, dense, lengths, ids)

    def weights(self, features: Sequence[Feature], coefficients: np.ndarray, bias: float) -> FirstOrder | None:
        """The regression with these `coefficients` [columns], as weights of a model's tables and of dense values as they are read."""
        if len({f.table_name for f in features}) < len(features) or any(f.pooling != "sum" for f in features):
            return None
        *own, of_dense = np.split(coefficients, np.cumsum([len(known) for known in self.known]))
        tables = {f.table_name: (known, part.astype(np.float32)) for f, known, part in zip(features, self.known, own)}
        dense = of_dense / self.spread if len(of_dense) else of_dense
        return FirstOrder(tables, dense.astype(np.float32), bias - float((dense * self.mean).sum()))

    def applied(
        self, labels: np.ndarray, dense: np.ndarray | None, lengths: np.ndarray, ids: np.ndarray
    ) -> tuple[sparse.csr_matrix, np.ndarray]:
        rows, ends = np.arange(len(labels)), np.cumsum(lengths.sum(axis=1))
        parts = []
        for own, values, known in zip(lengths, np.split(ids, ends[:-1]), self.known):
            if not len(known):
                continue
            columns = np.minimum(np.searchsorted(known, values), len(known) - 1)
            there = known[columns] == values
            where = np.repeat(rows, own)[there], columns[there]
            parts.append(sparse.csr_matrix((np.ones(len(where[0])), where), shape=(len(rows), len(known))))
        if dense is not None:
            parts.append(sparse.csr_matrix((dense - self.mean) / self.spread))
        return sparse.hstack(parts).tocsr(), labels
