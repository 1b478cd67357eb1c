"""What tiers cover: the planned share is met while nothing drifts, and a drift is told in figures."""

from __future__ import annotations

import numpy as np
import pytest

from recsys_lab.plan import ShardingPlan
from recsys_lab.report.tiers import verdict_of
from recsys_lab.tables import AccessStatistics, RankLaw, Table, measured_access
from recsys_lab.tables.tiers import TIERS
from recsys_lab.train.coverage import Seen, coverage, hot_rows, sampled_access
from tests.plan.plans import flexshard

ROWS, LENGTH, LOOK_UPS = 1000, 10.0, 40_000
TABLE = Table("item", ROWS, 8, ("f",), "none")
LAW = RankLaw(ROWS, (1.1,))
ACCESS = AccessStatistics({"item": LAW.access("item", ROWS, LENGTH)})


def planner(access: AccessStatistics) -> ShardingPlan:
    """20 rows on every rank, 60 once a host, whatever is looked up."""
    assert access["item"].mean_length == LENGTH
    return ShardingPlan("by_hand", 2, 2, (TABLE,), (flexshard(TABLE, 20, 60, 2, 2),))


def looked_up(order: np.ndarray, seed: int = 1) -> np.ndarray:
    """Ids by the law; `order[k]` is the k-th most frequent row."""
    return order[LAW.ranks(np.random.default_rng(seed).random(LOOK_UPS))]


def seen(ids: np.ndarray, hot: np.ndarray) -> Seen:
    hits = {"replicated": np.isin(ids, hot[:20]).sum(), "host_sharded": np.isin(ids, hot[20:80]).sum()}
    return Seen({"item": {**{t: int(n) for t, n in hits.items()}, "row_sharded": int(len(ids) - sum(hits.values()))}}, {"item": ids})


def coverage_for(order: np.ndarray, threshold: float = 0.1):
    plan = planner(ACCESS)
    hot = hot_rows(plan, lambda table, rows: np.arange(rows))
    return coverage(seen(looked_up(order), hot["item"]), plan, ACCESS, hot, planner, threshold)


def test_without_drift_the_plan_holds_and_pays() -> None:
    result = coverage_for(np.arange(ROWS))
    assert result is not None and result.replanning is not None
    assert result.planned["replicated"] == pytest.approx(float(LAW.share(20)), abs=1e-3)
    for tier, share in result.planned.items():
        assert result.measured[tier] == pytest.approx(share, abs=0.01)
        assert result.replanning.access_share_now[tier] == pytest.approx(share, abs=0.02)
    assert abs(result.replanning.saving) < 0.05 and not result.replanning.worth_it
    assert verdict_of({"replanning": vars(result.replanning)}).startswith("the plan still pays")


def test_a_drift_is_told_with_what_a_new_plan_would_save() -> None:
    result = coverage_for(np.random.default_rng(3).permutation(ROWS))
    assert result is not None and result.replanning is not None
    again = result.replanning
    assert result.measured["row_sharded"] > result.planned["row_sharded"] + 0.3
    assert again.access_share_new["row_sharded"] == pytest.approx(result.planned["row_sharded"], abs=0.02), "as good as before the drift"
    expected = 1 - again.access_share_new["row_sharded"] / again.access_share_now["row_sharded"]
    assert again.saving == pytest.approx(expected) and again.worth_it
    text = verdict_of({"replanning": vars(again)})
    assert text.startswith("plan again") and f"{again.access_share_now['row_sharded']:.1%}" in text


def test_noise_is_no_drift() -> None:
    """Uniform look-ups of a large table: the rows that are hottest in one half are not in the other, so nothing is promised."""
    ids = np.random.default_rng(5).integers(0, ROWS, 2000)
    access = AccessStatistics({"item": measured_access("item", np.full(ROWS, 100), 10_000, "uniform")})
    plan = planner(access)
    hot = hot_rows(plan, lambda table, rows: np.arange(rows))
    result = coverage(seen(ids, hot["item"]), plan, access, hot, planner, 0.1)
    assert result is not None and result.replanning is not None
    assert abs(result.replanning.saving) < 0.05


def test_too_few_look_ups_say_so() -> None:
    plan = planner(ACCESS)
    hot = hot_rows(plan, lambda table, rows: np.arange(rows))
    result = coverage(seen(np.array([3]), hot["item"]), plan, ACCESS, hot, planner, 0.1)
    assert result is not None and result.replanning is None and "too few" in verdict_of({"replanning": None})
    nothing = Seen({"item": dict.fromkeys(TIERS, 0)}, {})
    assert coverage(nothing, plan, ACCESS, hot, planner, 0.1) is None


def test_sampled_statistics_are_those_of_the_sample() -> None:
    access, order = sampled_access(ACCESS["item"], np.array([5, 5, 5, 2, 2, 9, 7]), ROWS)
    assert list(order) == [5, 2, 7, 9]
    assert access.bucket_rows == (1, 1, 2, ROWS - 4) and access.mean_length == LENGTH
    assert sum(n * p for n, p in zip(access.bucket_rows, access.bucket_p)) == pytest.approx(LENGTH)
