"""Synthetic and random rows are pure functions of their place; the planted truth is what the notes say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from recsys_lab.data.dataset import OpenDataSet
from recsys_lab.data.generated import Shape, make_features
from recsys_lab.data.measure import measure_access
from recsys_lab.data.protocol import Feature, Rows
from recsys_lab.data.random_ids import open_random
from recsys_lab.data.synthetic import SyntheticSplit, Truth, best_auc, open_synthetic, rows_judged
from recsys_lab.errors import UserError
from recsys_lab.tables import RankLaw
from tests.some_keys import check_some_keys

WANTED = (Feature("big", 40_000_000, 3.0), Feature("two", 2), Feature("one", 1), Feature("bag", 1000, 10.0), Feature("mid", 300))


def synthetic(cache: Path, wanted: tuple[Feature, ...] | None = None, **changed) -> OpenDataSet:
    options = {"rows_train": 5000, "rows_validation": 3000, "rows_test": 0, "rows_per_table": [50, 7, 900, 3], "look_ups": None}
    options |= {"dense_features": 4, "exponent": 1.1, "seed_of_truth": 3, "cache": str(cache)}
    return open_synthetic(wanted, **options | changed)


def random(wanted: tuple[Feature, ...] | None = None, **changed) -> OpenDataSet:
    options = {"rows_train": 20_000, "rows_validation": 10, "rows_test": 5, "rows_per_table": [50, 7], "look_ups": [1, 2]}
    options |= {"dense_features": 4, "exponent": 0.0, "seed_of_draws": 3}
    return open_random(wanted, **options | changed)


def bags(rows: Rows) -> list[list[tuple]]:
    """Each feature's ids of each row."""
    starts = np.concatenate([[0], np.cumsum(rows.lengths.ravel())])
    flat = [tuple(rows.ids[a:b]) for a, b in zip(starts, starts[1:])]
    count = rows.lengths.shape[1]
    return [flat[f * count : (f + 1) * count] for f in range(len(rows.lengths))]


@settings(max_examples=25)
@given(asked=st.lists(st.integers(0, 2999), min_size=1, max_size=40))
def test_a_row_does_not_depend_on_how_it_is_asked_for(tmp_path_factory: pytest.TempPathFactory, asked: list[int]) -> None:
    data = synthetic(tmp_path_factory.getbasetemp() / "cache", WANTED)
    split = data.splits["validation"]
    together = split.read(np.array(asked))
    for place, row in enumerate(asked):
        alone = split.read(np.array([row]))
        assert alone.labels[0] == together.labels[place]
        assert alone.dense.tolist() == [together.dense[place].tolist()]
        assert [bag[0] for bag in bags(alone)] == [bag[place] for bag in bags(together)]


def test_splits_and_seeds_differ(tmp_path: Path) -> None:
    rows = np.arange(200)
    data = synthetic(tmp_path)
    read = [
        data.splits["train"].read(rows),
        data.splits["validation"].read(rows),
        synthetic(tmp_path, seed_of_truth=4).splits["train"].read(rows),
    ]
    assert len({r.ids.tobytes() for r in read}) == len({r.dense.tobytes() for r in read}) == len({r.labels.tobytes() for r in read}) == 3


def test_wanted_features_are_made(tmp_path: Path) -> None:
    data = synthetic(tmp_path, WANTED)
    assert data.features == WANTED
    rows = data.splits["train"].read(np.arange(500))
    assert rows.lengths[:, 0].tolist() == [3, 1, 1, 10, 1] and (rows.lengths == rows.lengths[:, :1]).all()
    for feature, ids in zip(WANTED, np.split(rows.ids, np.cumsum(rows.lengths.sum(axis=1))[:-1])):
        assert ids.min() >= 0 and ids.max() < feature.rows
        assert data.access[feature.name].mean_length == feature.mean_length
    assert random(WANTED).features == WANTED


@pytest.mark.parametrize("exponent", [0.0, 0.7, 1.0, 1.3])
def test_ids_follow_the_stated_law(exponent: float) -> None:
    data = random(rows_per_table=[3000, 40], look_ups=[2, 1], rows_train=40_000, exponent=exponent)
    measured = measure_access(data)
    for name, look_ups in (("C1", 80_000), ("C2", 40_000)):
        stated = data.access[name]
        assert stated.origin == "formula" and measured[name].mean_length == pytest.approx(stated.mean_length)
        if exponent:
            for hottest in (1, 10, 40):
                share = stated.share_of_hottest(hottest)
                assert measured[name].share_of_hottest(hottest) == pytest.approx(share, abs=6 * np.sqrt(share / look_ups))
        else:
            assert max(measured[name].bucket_p) < 1.5 * min(p for p in stated.bucket_p) + 8e-4


def test_every_row_of_a_table_can_occur() -> None:
    """The ranks are spread over the table by a bijection."""
    data = random(rows_per_table=[997, 16], look_ups=None, rows_train=200_000)
    rows = data.splits["train"].read(np.arange(60_000))
    assert len(np.unique(rows.ids[:60_000])) == 997 and len(np.unique(rows.ids[60_000:])) == 16


def test_the_best_auc_is_the_auc_of_the_true_probability(tmp_path: Path) -> None:
    data = synthetic(tmp_path)
    split = data.splits["validation"]
    rows = np.arange(split.rows)
    expected = roc_auc_score(split.read(rows).labels, split.probability(rows))  # type: ignore[attr-defined]
    assert data.best_auc["validation"] == pytest.approx(expected, abs=1e-12)
    assert f"best reachable AUC on validation: {expected:.4f}" in data.notes
    assert set(data.best_auc) == {"train", "validation"}
    assert not any("on train" in note for note in data.notes), "a model that has seen the labels may pass it"


def test_labels_are_drawn_from_the_stated_probability(tmp_path: Path) -> None:
    data = synthetic(tmp_path, rows_train=60_000)
    rows = np.arange(60_000)
    labels, probability = data.splits["train"].read(rows).labels, data.splits["train"].probability(rows)  # type: ignore[attr-defined]
    for low in np.arange(0, 1, 0.1):
        these = (probability >= low) & (probability < low + 0.1)
        if these.sum() > 100:
            assert labels[these].mean() == pytest.approx(probability[these].mean(), abs=5 * 0.5 / np.sqrt(these.sum()))


def test_the_truth_can_be_learnt_and_not_surpassed(tmp_path: Path) -> None:
    """One-hot logistic regression gets most of the way: the rest are the interactions."""
    data = synthetic(tmp_path, rows_train=20_000, rows_validation=10_000)

    def one_hot(name: str) -> tuple[sparse.csr_matrix, np.ndarray]:
        split = data.splits[name]
        rows = split.read(np.arange(split.rows))
        columns = [sparse.csr_matrix(np.eye(f.rows)[ids]) for f, ids in zip(data.features, rows.ids.reshape(len(data.features), -1))]
        return sparse.hstack([sparse.csr_matrix(rows.dense), *columns]).tocsr(), rows.labels

    model = LogisticRegression(max_iter=300).fit(*one_hot("train"))
    x, y = one_hot("validation")
    reached, best = roc_auc_score(y, model.predict_proba(x)[:, 1]), data.best_auc["validation"]
    assert best - 0.15 < reached < best and reached > 0.6


def test_the_best_auc_is_kept_and_computed_anew_where_it_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = synthetic(tmp_path / "cache")
    (tmp_path / "file").write_text("")
    assert synthetic(tmp_path / "file" / "cache").best_auc == first.best_auc
    monkeypatch.setattr("recsys_lab.data.synthetic.best_auc", lambda *_: pytest.fail("computed again"))
    assert synthetic(tmp_path / "cache").best_auc == first.best_auc


def test_a_large_split_is_judged_by_its_first_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recsys_lab.data.synthetic.BEST_AUC_ROWS", 1000)
    data = synthetic(tmp_path, rows_train=10**12, rows_validation=10**12)
    assert data.best_auc["train"] == best_auc(data.splits["train"], 1000)  # type: ignore[arg-type]
    assert any("validation" in note and "its first 1,000 rows" in note for note in data.notes)
    assert len(data.splits["train"].read(np.array([10**12 - 1])).labels) == 1


def test_distinct_rows_come_again_and_again() -> None:
    """Row r of a split that repeats its first 300 rows is row r mod 300 of one whose rows all differ."""
    options = {"rows_per_table": [3000, 40, 7], "look_ups": [2, 1, 3]}
    all_different, repeated = random(**options), random(**options, distinct_rows=300)
    for name, split in repeated.splits.items():
        assert split.rows == all_different.splits[name].rows
    # apart, in one piece, across the end, one, none
    for rows in ([5, 0, 299, 300, 305, 1205, 5], [640, 641, 642], [299, 300, 301], [7, 9, 8], [4], []):
        at = np.array(rows, np.int64)
        found, expected = repeated.splits["train"].read(at), all_different.splits["train"].read(at % 300)
        for part in ("labels", "dense", "lengths", "ids"):
            np.testing.assert_array_equal(getattr(found, part), getattr(expected, part), strict=True)
    assert repeated.fingerprint != all_different.fingerprint
    with pytest.raises(UserError, match="data.distinct_rows"):
        check_some_keys({"distinct_rows": 0}, "data", open_random)


def test_random_labels_say_so() -> None:
    data = random()
    assert not data.learnable and not data.best_auc and "random labels" in data.notes[0]
    assert data.splits["train"].read(np.arange(20_000)).labels.mean() == pytest.approx(0.25, abs=0.02)


@pytest.mark.parametrize(
    ("changed", "where"),
    [
        ({"rows_train": 0}, "data.rows_train"),
        ({"rows_test": -1}, "data.rows_test"),
        ({"exponent": -1.0}, "data.exponent"),
        ({"dense_features": -1}, "data.dense_features"),
        ({"look_ups": [1]}, "data.look_ups"),
        ({"rows_per_table": [0, 1, 1, 1]}, "data.rows_per_table[0]"),
        ({"look_ups": [1, 1, 0, 1]}, "data.look_ups[2]"),
    ],
)
def test_impossible_shapes(tmp_path: Path, changed: dict, where: str) -> None:
    with pytest.raises(UserError) as caught:
        check_some_keys(changed, "data", open_synthetic)
        synthetic(tmp_path, **changed)
    assert str(caught.value).startswith(where)


def test_a_sample_of_more_look_ups_than_can_be_generated(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"data.look_ups: too many look-ups to generate; given 120,002 a sample; allowed: 65,536"):
        synthetic(tmp_path, look_ups=[60_000, 1, 60_000, 1])


def test_the_best_auc_of_long_samples_is_of_fewer_rows(tmp_path: Path) -> None:
    short = synthetic(tmp_path).splits["train"]
    features = make_features(None, [100], [2**16])
    long = SyntheticSplit(Truth(Shape(features, 13, 1.0, 1)), "train", 2000)
    assert rows_judged(short) == short.rows and rows_judged(long) == 2**26 // (2**16 + 13) < 2000


def test_data_without_dense_values(tmp_path: Path) -> None:
    data = synthetic(tmp_path, dense_features=0)
    assert data.splits["train"].read(np.arange(3)).dense is None and data.best_auc["train"] > 0.6


def test_features_that_share_a_table_follow_its_law() -> None:
    law = RankLaw(1000, (0.4, 1.3), 5.0, (100.0,))
    wanted = (
        Feature("history", 1000, 20.0, "none", "item", law),
        Feature("candidate", 1000, 1.0, "none", "item", law),
        Feature("user", 300),
    )
    data = random(wanted, dense_features=0)
    assert list(data.access.tables) == ["item", "user"] and data.access["item"].mean_length == 21.0
    measured = measure_access(data)["item"]
    for rows in (10, 100, 400):
        assert measured.share_of_hottest(rows) == pytest.approx(float(law.share(rows)), abs=0.01)
        assert data.access["item"].share_of_hottest(rows) == pytest.approx(float(law.share(rows)), abs=1e-3)
    counts = np.bincount(data.splits["train"].read(np.arange(4000)).ids[: 4000 * 21], minlength=1000)
    assert counts[data.hottest("item", 50)].sum() / counts.sum() == pytest.approx(float(law.share(50)), abs=0.02)
