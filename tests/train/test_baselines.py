"""The baselines: exact on data whose truth is known, the same for the same seed, and drawn from a sample where data are large."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from recsys_lab.data.dataset import OpenDataSet
from recsys_lab.data.protocol import Feature, Rows
from recsys_lab.models.first_order import FirstOrder
from recsys_lab.record.baselines import is_baseline, lost_by
from recsys_lab.record.metrics import quality
from recsys_lab.tables import AccessStatistics
from recsys_lab.train import baselines as fitting
from recsys_lab.train.baselines import fitted


class Bags:
    """Bags of one to three ids of 40, and one number; clicks follow the weights of both."""

    def __init__(self, rows: int, seed: int, label: int | None = None):
        self.rows, draw = rows, np.random.default_rng(seed)
        self.name = f"{rows} rows of seed {seed}, label {label}"
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


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "_KEPT", {})


def data_set(train: Bags) -> OpenDataSet:
    splits = {"train": train, "validation": Bags(1000, 2), "test": Bags(1000, 3)}
    return OpenDataSet((Feature("item", 40, 2.0),), 1, splits, AccessStatistics({}), train.name)


def test_the_regression_finds_a_planted_linear_truth_and_the_base_rate_knows_no_order() -> None:
    data = data_set(Bags(3000, 1))
    baseline = fitted(data, 1).figures
    for split in ("validation", "test"):
        best = quality(data.splits[split].truth, data.splits[split].labels, split)["auc"]
        assert best - 0.015 < baseline.logistic_regression[split]["auc"] <= best + 0.005
        assert baseline.base_rate[split]["auc"] == 0.5 and baseline.base_rate[split]["ne"] == pytest.approx(1, abs=0.01)
    assert fitted(data, 1).figures == baseline and (baseline.train_examples, baseline.of_train_examples) == (3000, 3000)


def test_one_thread_fits_whatever_the_process_may_use_and_a_log_says_how_far(monkeypatch, capsys) -> None:
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_info, threadpool_limits

    threads, inner = set(), LogisticRegression.fit
    monkeypatch.setattr(
        LogisticRegression, "fit", lambda *a: threads.update(pool["num_threads"] for pool in threadpool_info()) or inner(*a)
    )
    monkeypatch.setattr("recsys_lab.base.progress.EVERY_S", 0.0)
    with threadpool_limits(2):
        fitted(data_set(Bags(300, 1)), 1)
    assert threads == {1}
    assert capsys.readouterr().err.splitlines() == [
        f"logistic regression: {done} of 5 fits ({done / 5:.0%}) after 0 s" for done in range(1, 6)
    ]


def test_large_data_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "MOST_TRAIN_ROWS", 500)
    monkeypatch.setattr(fitting, "MOST_JUDGED_ROWS", 300)
    baseline = fitted(data_set(Bags(2000, 1)), 1).figures
    assert (baseline.train_examples, baseline.of_train_examples) == (500, 2000)
    assert baseline.logistic_regression["test"]["examples"] == 300


def test_the_same_rows_are_fitted_once_to_the_bits_of_another_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "MOST_TRAIN_ROWS", 500)
    small, large = data_set(Bags(400, 1)), data_set(Bags(2000, 1))
    first = fitted(large, 1)
    monkeypatch.setattr(fitting, "_KEPT", {})
    again = fitted(large, 1)
    assert again is not first and again.figures == first.figures
    assert again.start is not None and first.start is not None
    of_item = [one.weights.tables["item"] for one in (again.start, first.start)]
    assert all(a.tobytes() == b.tobytes() for a, b in zip(*of_item))
    fits: list[int] = []
    monkeypatch.setattr(fitting, "_fit", lambda data, seed: fits.append(seed))
    assert fitted(large, 1) is again and not fits
    fitted(large, 2)  # other rows are drawn
    fitted(data_set(Bags(2000, 5)), 3)
    for seed in (4, 5):
        fitted(small, seed)  # all rows, whatever the seed
    assert fits == [2, 3, 4]


def test_only_the_last_fits_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "MOST_KEPT", 2)
    monkeypatch.setattr(fitting, "_fit", lambda data, seed: data.fingerprint)
    for rows in (30, 31, 32):
        fitted(data_set(Bags(rows, 1)), 1)
    assert [of[0] for of in fitting._KEPT] == [Bags(31, 1).name, Bags(32, 1).name]


def test_a_train_split_of_one_label_has_no_regression() -> None:
    both = fitted(data_set(Bags(50, 1, label=0)), 1)
    baseline, start = both.figures, both.start
    assert start is not None and start.weights.tables == {} and start.weights.bias < -10
    assert baseline.logistic_regression == baseline.base_rate and baseline.base_rate["test"]["auc"] == 0.5


def logits(start: FirstOrder, split: Bags) -> np.ndarray:
    """What `start` gives each row of the split."""
    of_ids = np.array([start.of_rows("item", ids).sum() for ids in split.ids])
    return start.bias + of_ids + split.dense * start.dense[0]


def test_a_model_can_begin_with_what_the_regression_has_learnt() -> None:
    data = data_set(Bags(3000, 1))
    baseline = fitted(data, 1)
    assert baseline.start is not None and 0.06 / 500**0.5 <= baseline.start.margin < 0.003
    for split, figures in baseline.figures.logistic_regression.items():
        again = quality(logits(baseline.start.weights, data.splits[split]), data.splits[split].labels, split)
        assert again["auc"] == pytest.approx(figures["auc"], abs=1e-6) and again["log_loss"] == pytest.approx(figures["log_loss"], abs=1e-6)


def test_rows_that_the_sample_lacks_have_no_weight() -> None:
    start = FirstOrder({"item": (np.array([2, 5]), np.array([0.5, -1.0], np.float32))}, np.zeros(0, np.float32), 0.0)
    assert start.of_rows("item", np.array([5, 0, 2, 9])).tolist() == [-1.0, 0.0, 0.5, 0.0]
    assert start.of_rows("other", np.arange(2)).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("feature", [Feature("item", 40, 2.0, pooling="mean"), Feature("item", 40, 2.0, table="shared")])
def test_a_table_that_reads_otherwise_has_no_start(feature: Feature) -> None:
    features = (feature, replace(feature, name="second")) if feature.table else (feature,)
    encoder = fitting._OneHot(len(features))
    encoder.known = [np.arange(2)] * len(features)
    assert encoder.weights(features, np.zeros(2 * len(features)), 0.0) is None


def test_a_model_has_lost_where_its_auc_is_lower_by_more_than_a_little() -> None:
    figures = {"train": {"auc": 0.5}, "validation": {"auc": 0.74}, "test": {"auc": 0.71}}
    regression = {"validation": {"auc": 0.7415}, "test": {"auc": 0.72}}
    assert lost_by(figures, regression) == {"test": pytest.approx(0.01)}


def test_a_model_that_ends_with_the_weights_of_its_start_is_the_regression() -> None:
    regression = {
        "validation": {"auc": 0.74, "log_loss": 0.45315, "examples": 800},
        "test": {"auc": 0.71, "log_loss": 0.4617, "examples": 800},
    }
    rounded = {"train": {"log_loss": 0.4}, "validation": {"auc": 0.74001, "log_loss": 0.4531500021, "examples": 800}}
    assert is_baseline(rounded, regression) and is_baseline(rounded | {"test": regression["test"]}, regression)
    assert not is_baseline(rounded | {"test": regression["test"] | {"log_loss": 0.46169}}, regression)
    assert not is_baseline({"validation": regression["validation"] | {"examples": 90_000}}, regression)  # the regression saw a sample
    assert not is_baseline({"train": {"log_loss": 0.4}}, regression)
