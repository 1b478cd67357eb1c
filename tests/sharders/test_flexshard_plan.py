"""FlexShard's planner from tables to a valid plan: what is asked for is done, what cannot be is refused in one line."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_lab.cluster import Cluster, Device, Link
from recsys_lab.errors import PlanDoesNotFit, UserError
from recsys_lab.plan import ShardingPlan, Workload
from recsys_lab.plan.tiers import tier_rows
from recsys_lab.plan.validate import validate
from recsys_lab.precision import Precision
from recsys_lab.sharders.base import PlanInputs
from recsys_lab.sharders.flexshard import FlexShard
from recsys_lab.sharders.torchrec_row_wise import RowWise
from recsys_lab.tables import AccessStatistics, Table, zipf_mandelbrot

FP32 = Precision("fp32")
BIG = Table("big", 100_000, 16, ("f_big",), "none")
PAIR = Table("pair", 5_000, 8, ("f_left", "f_right"))
TINY = Table("tiny", 3, 16, ("f_tiny",))
TABLES = (BIG, PAIR, TINY)
LENGTHS = {"big": 40.0, "pair": 6.0, "tiny": 1.0}


def cluster(hosts: int = 2, ranks_per_host: int = 2, memory_gb: float = 16.0) -> Cluster:
    intra, cross = Link("intra", 50.0, 2.0, "test"), Link("cross", 5.0, 5.0, "test")
    return Cluster("test", hosts, ranks_per_host, Device("test", "cuda", memory_gb, 1000.0, {"fp32": 1.0}, "test"), intra, cross)


def statistics(tables: tuple[Table, ...] = TABLES, exponent: float = 1.1) -> AccessStatistics:
    laws = {t.name: zipf_mandelbrot(t.rows, exponent, 2.0).access(t.name, t.rows, LENGTHS[t.name], 500) for t in tables}
    return AccessStatistics(laws)


def workload(optimizer: str = "sgd", batch_size: int = 1024) -> Workload:
    return Workload(batch_size, 1000, 1e3, 2e3, 1e3, optimizer, "sgd", LENGTHS)


def plan(tables: tuple[Table, ...] = TABLES, where: Cluster | None = None, tiers: int = 3, **options) -> ShardingPlan:
    sharding = FlexShard(tiers=tiers, **options).plan(PlanInputs(tables, statistics(tables), where or cluster(), FP32, workload()))
    validate(sharding)
    return sharding


def rows_of(sharding: ShardingPlan, table: str) -> tuple[int, int, int]:
    counts = tier_rows(sharding.by_table[table][1])
    return counts["replicated"], counts["host_sharded"], counts["row_sharded"]


@given(
    st.sampled_from([(1, 1), (1, 4), (4, 1), (2, 2), (3, 2)]), st.sampled_from([2, 3]), st.floats(0, 2), st.integers(1, 5000), st.booleans()
)
@settings(max_examples=60)
def test_every_plan_is_valid_and_the_same_when_made_again(shape, tiers: int, exponent: float, batch_size: int, align: bool) -> None:
    inputs = PlanInputs(TABLES, statistics(exponent=exponent), cluster(*shape), FP32, workload(batch_size=batch_size))
    shardings = [FlexShard(tiers=tiers, align=align).plan(inputs) for _ in range(2)]
    validate(shardings[0])
    assert shardings[0] == shardings[1] == ShardingPlan.from_json(shardings[0].to_json())
    assert shardings[0].fingerprint == shardings[1].fingerprint
    if tiers == 2 or 1 in shape:
        assert all(tier_rows(p)["host_sharded"] == 0 for p in shardings[0].placements)


def test_hot_rows_of_all_tables_are_in_three_tiers() -> None:
    sharding = plan()
    assert sharding.sharder == "flexshard_3tier"
    assert all(n > 0 for n in rows_of(sharding, "big"))
    assert rows_of(sharding, "tiny")[0] == 3  # three rows that share a look-up a sample: all as hot as the hottest of the others
    two = plan(tiers=2)
    assert two.sharder == "flexshard_2tier"
    assert rows_of(two, "big")[0] > rows_of(sharding, "big")[0] > 0


def test_ranks_of_the_tiers() -> None:
    sharding = plan((BIG,), cluster(2, 3))
    ranks = {
        tier: [s.ranks for s in sharding.placements[0].shards if s.tier == tier] for tier in ("replicated", "host_sharded", "row_sharded")
    }
    assert ranks["replicated"] == [(0, 1, 2, 3, 4, 5)]
    assert ranks["host_sharded"] == [(0, 3), (1, 4), (2, 5)]
    assert ranks["row_sharded"] == [(0,), (1,), (2,), (3,), (4,), (5,)]


def test_goals() -> None:
    fast = {"ar_global_gb_s": 1000.0}  # so that replicas cost little time
    b = rows_of(plan((BIG,), tiers=2, bandwidths=fast), "big")
    a = rows_of(plan((BIG,), tiers=2, bandwidths=fast, goal="max_memory_savings"), "big")
    c = rows_of(plan((BIG,), tiers=2, bandwidths=fast, goal="max_communication_savings"), "big")
    assert a[0] < b[0] < c[0]
    assert rows_of(plan((BIG,), goal="all_replicated"), "big") == (100_000, 0, 0)
    three = rows_of(plan((BIG,), goal="max_communication_savings"), "big")
    assert three[0] > 0 and three[1] > 0
    assert rows_of(plan((BIG,), goal="max_memory_savings"), "big") == a


def test_more_memory_moves_more_rows_and_less_memory_fewer() -> None:
    fast = {"ar_global_gb_s": 1000.0}
    less, neutral, more = (rows_of(plan((BIG,), tiers=2, extra_memory_gb=gb, bandwidths=fast), "big")[0] for gb in (-1e-5, 0.0, 1e-5))
    assert less < neutral < more
    with pytest.raises(PlanDoesNotFit, match=r"no plan saves as much memory; given -1.0; allowed: -0\.0.* or more"):
        plan((BIG,), extra_memory_gb=-1.0)


def test_the_papers_multiplier_replicates_fewer_rows_than_ours() -> None:
    assert rows_of(plan(replica_multiplier=6.0), "big")[0] < rows_of(plan(), "big")[0]


def test_bandwidths_decide_where_the_middle_tier_ends() -> None:
    slow = plan((BIG,), extra_memory_gb=1.0, bandwidths={"ar_cross_gb_s": 0.1})
    fast = plan((BIG,), extra_memory_gb=1.0, bandwidths={"ar_cross_gb_s": 1000.0})
    assert rows_of(slow, "big")[1] < rows_of(fast, "big")[1]


def test_aligned_tiers_are_multiples_of_the_ranks() -> None:
    sharding, free = plan(align=True), plan()
    for name in ("big", "pair"):
        assert [n % 4 for n in rows_of(sharding, name)[:2]] == [0, 0]
        assert all(0 <= b - a < 4 for a, b in zip(rows_of(sharding, name)[:2], rows_of(free, name)[:2]))
    assert rows_of(sharding, "tiny") == (3, 0, 0)  # whole tables stay whole


def test_tables_may_be_left_whole() -> None:
    sharding = plan(force={"*": "row_wise", "tiny": "data_parallel", "pair": "table_wise"})
    assert [p.scheme for p in sharding.placements] == ["row_wise", "table_wise", "data_parallel"]
    assert sharding.placements[0] == RowWise().plan(PlanInputs(TABLES, statistics(), cluster(), FP32, workload())).placements[0]
    mixed = plan(force={"tiny": "row_wise"})
    assert [p.scheme for p in mixed.placements] == ["flexshard", "flexshard", "row_wise"]
    spread = plan(force={"*": "table_wise"})
    assert len({p.ranks for p in spread.placements}) == 3


def inputs(where: Cluster, batch_size: int) -> PlanInputs:
    return PlanInputs(TABLES, statistics(), where, FP32, workload(batch_size=batch_size))


def test_ranks_that_stand_in_for_a_cluster_keep_its_tiers() -> None:
    """Tiers follow from batch and links of the named cluster; a plan for the few ranks here would have others."""
    sharder, named, here = FlexShard(tiers=3), inputs(cluster(4, 4), 4096), inputs(cluster(1, 2), 64)
    adapted = sharder.adapt(named, here)
    validate(adapted)
    assert (adapted.hosts, adapted.ranks_per_host) == (1, 2)
    assert [tier_rows(p) for p in adapted.placements] == [tier_rows(p) for p in sharder.plan(named).placements]
    assert [tier_rows(p) for p in adapted.placements] != [tier_rows(p) for p in sharder.plan(here).placements]


def test_a_plan_without_tiers_has_no_reasons() -> None:
    whole, made_from = FlexShard(tiers=3, force={"*": "row_wise"}), inputs(cluster(2, 2), 64)
    assert whole.reasons(whole.plan(made_from), made_from) is None


def test_whole_tables_are_placed_for_the_ranks_that_there_are() -> None:
    named, here = inputs(cluster(4, 4), 4096), inputs(cluster(1, 2), 64)
    whole = FlexShard(tiers=3, force={"*": "row_wise"})
    assert whole.adapt(named, here) == whole.plan(here)
    mixed = FlexShard(tiers=3, force={"pair": "table_wise"}).adapt(named, here)
    assert [p.scheme for p in mixed.placements] == ["flexshard", "table_wise", "flexshard"]
    assert mixed.placements[1] == FlexShard(tiers=3, force={"pair": "table_wise"}).plan(here).placements[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tiers": 4}, "sharder.planner.tiers"),
        ({"goal": "memory_netural"}, "did you mean 'memory_neutral'"),
        ({"rule": "best"}, "given best; allowed: paper, optimal"),
        ({"goal": "all_replicated", "extra_memory_gb": 1.0}, "set sharder.planner.goal=memory_neutral"),
        ({"replica_multiplier": 0.5}, "given 0.5"),
        ({"bandwidths": {"a2a": 1.0}}, "sharder.planner.bandwidths"),
        ({"force": {"bg": "row_wise"}}, "no such table; given bg; .*did you mean 'big'"),
        ({"force": {"big": "column_wise"}}, "given column_wise; allowed: data_parallel, row_wise, table_wise"),
    ],
)
def test_impossible_options_are_refused(options: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        plan(**options)


def test_a_plan_too_big_for_a_rank_is_refused_with_what_would_fit() -> None:
    with pytest.raises(PlanDoesNotFit, match=r"lacks \d.*nearest change"):
        plan((BIG,), cluster(memory_gb=0.01), goal="all_replicated")


def test_fp16_tables_and_fp16_replicas_have_tiers_of_their_own() -> None:
    """As the break-points of test_flexshard_costs.py move: cheaper weights or gradients, more replicas."""

    def replicated(dtype: str, gradient: str) -> int:
        halves = tuple(replace(table, dtype=dtype) for table in TABLES)
        inputs = PlanInputs(halves, statistics(), cluster(), FP32, replace(workload(), replica_format=gradient))
        return sum(
            tier_rows(placement)["replicated"] for placement in FlexShard(tiers=2, goal="max_memory_savings").plan(inputs).placements
        )

    assert replicated("fp32", "fp32") < replicated("fp16", "fp32") < replicated("fp16", "fp16")
    assert replicated("fp32", "fp32") < replicated("fp32", "fp16")
