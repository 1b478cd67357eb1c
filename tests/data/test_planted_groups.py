"""Planted groups: drawn evenly, interacting within themselves only, and no change to data without them."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from recsys_lab.data.dataset import OpenDataSet
from recsys_lab.data.generated import Shape, make_features
from recsys_lab.data.synthetic import Truth, draw_groups, open_synthetic
from recsys_lab.errors import UserError


def opened(groups: int | None, tmp_path, **changed) -> OpenDataSet:
    options = {
        "rows_train": 4000,
        "rows_validation": 2000,
        "rows_test": 0,
        "rows_per_table": [20] * 10,
        "look_ups": None,
        "dense_features": 2,
        "exponent": 1.1,
        "seed_of_truth": 5,
        "cache": str(tmp_path),
        "groups": groups,
    }
    return open_synthetic(**options | changed)


def test_every_feature_is_in_one_group_of_about_the_same_size(tmp_path) -> None:
    data = opened(4, tmp_path)
    assert sorted(name for group in data.groups for name in group) == sorted(feature.name for feature in data.features)
    assert sorted(len(group) for group in data.groups) == [2, 2, 3, 3]
    assert "4 planted groups" in data.notes[1]
    assert opened(4, tmp_path, seed_of_truth=6).groups != data.groups


def test_groups_are_another_data_set_and_none_is_as_before(tmp_path) -> None:
    plain, grouped, fewer = (opened(groups, tmp_path) for groups in (None, 4, 2))
    assert len({plain.fingerprint, grouped.fingerprint, fewer.fingerprint}) == 3
    assert plain.groups == () and len(plain.notes) == len(grouped.notes) - 1
    assert 0.7 < grouped.best_auc["validation"] < 0.95


def test_interactions_stay_within_a_group() -> None:
    """The logit's second difference in two features is zero exactly where they are in different groups."""
    shape = Shape(make_features(None, [20] * 8, None), 0, 1.1, 7)
    truth = Truth(shape, draw_groups(shape, 2))

    def logit(ranks: list[int]) -> float:
        p = float(truth.probability(np.array([ranks]), None)[0])
        return float(np.log(p / (1 - p)))

    group_of = {feature: number for number, group in enumerate(truth.groups) for feature in group}
    for i, j in combinations(range(8), 2):
        corners = [logit([a if f == i else b if f == j else 1 for f in range(8)]) for a, b in ((0, 0), (0, 3), (4, 0), (4, 3))]
        mixed = corners[0] - corners[1] - corners[2] + corners[3]
        assert (abs(mixed) > 1e-6) == (group_of[i] == group_of[j]), (i, j)


@pytest.mark.parametrize("groups", [0, -1, 6])
def test_groups_that_cannot_be_are_refused(tmp_path, groups: int) -> None:
    with pytest.raises(UserError, match=f"data.groups.*given {groups}.*1 to 5"):
        opened(groups, tmp_path)


def test_of_one_feature_there_is_no_group(tmp_path) -> None:
    shape = Shape(make_features(None, [10], None), 0, 1.0, 3)
    with pytest.raises(UserError, match="given 1; allowed: null, of 1 feature$"):
        draw_groups(shape, 1)
