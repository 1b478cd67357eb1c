"""Allocations against every assignment there is, for few rows; against all rows in order, for more."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_lab.sharders.flexshard.allocate import SLACK_BYTES, Split, Trade, optimal_three_tier, three_tier, two_tier
from recsys_lab.sharders.flexshard.costs import TIER_COSTS, Costs, Setting
from recsys_lab.sharders.flexshard.exact import split_rows
from recsys_lab.sharders.flexshard.pareto import curve, points
from recsys_lab.sharders.flexshard.rows import Rows
from recsys_lab.tables import compress, zipf_mandelbrot
from tests.sharders.flexshard_cases import PAPER, one_table, settings_of

P = st.lists(st.floats(0, 1), min_size=1, max_size=6)
BUDGETS = st.sampled_from([0.0, 0.0, 30.0, 200.0, -10.0, -100.0])  # bytes; a row of the cases has 16


def of_assignment(p: list[float], tiers: tuple[str, ...], setting: Setting) -> tuple[float, float]:
    """Memory and communication of each row in its tier, beyond row-wise."""
    rows = sum((TIER_COSTS[tier](1, 4, x, setting) for x, tier in zip(p, tiers)), Costs())
    base = sum((TIER_COSTS["row_sharded"](1, 4, x, setting) for x in p), Costs())
    return rows.memory_bytes - base.memory_bytes, rows.communication_ms - base.communication_ms


def least_communication(p: list[float], tiers: tuple[str, ...], setting: Setting, budget: float) -> float | None:
    """Over all assignments of rows to tiers within the budget."""
    costs = [of_assignment(p, assignment, setting) for assignment in product(tiers, repeat=len(p))]
    return min((ms for size, ms in costs if size <= budget + SLACK_BYTES), default=None)


def ms_of(trade: Trade, split: Split) -> float:
    return float(trade.communication_ms(split.replicated, split.in_host))


@given(P, settings_of(), BUDGETS)
@settings(max_examples=150)
def test_two_tiers_are_the_best_of_all_assignments_within_the_budget(p: list[float], setting: Setting, budget: float) -> None:
    trade = Trade(one_table(p), setting)
    split, best = two_tier(trade, budget), least_communication(p, ("replicated", "row_sharded"), setting, budget)
    assert (split is None) == (best is None)
    if split is not None and best is not None:
        assert trade.memory_bytes(split.replicated) <= budget + SLACK_BYTES
        assert ms_of(trade, split) == pytest.approx(best, rel=1e-9, abs=1e-12)


@given(P, settings_of(), BUDGETS)
@settings(max_examples=150)
def test_three_tiers_by_the_optimal_rule_are_the_best_of_all_assignments(p: list[float], setting: Setting, budget: float) -> None:
    trade = Trade(one_table(p), setting)
    split, best = optimal_three_tier(trade, budget), least_communication(p, tuple(TIER_COSTS), setting, budget)
    assert (split is None) == (best is None)
    if split is not None and best is not None:
        assert trade.memory_bytes(split.replicated, split.in_host) <= budget + 2 * SLACK_BYTES
        assert ms_of(trade, split) == pytest.approx(best, rel=1e-9, abs=1e-12)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=60), settings_of(), BUDGETS)
def test_a_third_tier_never_leaves_more_to_the_global_exchange_and_never_costs_more_memory(p, setting, budget) -> None:
    trade = Trade(one_table(p), setting)
    two, three, best = two_tier(trade, budget), three_tier(trade, budget), optimal_three_tier(trade, budget)
    if two is None or three is None or best is None:
        assert two is three is best is None
        return
    assert trade.memory_bytes(three.replicated, three.in_host) <= budget + SLACK_BYTES
    assert trade.rows.traffic(three.replicated + three.in_host) >= trade.rows.traffic(two.replicated) - 1e-9
    assert ms_of(trade, best) <= min(ms_of(trade, two), ms_of(trade, three)) + 1e-12


TABLES = st.lists(st.tuples(st.lists(st.floats(0, 1), min_size=1, max_size=20), st.sampled_from([4, 8, 64])), min_size=1, max_size=4)


@given(TABLES, settings_of())
def test_tables_are_planned_as_their_union_and_every_row_that_moves_is_hotter_than_those_that_stay(tables, setting) -> None:
    rows = Rows.merged([(np.ones(len(p), np.int64), np.sort(p)[::-1], dim) for p, dim in tables])
    assert rows.total == sum(len(p) for p, _ in tables)
    split = three_tier(Trade(rows, setting))
    assert split is not None
    for end in (split.replicated, split.replicated + split.in_host):
        counts = rows.of_each_table(end)
        assert counts.sum() == end
        inside = [x for (p, _), n in zip(tables, counts) for x in sorted(p, reverse=True)[:n]]
        outside = [x for (p, _), n in zip(tables, counts) for x in sorted(p, reverse=True)[n:]]
        assert not inside or not outside or min(inside) >= max(outside)
        assert rows.elements(end) == sum(dim * n for (_, dim), n in zip(tables, counts))
    alike = [(p, 8) for p, _ in tables]
    union = one_table([x for p, _ in tables for x in p], 8)
    merged = Rows.merged([(np.ones(len(p), np.int64), np.sort(p)[::-1], dim) for p, dim in alike])
    assert three_tier(Trade(merged, setting)) == three_tier(Trade(union, setting))


def test_of_equal_rows_the_earlier_table_comes_first_every_time() -> None:
    parts = [(np.array([2, 3]), np.array([0.5, 0.1]), 4) for _ in range(3)]
    rows = Rows.merged(parts)
    assert [rows.of_each_table(k).tolist() for k in (1, 3, 6, 7)] == [[1, 0, 0], [2, 1, 0], [2, 2, 2], [3, 2, 2]]
    assert three_tier(Trade(rows, PAPER)) == three_tier(Trade(Rows.merged(parts), PAPER))


@given(st.lists(st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.25, 0.2501])), min_size=1, max_size=200), settings_of(), BUDGETS)
def test_rows_in_any_order_are_split_as_all_rows_in_order(p: list[float], setting: Setting, budget: float) -> None:
    whole = Trade(one_table(p), setting)
    for rule in (two_tier, three_tier):
        assert split_rows([(np.array(p), 4)], setting, lambda trade, rule=rule: rule(trade, budget)) == rule(whole, budget)


def test_many_rows_in_any_order_are_split_as_all_rows_in_order() -> None:
    rng = np.random.default_rng(3)
    p = rng.permutation(np.diff(zipf_mandelbrot(1_000_000, 1.05, 300.0).share(np.arange(1_000_001))) * 800) * rng.uniform(
        0.6, 1.4, 1_000_000
    )
    whole = Trade(one_table(list(p), 256), PAPER)
    assert split_rows([(p, 256)], PAPER, three_tier) == three_tier(whole)
    divided = split_rows([(p[:400_000], 256), (p[400_000:], 256)], PAPER, three_tier)
    assert divided == three_tier(whole)
    best, near = optimal_three_tier(whole), split_rows([(p, 256)], PAPER, optimal_three_tier)
    assert best is not None and near is not None
    assert ms_of(whole, near) == pytest.approx(ms_of(whole, best), rel=1e-6)


def test_buckets_plan_nearly_as_rows_do() -> None:
    """Buckets whose p lie within a factor f of each other misplace rows whose p is within f of a tier's end, no others."""
    p = np.diff(zipf_mandelbrot(200_000, 1.1, 50.0).share(np.arange(200_001))) * 500
    exact = three_tier(Trade(one_table(list(p), 256), PAPER))
    rows, mean = compress(p, 1000)
    near = three_tier(Trade(Rows.merged([(rows, mean, 256)]), PAPER))
    assert exact is not None and near is not None
    assert near.replicated == pytest.approx(exact.replicated, rel=0.02)
    assert near.in_host == pytest.approx(exact.in_host, rel=0.02)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40), settings_of())
def test_points_of_figure_5_are_what_they_say(p: list[float], setting: Setting) -> None:
    trade = Trade(one_table(p), setting)
    marks, line = points(trade), curve(trade, steps=len(p))
    assert len(line) == len(p) + 1
    assert marks["A"].memory_bytes == pytest.approx(min(x.memory_bytes for x in line), abs=1e-6)
    assert marks["C"].communication_ms == pytest.approx(min(x.communication_ms for x in line), abs=1e-12)
    neutral = [x.communication_ms for x in line if x.memory_bytes <= SLACK_BYTES]
    assert marks["B"].communication_ms == pytest.approx(min(neutral), abs=1e-12)
    assert marks["D"].replicated == len(p)


def test_more_memory_never_makes_a_plan_slower() -> None:
    trade = Trade(Rows.merged([zipf_table(1_000_000, 1.1)]), PAPER)
    for rule in (two_tier, optimal_three_tier):
        splits = [rule(trade, budget) for budget in (-1e7, 0.0, 1e8, 1e9, 1e12)]
        times = [ms_of(trade, split) for split in splits if split is not None]
        assert len(times) == 5 and times == sorted(times, reverse=True)
    assert two_tier(trade, -1e12) is three_tier(trade, -1e12) is optimal_three_tier(trade, -1e12) is None


def test_a_cheaper_replica_is_used_more() -> None:
    trades = [Trade(Rows.merged([zipf_table(1_000_000, 1.1)]), replace(PAPER, replica_multiplier=m)) for m in (6.0, 3.0, 2.0)]
    splits = [split for trade in trades if (split := two_tier(trade)) is not None]
    assert [s.replicated for s in splits] == sorted(s.replicated for s in splits) and len(splits) == 3


def zipf_table(rows: int, exponent: float) -> tuple[np.ndarray, np.ndarray, int]:
    access = zipf_mandelbrot(rows, exponent, 100.0).access("t", rows, 500.0, 2000)
    return np.array(access.bucket_rows), np.array(access.bucket_p), 256


def test_more_memory_replicates_more_where_flex_ends_at_its_break_point() -> None:
    """The rows that leave the row-sharded tier stay; within the budget the hottest of them take less time as replicas."""
    setting = replace(PAPER, bandwidths=replace(PAPER.bandwidths, ar_cross_gb_s=50.0))
    trade = Trade(Rows.merged([zipf_table(1_000_000, 1.1)]), setting)
    neutral = three_tier(trade)
    assert neutral is not None and neutral.replicated + neutral.in_host == trade.worth_host_sharding()
    earlier = neutral
    for budget in (1e6, 1e7, 1e8):
        more = three_tier(trade, budget)
        assert more is not None and more.replicated + more.in_host == trade.worth_host_sharding()
        assert more.replicated >= earlier.replicated and trade.memory_bytes(more.replicated, more.in_host) <= budget + 1
        assert trade.communication_ms(more.replicated, more.in_host) <= trade.communication_ms(earlier.replicated, earlier.in_host)
        earlier = more
    assert earlier.replicated > neutral.replicated
