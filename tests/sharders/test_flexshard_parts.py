"""FlexShard's rows, splits, costs of whole tables and reasons, by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from recsys_lab.sharders.flexshard.allocate import Split, Trade, _first, optimal_three_tier, three_tier, two_tier
from recsys_lab.sharders.flexshard.bandwidths import Bandwidths
from recsys_lab.sharders.flexshard.boundaries import boundaries_of
from recsys_lab.sharders.flexshard.costs import Costs, Setting, break_point, flex, replication, row_sharding
from recsys_lab.sharders.flexshard.flips import Flip, flips_of
from recsys_lab.sharders.flexshard.pareto import curve, points
from recsys_lab.sharders.flexshard.reasons import ALL_ROWS, Boundary, Choice, Reasons, alternative_rows, sentences
from recsys_lab.sharders.flexshard.rows import Rows
from recsys_lab.sharders.flexshard.table_costs import choice_of, table_costs
from recsys_lab.sharders.flexshard.whole_tables import whole_placements
from recsys_lab.tables import AccessStatistics, Table, TableAccess
from tests.simulate.clusters import cluster

#: Two rows of 0.5 and three of 0.1 with 4 elements each, and one of 0.3 with 8.
ROWS = Rows.merged([(np.array([2, 3]), np.array([0.5, 0.1]), 4), (np.array([1]), np.array([0.3]), 8)])
#: Two hosts of two ranks with 10 samples each; GB/s: all-to-all 1 and 2 within hosts, all-reduce 4 and 8 across them.
SETTING = Setting(2, 2, 10, Bandwidths(1.0, 2.0, 4.0, 8.0), replica_multiplier=3.0)


def test_rows_of_all_tables_in_falling_p() -> None:
    assert (ROWS.count.tolist(), ROWS.p.tolist(), ROWS.dim.tolist(), ROWS.table.tolist()) == (
        [2, 1, 3],
        [0.5, 0.3, 0.1],
        [4, 8, 4],
        [0, 1, 0],
    )
    assert (ROWS.total, ROWS.tables) == (6, 2)
    assert ROWS.rows_before.tolist() == [0, 2, 3, 6] and ROWS.elements_before.tolist() == [0, 8, 16, 28]
    assert ROWS.traffic_before == pytest.approx([0, 4, 6.4, 7.6])


@pytest.mark.parametrize(
    ("k", "elements", "traffic"), [(0, 0, 0), (1, 4, 2), (2, 8, 4), (2.5, 12, 5.2), (4, 20, 6.8), (6, 28, 7.6), (99, 28, 7.6)]
)
def test_elements_and_traffic_of_the_first_rows(k: float, elements: float, traffic: float) -> None:
    assert ROWS.elements(k) == pytest.approx(elements) and ROWS.traffic(k) == pytest.approx(traffic)
    assert ROWS.rows_of_elements(elements) == pytest.approx(min(k, 6))


def test_which_rows_are_above_and_whose_they_are() -> None:
    assert [ROWS.above(p) for p in (0.6, 0.5, 0.4, 0.3, 0.1, 0.05)] == [0, 0, 2, 2, 3, 6]
    assert [ROWS.p_of(row) for row in range(7)] == [0.5, 0.5, 0.3, 0.1, 0.1, 0.1, 0.0]
    assert [ROWS.of_each_table(k).tolist() for k in range(7)] == [[0, 0], [1, 0], [2, 0], [2, 1], [3, 1], [4, 1], [5, 1]]


@pytest.mark.parametrize(
    ("split", "aligned"),
    [((10, 13), (8, 12)), ((40, 0), (40, 0)), ((10, 30), (8, 32)), ((3, 2), (0, 0)), ((8, 4), (8, 4)), ((0, 40), (0, 40))],
)
def test_tiers_in_multiples_of_the_ranks(split: tuple[int, int], aligned: tuple[int, int]) -> None:
    assert Split(*split).aligned(40, 4) == Split(*aligned)


def test_the_first_number_from_which_on_something_holds() -> None:
    assert [_first(low, 10, lambda k: k >= 4) for low in (0, 4, 7)] == [0 + 4, 4, 7]
    assert _first(0, 10, lambda _: False) == 10 and _first(3, 3, lambda _: True) == 3


@pytest.mark.parametrize(
    ("one", "other", "point"),
    [
        ((1, 2), (3, 1), 0.5),
        ((1, 1), (3, 2), 0.0),
        ((3, 1), (1, 2), 0.0),
        ((3, 2), (1, 1), math.inf),
        ((1, 1), (1, 1), math.inf),
        ((1, 0), (1, 1), 0.0),
    ],
)
def test_where_two_costs_meet(one: tuple[float, float], other: tuple[float, float], point: float) -> None:
    """Of a row's look-ups and of the row itself."""

    def strategy(slope: float, start: float) -> Any:
        return lambda e, d, length, setting: Costs(static_memory_bytes=start * e * d, dynamic_memory_bytes=slope * length * d)

    assert break_point(strategy(*one), strategy(*other), "memory_bytes", SETTING) == point


def test_what_rows_cost_beyond_row_wise_sharding() -> None:
    trade = Trade(ROWS, SETTING)
    tiers, baseline = trade.costs(2, 1)
    expected = replication(8, 1, 4.0, SETTING) + flex(8, 1, 2.4, SETTING)
    assert tiers.memory_bytes == pytest.approx(expected.memory_bytes) and tiers.communication_ms == pytest.approx(expected.communication_ms)
    assert baseline.memory_bytes == pytest.approx(row_sharding(16, 1, 6.4, SETTING).memory_bytes)
    assert trade.memory_bytes(2, 1) == pytest.approx(tiers.memory_bytes - baseline.memory_bytes)
    assert trade.communication_ms(2, 1) == pytest.approx(tiers.communication_ms - baseline.communication_ms)
    # a replica takes 3 x 4 bytes an element, and saves a quarter of 4 and 10 p x 4: even at p = 0.275
    assert break_point(replication, row_sharding, "memory_bytes", SETTING) == pytest.approx(0.275) and trade.least_memory() == 3
    # its gradient takes 4 bytes at 4 GB/s, its look-ups 10 p x 8 at 1: even at 0.0125; within hosts 4 at 8 and half of those
    assert break_point(replication, row_sharding, "communication_ms", SETTING) == pytest.approx(0.0125) and trade.least_communication() == 6
    assert break_point(flex, row_sharding, "communication_ms", SETTING) == pytest.approx(0.0125) and trade.worth_host_sharding() == 6


def test_without_look_ups_and_without_a_budget_nothing_moves() -> None:
    unread = Trade(Rows.merged([(np.array([9]), np.array([0.0]), 4)]), SETTING)
    assert two_tier(unread) == three_tier(unread) == optimal_three_tier(unread) == Split(0, 0)
    assert two_tier(unread, -1.0) is three_tier(unread, -1.0) is optimal_three_tier(unread, -1.0) is None


def test_bandwidths_of_two_hosts_of_one_rank() -> None:
    """Half of a rank's bytes go to the other host, and a ring of two moves each once."""
    assert Bandwidths.of(cluster(2, 1)) == Bandwidths(20.0, math.inf, 10.0, 10.0)
    assert Bandwidths.of(cluster(1, 2)) == Bandwidths(200.0, 200.0, 100.0, math.inf)


def test_the_curve_of_figure_5() -> None:
    trade = Trade(ROWS, SETTING)
    assert [p.replicated for p in curve(trade, steps=2)] == [0, 3, 6] and [p.replicated for p in curve(trade, 3, 3)] == [0, 1, 2, 3]
    assert [p.replicated for p in curve(trade, 99, 1)] == [0, 6] and len(curve(trade)) == 7
    marks = points(trade)
    assert (marks["A"].replicated, marks["C"].replicated, marks["D"].replicated) == (3, 6, 6) and {p.name for p in marks.values()} == {
        *"ABCD"
    }
    assert marks["A"].memory_bytes == pytest.approx(float(trade.memory_bytes(3)))


TABLE = Table("t", 10, 4, ("a", "b"))
ACCESS = TableAccess("t", 1.7, (2, 3, 5), (0.5, 0.2, 0.02), "formula", "by hand")


def test_a_pooled_table_costs_its_pooled_rows_in_each_tier_that_has_rows() -> None:
    """10 samples of two features of 4 are 80 elements: of a host's two ranks at 2 GB/s, of all four at half of an all-reduce's 4."""
    figures = table_costs(TABLE, ACCESS, Split(2, 3), SETTING)
    assert {tier: costs.dynamic_memory_bytes for tier, costs in figures.items()} == {
        "replicated": 320, "host_sharded": 3 * 320, "row_sharded": 5 * 320,
    }  # fmt: skip
    assert {tier: costs.dynamic_communication_ms for tier, costs in figures.items()} == {
        "replicated": 0.0, "host_sharded": pytest.approx(2 * 80 * 8 / 2e6), "row_sharded": pytest.approx(4 * 80 * 8 / 8e6),
    }  # fmt: skip
    assert figures["replicated"].static_communication_ms == pytest.approx(2 * 4 * 4 / 4e6)
    assert table_costs(TABLE, ACCESS, Split(10, 0), SETTING)["row_sharded"] == Costs()
    assert table_costs(TABLE, ACCESS, Split(0, 10), SETTING)["replicated"] == Costs()


def test_a_sequence_costs_its_look_ups_in_each_tier() -> None:
    costs = table_costs(replace(TABLE, pooling="none"), ACCESS, Split(2, 3), SETTING)
    assert costs["replicated"] == replication(2, 4, 1.0, SETTING)
    assert costs["host_sharded"].dynamic_communication_ms == pytest.approx(flex(3, 4, 0.6, SETTING).dynamic_communication_ms)
    assert costs["row_sharded"].memory_bytes == pytest.approx(row_sharding(5, 4, 0.1, SETTING).memory_bytes)


def test_a_choice_is_the_sum_of_its_tables() -> None:
    tables = (TABLE, replace(TABLE, name="u"))
    access = AccessStatistics({"t": ACCESS, "u": replace(ACCESS, table="u")})
    trade = Trade(Rows.of_tables(tables, [ACCESS, ACCESS]), SETTING)
    splits = [Split(2, 3), Split(2, 0)]
    choice = choice_of("x", tables, access, splits, trade, 7e9)
    each = [sum(table_costs(t, ACCESS, split, SETTING).values(), Costs()) for t, split in zip(tables, splits)]
    assert (choice.name, choice.replicated, choice.host_sharded, choice.row_sharded) == ("x", 4, 3, 13)
    assert choice.memory_bytes == 7e9
    assert choice.communication_ms == pytest.approx(each[0].communication_ms + each[1].communication_ms)
    assert choice.global_share == pytest.approx((0.1 + 0.7) / 3.4)


def test_what_would_flip_a_plan() -> None:
    """The hottest row has 5 look-ups of a rank's batch. The last replica's gradient takes as long as they do at 0.1 GB/s."""
    between = "the all-reduce between hosts, of a whole host"
    flips = flips_of(Trade(ROWS, SETTING), Split(2, 1))
    assert [(f.what, f.unit, f.now, f.side, f.at) for f in flips] == [
        ("a replica's memory over its weights", "", 3.0, "above", 5.25),
        ("the batch of a rank", "samples", 10, "below", 5.5),
        ("the all-reduce over all ranks", "GB/s", 4.0, "below", pytest.approx(0.1)),
        (between, "GB/s", 8.0, "below", pytest.approx(1 / 3)),
        (between, "GB/s", 8.0, "below", pytest.approx(1 / 3)),
    ]
    assert flips[3].effect == "the last of the host-sharded rows would be faster row-sharded"
    further = flips_of(Trade(ROWS, SETTING), Split(2, 2))
    assert (further[3].at, further[4].at) == (pytest.approx(1.0), pytest.approx(1 / 3))  # the last has 0.1, the first 0.3
    assert [f.what for f in flips_of(Trade(ROWS, SETTING), Split(0, 0))][2:] == [between]
    assert len(flips_of(Trade(ROWS, replace(SETTING, hosts=1)), Split(2, 0))) == 3
    assert len(flips_of(Trade(ROWS, replace(SETTING, ranks_per_host=1)), Split(2, 0))) == 3
    assert len(flips_of(Trade(ROWS, SETTING), Split(6, 0))) == 3  # no row is left
    assert flips_of(Trade(ROWS, replace(SETTING, hosts=1, ranks_per_host=1)), Split(2, 0)) == ()
    unread = Rows.merged([(np.array([3]), np.array([0.0]), 4)])
    assert flips_of(Trade(unread, SETTING), Split(0, 0)) == ()


LESS_MEMORY = "from here a replica takes more memory than it saves"
SLOW_REPLICAS, SLOW_HOSTS = (replace(SETTING.bandwidths, **gb_s) for gb_s in ({"ar_global_gb_s": 0.25}, {"ar_cross_gb_s": 0.5}))


@pytest.mark.parametrize(
    ("bandwidths", "split", "goal", "optimal", "expected"),
    [
        (SETTING.bandwidths, (3, 0), "memory_neutral", False, [("row_sharded", 3, 0.1, "the memory budget is spent", None)]),
        (SETTING.bandwidths, (3, 0), "max_memory_savings", False, [("row_sharded", 3, 0.1, LESS_MEMORY, 0.275)]),
        (SETTING.bandwidths, (6, 0), "all_replicated", False, [("row_sharded", 6, 0.0, ALL_ROWS, None)]),
        # even where the last replica's gradient takes as long as its look-ups: 4 bytes at 0.25 GB/s are 10 x 0.2 x 8 at 1
        (SLOW_REPLICAS, (3, 0), "memory_neutral", False,
            [("row_sharded", 3, 0.1, "from here a replica takes longer than row-sharding", 0.2)]),
        (SETTING.bandwidths, (2, 1), "memory_neutral", False,
            [("host_sharded", 2, 0.3, LESS_MEMORY, 0.275), ("row_sharded", 3, 0.1, "the memory that the replicas save is spent", None)]),
        (SLOW_HOSTS, (2, 1), "memory_neutral", False, [("host_sharded", 2, 0.3, LESS_MEMORY, 0.275),
            ("row_sharded", 3, 0.1, "from here host-sharding takes longer than row-sharding", 0.2)]),
        (SETTING.bandwidths, (2, 1), "memory_neutral", True,
            [("host_sharded", 2, 0.3, "the least communication within the memory budget", None),
            ("row_sharded", 3, 0.1, "the least communication within the memory budget", None)]),
        (SETTING.bandwidths, (3, 0), "max_communication_savings", True, [("row_sharded", 3, 0.1, "the least communication", None)]),
    ],
)  # fmt: skip
def test_what_decided_where_a_tier_begins(
    bandwidths: Bandwidths, split: tuple[int, int], goal: str, optimal: bool, expected: list[tuple[Any, ...]]
) -> None:
    trade = Trade(ROWS, replace(SETTING, bandwidths=bandwidths))
    boundaries = boundaries_of(trade, Split(*split), Split(*split), goal, optimal)
    assert [(b.tier, b.row, b.p, b.decided_by) for b in boundaries] == [one[:4] for one in expected]
    assert [b.break_point for b in boundaries] == [one[4] and pytest.approx(one[4]) for one in expected]
    aligned = boundaries_of(trade, Split(2, 1), Split(1, 1), goal, optimal)
    assert [(b.row, b.p) for b in aligned] == [(1, 0.5), (2, 0.3)]


CHOSEN = Choice("this plan", 1000, 4000, 5000, 2e9, 3.0, 0.25)
BASELINE = Choice("row-wise only", 0, 0, 10_000, 1e9, 4.0, 1.0)
REASONS = Reasons(
    {"replica_multiplier": 2.12},
    (Boundary("host_sharded", 1000, 0.01, "why", 0.02), Boundary("row_sharded", 5000, 0.0, ALL_ROWS, None)),
    CHOSEN,
    (BASELINE, Choice("two tiers", 900, 0, 9100, 2.5e9, 2.4, 0.5), Choice("alike", 900, 0, 9100, 2e9, 2.998, 0.5)),
    (
        Flip("the batch of a rank", "samples", 1024, "below", 100.5, "no replica would save memory"),
        Flip("a bandwidth", "GB/s", math.inf, "above", 1.0, "nothing"),
    ),
    ("a", "b", "c", "d", "e"),
)


def test_reasons_in_words() -> None:
    lines = sentences(REASONS)
    assert lines[:5] == (
        "Rows in falling frequency: 1,000 replicated, 4,000 host-sharded, 5,000 row-sharded (a replica takes 2.12 times its weights).",
        "The host-sharded tier begins at row 1,000 (p = 0.01): why, which is at p = 0.02.",
        "75.0% of the look-ups leave the exchange between all ranks. All exchanges of these tables take 3 ms an iteration (simulated), "
        "25% less than row-wise sharding, with 1.0 GB more memory a rank.",
        "Faster by 20.0% would be two tiers: 2.4 ms, with 500.0 MB more memory a rank.",
        "The batch of a rank is 1024 samples; below 100.5 samples no replica would save memory.",
    )
    assert len(lines) == 6 and lines[5].startswith("Pooled (a, b, c, d and 1 more): tiers as if")
    assert alternative_rows(REASONS)[0] == ("this plan", "1,000", "4,000", "2.0 GB", "3", "25.0%")
    assert REASONS.explanation()["columns"] == ["plan", "replicated", "per host", "memory", "ms", "global"]
    few = sentences(replace(REASONS, pooled=("a", "b", "c", "d")))
    assert few[5].startswith("Pooled (a, b, c, d): tiers") and len(sentences(replace(REASONS, pooled=()))) == 5


@pytest.mark.parametrize(
    ("baseline_ms", "more_bytes", "says"),
    [
        (2.4, 0.0, "25% more than row-wise sharding, with the same memory."),
        (0.0, 99e3, "no more than row-wise sharding, with the same memory."),
        (4.0, -3e8, "25% less than row-wise sharding, with 300.0 MB less memory a rank."),
        (4.0, 99_999.5, "25% less than row-wise sharding, with the same memory."),
        (4.0, 1e5, "25% less than row-wise sharding, with 100.0 kB more memory a rank."),
    ],
)
def test_a_plan_is_told_beside_row_wise_sharding(baseline_ms: float, more_bytes: float, says: str) -> None:
    baseline = replace(BASELINE, communication_ms=baseline_ms, memory_bytes=CHOSEN.memory_bytes - more_bytes)
    assert sentences(replace(REASONS, alternatives=(baseline,)))[2].endswith(says)


def test_links_that_carry_nothing_are_null_in_a_file() -> None:
    record = replace(REASONS, setting={"bandwidths": [math.inf, 1.0], "deep": {"x": -math.inf}}).to_json()
    assert record["setting"] == {"bandwidths": [None, 1.0], "deep": {"x": None}} and record["flips"][1]["now"] is None


def test_whole_tables_go_where_fewest_bytes_of_such_tables_are() -> None:
    tables = [Table(name, rows, 4, (name,)) for name, rows in (("a", 30), ("b", 10), ("c", 10), ("d", 50), ("e", 5))]
    schemes = {"a": "table_wise", "b": "table_wise", "c": "table_wise", "d": "row_wise", "e": "data_parallel"}
    placements = whole_placements(tables, schemes, cluster(1, 2))
    assert [placements[name].ranks for name in "abc"] == [(0,), (1,), (1,)]
    assert [(s.ranks, s.rows) for s in placements["d"].shards] == [((0,), 25), ((1,), 25)] and placements["e"].shards[0].ranks == (0, 1)
    assert whole_placements(tables, {}, cluster(1, 2)) == {}
