"""Metrics against brute force, scikit-learn and their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import log_loss, roc_auc_score

from recsys_lab.errors import UserError
from recsys_lab.record.metrics import quality, retrieval

# Whole numbers make ties common; the wide ones reach where a sigmoid rounds to 0 or 1.
LOGITS = st.one_of(st.integers(-3, 3).map(float), st.floats(-40, 40), st.sampled_from([-2000.0, 2000.0]))
SAMPLES = st.lists(st.tuples(LOGITS, st.integers(0, 1)), min_size=2, max_size=60).filter(lambda s: len({y for _, y in s}) == 2)


def arrays(samples):
    return np.array([z for z, _ in samples]), np.array([y for _, y in samples])


@given(SAMPLES)
def test_auc_is_the_share_of_pairs_in_order(samples):
    z, y = arrays(samples)
    pairs = [(1.0 if a > b else 0.5 if a == b else 0.0) for a in z[y == 1] for b in z[y == 0]]
    assert quality(z, y)["auc"] == sum(pairs) / len(pairs)


@given(SAMPLES)
def test_log_loss_ne_and_calibration_are_their_definitions(samples):
    z, y = arrays(samples)
    # -log(1 - sigmoid(z)) = z - log(sigmoid(z)): kept apart so that a large |z| does not overflow.
    loss = [max(a, 0) - a * b + math.log1p(math.exp(-abs(a))) for a, b in zip(z, y)]
    rate = y.mean()
    entropy = -rate * math.log(rate) - (1 - rate) * math.log(1 - rate)
    mean = np.mean([1 / (1 + math.exp(-a)) if a > -700 else 0.0 for a in z])
    q = quality(z, y)
    assert q["log_loss"] == pytest.approx(np.mean(loss), rel=1e-12, abs=1e-15)
    assert q["ne"] == pytest.approx(np.mean(loss) / entropy, rel=1e-12, abs=1e-15)
    assert q["calibration"] == pytest.approx(mean / rate, rel=1e-9, abs=1e-12)
    assert q["examples"] == len(samples) and all(math.isfinite(v) for v in q.values())


@given(SAMPLES, st.randoms(use_true_random=False))
@settings(max_examples=50)
def test_the_order_of_samples_changes_no_bit(samples, random):
    shuffled = list(samples)
    random.shuffle(shuffled)
    assert quality(*arrays(samples)) == quality(*arrays(shuffled))


def test_against_scikit_learn_on_many_samples_with_ties():
    rng = np.random.default_rng(1)
    y = (rng.random(20_000) < 0.03).astype(np.float32)
    z = np.round(rng.normal(size=y.size) + y, 2).astype(np.float32)
    q = quality(z, y)
    assert q["auc"] == pytest.approx(roc_auc_score(y, z), abs=1e-13)
    assert q["log_loss"] == pytest.approx(log_loss(y, 1 / (1 + np.exp(-z.astype(np.float64)))), rel=1e-12)


def test_predicting_the_base_rate_has_ne_one_and_calibration_one():
    y = np.array([1, 0, 0, 0] * 25)
    q = quality(np.full(100, math.log(0.25 / 0.75)), y)
    assert q["ne"] == pytest.approx(1, rel=1e-14) and q["calibration"] == pytest.approx(1, rel=1e-14) and q["auc"] == 0.5


def test_torch_tensors_are_taken():
    torch = pytest.importorskip("torch")
    assert quality(torch.tensor([2.0, -1.0]), torch.tensor([1.0, 0.0]))["auc"] == 1.0


@pytest.mark.parametrize("label", [0, 1])
def test_one_class_is_said(label):
    with pytest.raises(UserError, match=f"split test has only label {label}: AUC is undefined"):
        quality([0.1, 0.2], [label, label], where="test")


def test_an_empty_split_is_said():
    with pytest.raises(UserError, match="split train is empty"):
        quality([], [], where="train")


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_diverged_predictions_are_refused_not_averaged(bad):
    with pytest.raises(UserError, match="1 of 3 predictions on split validation are not finite"):
        quality([0.0, bad, 1.0], [0, 1, 1])


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=20), st.integers(1, 12))
def test_places_are_means_over_all_orders_of_equals(counts, places):
    """Each order of the held-out item among its equals is one place, and all are as likely."""
    hits, gains = [], []
    for above, equal in counts:
        possible = [above + k for k in range(equal + 1)]
        hits.append(np.mean([place < places for place in possible]))
        gains.append(np.mean([1 / math.log2(place + 2) if place < places else 0.0 for place in possible]))
    assert retrieval(*zip(*counts), places=places) == pytest.approx((np.mean(hits), np.mean(gains)), rel=1e-12, abs=1e-15)


def test_places_of_a_known_case():
    assert retrieval([0, 1, 2, 10], [0, 0, 0, 0]) == pytest.approx((0.75, (1 + 1 / math.log2(3) + 0.5) / 4))
    assert retrieval([0] * 5, [99] * 5)[0] == pytest.approx(0.1)  # a model that scores all alike: chance


def test_the_order_of_users_changes_no_bit():
    rng = np.random.default_rng(1)
    above, equal = rng.integers(0, 15, 5000), rng.integers(0, 4, 5000)
    order = rng.permutation(5000)
    assert retrieval(above, equal) == retrieval(above[order], equal[order])
