"""Quality in parts against scikit-learn and against loops, whatever the order of the rows."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import log_loss, roc_auc_score

from recsys_lab.record import breakdown
from recsys_lab.record.breakdown import bins_of, by_values, grouped_auc
from recsys_lab.record.metrics import quality, quality_of_part


def drawn(rows: int, groups: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logits with many ties, labels that follow them, and groups of very different sizes."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(-1, 1.5, rows).round(1)
    labels = (rng.random(rows) < 1 / (1 + np.exp(-logits))).astype(np.float32)
    return logits, labels, np.minimum(rng.zipf(1.3, rows) - 1, groups - 1)


def test_gauc_is_scikit_learns_auc_of_each_group_weighted_by_its_examples() -> None:
    z, y, groups = drawn(6000, 300)
    weights, aucs, one_class = [], [], []
    for group in np.unique(groups):
        rows = groups == group
        if len(np.unique(y[rows])) == 1:
            one_class.append(int(rows.sum()))
            continue
        weights.append(int(rows.sum()))
        aucs.append(roc_auc_score(y[rows], z[rows]))
    actual = grouped_auc(z, y, groups, "user")
    assert actual.gauc == pytest.approx(np.average(aucs, weights=weights), abs=1e-14)
    assert (actual.groups, actual.examples) == (len(weights), sum(weights)) and one_class
    assert (actual.one_class_groups, actual.one_class_examples) == (len(one_class), sum(one_class))


def test_gauc_of_one_group_is_the_auc_and_of_groups_with_one_class_there_is_none() -> None:
    z, y, _ = drawn(500, 3)
    assert grouped_auc(z, y, np.zeros(500, np.int64), "user").gauc == quality(z, y)["auc"]
    none = grouped_auc(z, y, np.arange(500), "user")
    assert none.gauc is None and (none.groups, none.one_class_groups, none.one_class_examples) == (0, 500, 500)


def test_quality_by_value_is_that_of_its_rows_and_rare_values_stand_together() -> None:
    z, y, codes = drawn(4000, 40)
    names = [f"v{code}" for code in range(45)]  # five of which no row has
    actual = by_values(z, y, codes, names, min_rows=100)
    counts = np.bincount(codes, minlength=45)
    assert [one.value for one in actual.values] == [names[c] for c in np.argsort(-counts, kind="stable") if counts[c] >= 100]
    for one in actual.values:
        rows = codes == int(one.value[1:])
        assert one.quality.auc == pytest.approx(roc_auc_score(y[rows], z[rows]), abs=1e-14)
        assert one.quality.log_loss == pytest.approx(log_loss(y[rows], 1 / (1 + np.exp(-z[rows]))), rel=1e-12)
        assert vars(one.quality) == quality(z[rows], y[rows])
    rare = np.isin(codes, np.flatnonzero(counts < 100))
    assert actual.others is not None and vars(actual.others.quality) == quality(z[rare], y[rare])
    assert actual.others.values == int(((counts > 0) & (counts < 100)).sum())
    assert sum(one.quality.examples for one in actual.values) + actual.others.quality.examples == 4000
    assert by_values(z, y, codes, names, min_rows=1).others is None


def test_no_more_values_than_a_page_can_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(breakdown, "MOST_VALUES", 2)
    z, y, codes = drawn(1000, 9)
    actual = by_values(z, y, codes, list("abcdefghi"), min_rows=1)
    most = np.argsort(-np.bincount(codes), kind="stable")[:2]
    assert (
        [one.value for one in actual.values] == ["abcdefghi"[code] for code in most]
        and actual.others is not None
        and actual.others.values == 7
    )


@pytest.mark.parametrize(("label", "calibrated"), [(0, False), (1, True)])
def test_one_class_has_a_log_loss_and_no_auc(label: int, calibrated: bool) -> None:
    figures = quality_of_part([0.3, -2.0], [label, label])
    expected = np.mean([math.log1p(math.exp(z if label == 0 else -z)) for z in (0.3, -2.0)])
    assert figures["auc"] is None and figures["ne"] is None and (figures["calibration"] is not None) == calibrated
    assert figures["log_loss"] == pytest.approx(expected) and figures["examples"] == 2


@given(st.randoms(use_true_random=False))
@settings(max_examples=20)
def test_the_order_of_rows_changes_no_bit(random) -> None:
    z, y, codes = drawn(300, 12)
    order = np.array(random.sample(range(300), 300))
    names = [str(code) for code in range(12)]
    assert grouped_auc(z[order], y[order], codes[order], "c") == grouped_auc(z, y, codes, "c")
    assert by_values(z[order], y[order], codes[order], names, 20) == by_values(z, y, codes, names, 20)


def test_bins_hold_about_as_many_examples_each_and_every_example_once() -> None:
    rng = np.random.default_rng(2)
    examples = rng.integers(0, 50, 4096)
    positives = (examples * np.linspace(0, 1, 4096)).astype(np.int64)
    predicted = examples * np.linspace(0, 1, 4096)
    bins = bins_of(examples, positives, predicted)
    assert len(bins) == 10 and sum(one.examples for one in bins) == examples.sum() and sum(b.positives for b in bins) == positives.sum()
    assert max(one.examples for one in bins) - min(one.examples for one in bins) <= 100
    assert [one.predicted for one in bins] == sorted(one.predicted for one in bins)
    assert sum(one.predicted * one.examples for one in bins) == pytest.approx(predicted.sum())


def test_one_prediction_for_all_is_one_bin() -> None:
    cells = np.zeros(64, np.int64)
    cells[5] = 70
    (only,) = bins_of(cells, cells // 7, cells * 0.2)
    assert (only.examples, only.positives, only.predicted) == (70, 10, 0.2)
