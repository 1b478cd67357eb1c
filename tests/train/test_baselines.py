"""The baselines: exact on data whose truth is known, the same for the same seed, and drawn from a sample where data are large."""

from __future__ import annotations

import numpy as np
import pytest

from recsys_lab.data.dataset import OpenDataSet
from recsys_lab.data.protocol import Feature, Rows
from recsys_lab.record.baselines import lost_by
from recsys_lab.record.metrics import quality
from recsys_lab.tables import AccessStatistics
from recsys_lab.train import baselines as fitting
from recsys_lab.train.baselines import baselines


class Bags:
    """Bags of one to three ids of 40, and one number; clicks follow the weights of both."""

    def __init__(self, rows: int, seed: int, label: int | None = None):
        self.rows, draw = rows, np.random.default_rng(seed)
        self.lengths = draw.integers(1, 4, rows)
        self.ids = [draw.integers(0, 40, n) for n in self.lengths]
        self.dense = draw.normal(5.0, 2.0, rows)
        weights = np.random.default_rng(0).normal(0, 1.5, 40)
        self.truth = np.array([weights[i].sum() for i in self.ids]) + 0.5 * (self.dense - 5)
        self.labels = (draw.random(rows) < 1 / (1 + np.exp(-self.truth))).astype(np.float32)
        if label is not None:
            self.labels[:] = label

    def read(self, rows: np.ndarray) -> Rows:
        dense = self.dense[rows, None].astype(np.float32)
        return Rows(self.labels[rows], dense, self.lengths[rows][None].astype(np.int32), np.concatenate([self.ids[r] for r in rows]))


def data_set(train: Bags) -> OpenDataSet:
    splits = {"train": train, "validation": Bags(1000, 2), "test": Bags(1000, 3)}
    return OpenDataSet((Feature("item", 40, 2.0),), 1, splits, AccessStatistics({}), "x")


def test_the_regression_finds_a_planted_linear_truth_and_the_base_rate_knows_no_order() -> None:
    data = data_set(Bags(3000, 1))
    found = baselines(data, 1)
    for split in ("validation", "test"):
        best = quality(data.splits[split].truth, data.splits[split].labels, split)["auc"]
        assert best - 0.015 < found.logistic_regression[split]["auc"] <= best + 0.005
        assert found.base_rate[split]["auc"] == 0.5 and found.base_rate[split]["ne"] == pytest.approx(1, abs=0.01)
    assert baselines(data, 1) == found and (found.train_examples, found.of_train_examples) == (3000, 3000)


def test_large_data_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "MOST_TRAIN_ROWS", 500)
    monkeypatch.setattr(fitting, "MOST_JUDGED_ROWS", 300)
    found = baselines(data_set(Bags(2000, 1)), 1)
    assert (found.train_examples, found.of_train_examples) == (500, 2000)
    assert found.logistic_regression["test"]["examples"] == 300


def test_a_train_split_of_one_label_has_no_regression() -> None:
    found = baselines(data_set(Bags(50, 1, label=0)), 1)
    assert found.logistic_regression == found.base_rate and found.base_rate["test"]["auc"] == 0.5


def test_a_model_has_lost_where_its_auc_is_lower_by_more_than_a_little() -> None:
    figures = {"train": {"auc": 0.5}, "validation": {"auc": 0.74}, "test": {"auc": 0.71}}
    regression = {"validation": {"auc": 0.7415}, "test": {"auc": 0.72}}
    assert lost_by(figures, regression) == {"test": pytest.approx(0.01)}
