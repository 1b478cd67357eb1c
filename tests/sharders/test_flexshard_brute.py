"""FlexShard's splits against all that there are, with budgets at which each of them just fits; and what its reasons compare."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest

from recsys_lab.sharders.flexshard import FlexShard, exact, planner
from recsys_lab.sharders.flexshard.allocate import Split, Trade, optimal_three_tier, three_tier, two_tier
from recsys_lab.sharders.flexshard.bandwidths import Bandwidths
from recsys_lab.sharders.flexshard.costs import TIER_COSTS, Setting
from recsys_lab.sharders.flexshard.exact import split_rows
from recsys_lab.sharders.flexshard.pareto import curve
from recsys_lab.sharders.flexshard.rows import Rows
from tests.sharders.flexshard_cases import PAPER, one_table
from tests.sharders.test_flexshard_plan import cluster, inputs
from tests.sharders.test_flexshard_reasons import why

DIM, ROWS = 4, 5
SLACK = 0.01


def trades(count: int) -> Iterator[tuple[Trade, np.ndarray, np.ndarray]]:
    """Drawn ones of `ROWS` rows, with bytes and ms of each row in each tier [rows, 3] beyond the row-sharded one."""
    draw = np.random.default_rng(7)
    for _ in range(count):
        p = np.sort(draw.random(ROWS) ** draw.choice([1, 3]))[::-1]
        slow = draw.uniform(0.5, 5)
        links = Bandwidths(slow, slow * draw.uniform(1, 10), draw.uniform(0.5, 50), draw.uniform(0.5, 50))
        hosts, ranks, batch = (int(n) for n in draw.integers((2, 2, 1), (5, 9, 65)))
        setting = Setting(hosts, ranks, batch, links, draw.uniform(1, 8))
        costs = [[tier(1, DIM, float(x), setting) for tier in TIER_COSTS.values()] for x in p]
        size, ms = (np.array([[getattr(c, name) for c in row] for row in costs]) for name in ("memory_bytes", "communication_ms"))
        yield Trade(one_table(p.tolist(), DIM), setting), size - size[:, 2:], ms - ms[:, 2:]


def of_all(tiers: int, size: np.ndarray, ms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bytes and ms of every assignment of rows to the first `tiers` and the row-sharded one."""
    each = np.array(list(product([*range(tiers), 2], repeat=ROWS)))
    return size[np.arange(ROWS), each].sum(1), ms[np.arange(ROWS), each].sum(1)


def first_rows(size: np.ndarray, replicated: int, in_host: int) -> float:
    return float(size[:replicated, 0].sum() + size[replicated : replicated + in_host, 1].sum())


@pytest.mark.parametrize(("tiers", "rule"), [(1, two_tier), (2, optimal_three_tier)])
def test_the_least_communication_of_all_assignments(tiers: int, rule) -> None:
    for trade, size, ms in trades(30):
        sizes, times = of_all(tiers, size, ms)
        assert rule(trade, float(sizes.min()) - 1) is None
        for budget in np.quantile(sizes, np.linspace(0, 1, 12), method="nearest"):
            split = rule(trade, float(budget))
            assert first_rows(size, split.replicated, split.in_host) <= budget + 2 * SLACK
            best = times[sizes <= budget + SLACK].min()
            assert first_rows(ms, split.replicated, split.in_host) == pytest.approx(best, rel=1e-9, abs=1e-12)


def test_the_paper_s_rule_row_by_row() -> None:
    """Replicas while each saves memory, then host-sharded rows while each saves time and the memory lasts, or two tiers.

    With memory to spare the hottest host-sharded rows that are quicker as replicas are replicated, too.
    """
    for trade, size, ms in trades(60):
        replicated = int((size[:, 0] < 0).sum())
        for budget in (0.0, 20.0, -20.0, float(first_rows(size, replicated, 1)), float(first_rows(size, replicated, 2))):
            counts = [k for k in range(ROWS + 1) if first_rows(size, k, 0) <= budget + SLACK]
            assert trade.affordable(budget) == ((counts[0], counts[-1]) if counts else None)
            if not counts:
                assert two_tier(trade, budget) is three_tier(trade, budget) is None
                continue
            two = min(counts, key=lambda k: first_rows(ms, k, 0))
            fits = [n for n in range(ROWS - replicated + 1) if first_rows(size, replicated, n) <= budget + SLACK]
            worth = [n for n in fits if (ms[replicated : replicated + n, 1] < 0).all()]
            assert two_tier(trade, budget) == Split(two, 0)
            end, hot = replicated + worth[-1], replicated
            if budget > 0 and not (end < ROWS and ms[end, 1] < 0):  # host-sharding ends at its break-point: memory is left for replicas
                quicker = [k for k in range(hot, end + 1) if (ms[hot:k, 0] < ms[hot:k, 1]).all()]
                hot = [k for k in quicker if first_rows(size, k, end - k) <= budget + SLACK][-1]
            assert three_tier(trade, budget) == (Split(two, 0) if two > end else Split(hot, end - hot))


def test_rows_that_share_a_coarse_bucket_are_split_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """All within 0.1 % of each other, beside rows that are never read; and two tables, one of them with wider rows."""
    monkeypatch.setattr(exact, "CHUNK", 64)
    draw = np.random.default_rng(2)
    setting = Setting(2, 2, 10, Bandwidths(1.0, 2.0, 4.0, 8.0), replica_multiplier=3.0)
    for level, rule in product((0.27, 0.2745), (two_tier, three_tier)):  # a replica saves memory above 0.275
        near = level + 0.001 * draw.random(200)
        p, other = draw.permutation(np.concatenate([near, np.zeros(20), [0.9, 0.01]])), level + 0.001 * draw.random(50)
        assert split_rows([(p, DIM)], setting, rule) == rule(Trade(one_table(p.tolist(), DIM), setting))
        ordered = [(np.ones(len(each), np.int64), np.sort(each)[::-1], dim) for each, dim in ((p, 4), (other, 16))]
        expected = rule(Trade(Rows.merged(ordered), setting))
        assert split_rows([(p, 4), (other, 16)], setting, rule) == expected
        assert expected is not None and 1 < expected.replicated + expected.in_host < len(p) + len(other)
    assert split_rows([(near, DIM)], setting, lambda trade: two_tier(trade, -1e9)) is None


def test_figure_5_has_201_points_of_many_rows() -> None:
    trade = Trade(one_table([0.5] * 1000), PAPER)
    assert [p.replicated for p in curve(trade)] == list(range(0, 1001, 5))
    assert [p.replicated for p in curve(trade, 400)] == list(range(0, 401, 2))


MORE = "10% more memory"


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"tiers": 3}, ["two tiers", "rule=optimal", MORE]),
        ({"tiers": 3, "rule": "optimal"}, ["two tiers", MORE]),
        ({"tiers": 2}, ["three tiers", MORE]),
        ({"tiers": 2, "rule": "optimal"}, ["three tiers", MORE]),
        ({"tiers": 3, "goal": "max_communication_savings"}, []),
        ({"tiers": 2, "goal": "max_memory_savings"}, []),
    ],
    ids=str,
)
def test_which_other_plans_are_compared(options: dict, names: list[str]) -> None:
    reasons = why(**options)
    assert [other.name for other in reasons.alternatives] == ["row-wise only", *names]
    changes = {"two tiers": {"tiers": 2}, "three tiers": {"tiers": 3}, "rule=optimal": {"rule": "optimal"}}
    changes[MORE] = {"extra_memory_gb": 0.1 * reasons.alternatives[0].memory_bytes / 1e9}
    for other in reasons.alternatives[1:]:
        chosen = why(**options | changes[other.name]).chosen
        assert (other.replicated, other.host_sharded) == (chosen.replicated, chosen.host_sharded)


@pytest.mark.parametrize(("hosts", "ranks"), [(1, 4), (4, 1)])
def test_without_a_middle_tier_two_tiers_are_compared_with_none(hosts: int, ranks: int) -> None:
    for tiers in (2, 3):
        sharder, made_from = FlexShard(tiers=tiers), inputs(cluster(hosts, ranks), 64)
        reasons = sharder.reasons(sharder.plan(made_from), made_from)
        assert reasons is not None and [other.name for other in reasons.alternatives] == ["row-wise only", MORE]


def test_more_memory_is_beside_what_may_be_used_already(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundredth of what row-wise tables take, beside a budget: with a tenth all rows that gain are replicated."""
    monkeypatch.setattr(planner, "MORE_MEMORY", 0.01)
    reasons = why(tiers=2, extra_memory_gb=0.002)
    more = 0.002 + 0.01 * reasons.alternatives[0].memory_bytes / 1e9
    chosen = why(tiers=2, extra_memory_gb=more).chosen
    assert reasons.alternatives[-1].replicated == chosen.replicated > why(tiers=2, extra_memory_gb=more - 0.002).chosen.replicated
