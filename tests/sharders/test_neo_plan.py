"""neo_4d: every table exactly once, memory kept, the same every time; each scheme where its costs are least; bounds below every plan."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_lab.config.choices import built
from recsys_lab.errors import PlanDoesNotFit, UserError
from recsys_lab.plan import ShardingPlan
from recsys_lab.plan.lower import lower
from recsys_lab.plan.memory import bytes_of_ranks, missing_bytes
from recsys_lab.plan.validate import validate
from recsys_lab.sharders.base import PlanInputs
from recsys_lab.sharders.neo import Neo4D, Reasons
from recsys_lab.sharders.neo.costs import Setting, Weights, cost_of_shard, costs_of_ranks
from recsys_lab.sharders.neo.cuts import column_ranges, cuts_of
from recsys_lab.sharders.neo.levels import OF_TORCHREC, SCHEMES
from recsys_lab.sharders.torchrec import TorchRec
from recsys_lab.sharders.torchrec_row_wise import RowWise
from recsys_lab.tables import AccessStatistics, Table, power_law_access
from tests.executor.sharded import FP32, small_cluster
from tests.plan.plans import workload


def tables(sizes: list[tuple[int, int]], pooling: str = "sum") -> tuple[Table, ...]:
    return tuple(Table(f"t{i}", rows, dim, (f"f{i}",), pooling) for i, (rows, dim) in enumerate(sizes))


def lengths(own_tables: tuple[Table, ...], *each: float) -> AccessStatistics:
    """Look-ups a sample of each table; the last figure for all that follow."""
    of_table = [each[min(i, len(each) - 1)] for i in range(len(own_tables))]
    return AccessStatistics({t.name: power_law_access(t.name, t.rows, length, 1.05) for t, length in zip(own_tables, of_table)})


def plan(*inputs: Any, **options: Any) -> ShardingPlan:
    return Neo4D(**options).plan(PlanInputs(*inputs))


def schemes(sharding: ShardingPlan) -> list[str]:
    return [p.scheme for p in sharding.placements]


@settings(max_examples=60)
@given(st.data())
def test_any_tables_are_covered_once_in_memory_and_the_same_every_time(data: st.DataObject) -> None:
    hosts, ranks = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    sizes = st.tuples(st.integers(1, 5000), st.sampled_from([1, 6, 16, 30, 64]))
    pooling = data.draw(st.sampled_from(["sum", "mean"]))
    own_tables = tables(data.draw(st.lists(sizes, min_size=1, max_size=12)), pooling)
    access = lengths(own_tables, *data.draw(st.lists(st.sampled_from([0.5, 1.0, 8.0, 100.0]), min_size=1, max_size=4)))
    allowed = data.draw(st.sampled_from([None, ["table_wise"], ["row_wise"], ["table_wise", "column_wise"], ["table_row_wise"]]))
    options = {"placement": data.draw(st.sampled_from(["greedy", "karmarkar_karp"])), "schemes": allowed}
    cluster = small_cluster(hosts, ranks, memory_gb=data.draw(st.sampled_from([16.0, 0.003, 0.001])))
    work = workload(batch_size=4, dense_parameters=10, activation_bytes_per_sample=1.0)
    try:
        sharding = plan(own_tables, access, cluster, FP32, work, **options)
    except PlanDoesNotFit:
        assert cluster.device.memory_gb < 16
        return
    validate(sharding)
    assert sharding == plan(own_tables, access, cluster, FP32, work, **options)
    assert missing_bytes(bytes_of_ranks(sharding, work), cluster)[0] <= 0
    for placement in sharding.placements:  # pieces that meet on a rank are one shard
        holders = [shard.ranks for shard in placement.shards]
        assert len(holders) == len(set(holders))
    lower(sharding, access, FP32, work)
    made_so = Neo4D(**options).best(PlanInputs(own_tables, access, cluster, FP32, work))
    assert made_so.plan == sharding and made_so.costs.worst_ms >= made_so.bound_ms * (1 - 1e-9)


@pytest.mark.parametrize("scheme", sorted({*SCHEMES} - {"column_wise", "grid_shard"}))  # of those, pieces may meet on a rank
def test_a_piece_fills_what_the_plan_s_memory_counts(scheme: str) -> None:
    cluster, work = small_cluster(2, 2), workload()
    for table in tables([(37, 16), (5000, 30)]):
        setting = Setting(lengths((table,), 3.0), cluster, FP32, work.batch_size, Weights())
        ((piece,),) = (cut.pieces for cut in cuts_of(0, table, [scheme], setting, work))
        memory = bytes_of_ranks(plan((table,), setting.access, cluster, FP32, work, schemes=[scheme]), work)
        bare = bytes_of_ranks(ShardingPlan("", 2, 2, (table,), ()), work)
        assert piece.size.lasting == max(a - b for a, b in zip(memory.lasting, bare.lasting))
        assert piece.size.passing == max(a + kept - b for a, kept, b in zip(memory.buffers, memory.kept, bare.buffers))


def test_no_plan_is_below_the_bound() -> None:
    """TorchRec's plans, row-wise ones and ours under every choice of schemes."""
    own_tables = tables([(n * 37 % 4000 + 1, 16 * (1 + n % 4)) for n in range(20)])
    access, cluster, work = lengths(own_tables, 1.0, 30.0, 2.0, 8.0), small_cluster(2, 4), workload(batch_size=64)
    setting = Setting(access, cluster, FP32, work.batch_size, Weights())
    inputs = PlanInputs(own_tables, access, cluster, FP32, work)
    best = Neo4D().best(inputs)
    others = [TorchRec().plan(inputs), RowWise().plan(inputs)]
    others += [plan(own_tables, access, cluster, FP32, work, schemes=[scheme]) for scheme in OF_TORCHREC]
    worst = [costs_of_ranks(other, setting).worst_ms for other in others]
    assert best.bound_ms <= min(worst) and best.costs.worst_ms <= min(worst) * (1 + 1e-9)


def test_costs_by_hand() -> None:
    """2 hosts of 2 ranks, links of 10 GB/s and 5 us, memory of 100 GB/s, 8 samples a rank; 50 rows of 16, 3 look-ups."""
    (table,) = tables([(50, 16)])
    setting = Setting(lengths((table,), 3.0), small_cluster(2, 2), FP32, 8, Weights())
    gb = 1e6  # bytes a ms
    ids, lengths_bytes, vectors, latency = 32 * 3 * 8, 32 * 4, 32 * 16 * 8, 0.01
    whole = cost_of_shard(table, "table_wise", 1.0, 16, setting)
    assert whole.communication == pytest.approx((ids + lengths_bytes + vectors) * 2 / 4 / 10 / gb + latency)  # two of four are far
    assert whole.load == pytest.approx(32 * 3 * 16 * 4 / 100 / gb)
    rows = cost_of_shard(table, "row_wise", 0.25, 16, setting)  # a ring: both ranks of a host drive one
    assert rows.communication == pytest.approx((ids / 4 + lengths_bytes) * 2 / 4 / 10 / gb + vectors * 3 / 4 / 10 / gb + latency)
    in_host = cost_of_shard(table, "table_row_wise", 0.5, 16, setting)
    assert in_host.communication == pytest.approx(
        (ids / 2 + lengths_bytes) * 2 / 4 / 10 / gb + vectors / 2 / 10 / gb + vectors / 2 / 2 / 10 / gb + latency
    )
    replicas = cost_of_shard(table, "data_parallel", 1.0, 16, setting)
    assert replicas.communication == pytest.approx(2 * 50 * 16 * 4 * 3 / 4 / 10 / gb + latency)
    assert replicas.load == pytest.approx((8 * 3 + 50) * 16 * 4 / 100 / gb)


def test_each_dimension_is_chosen_where_it_pays() -> None:
    """Section 4: few rows are replicated; what is too large for a rank is cut; one heavy table is cut so that ranks are even."""
    cluster, work = small_cluster(2, 4, memory_gb=2.0), workload(batch_size=512, sparse_optimizer="sgd")
    few = tables([(4, 64)] + [(20_000, 64)] * 40)
    assert Counter(schemes(plan(few, lengths(few, 4.0), cluster, FP32, work)))["data_parallel"] == 1
    giant = tables([(10_000_000, 64)] + [(20_000, 64)] * 40)
    assert schemes(plan(giant, lengths(giant, 4.0), cluster, FP32, work))[0] in ("table_row_wise", "grid_shard", "row_wise", "column_wise")
    heavy = tables([(20_000, 256)] + [(20_000, 16)] * 40)
    access = lengths(heavy, 60.0, 2.0)
    setting = Setting(access, cluster, FP32, work.batch_size, Weights())
    best, whole = (plan(heavy, access, cluster, FP32, work, schemes=only) for only in (None, ["table_wise"]))
    assert schemes(best)[0] not in ("table_wise", "data_parallel")
    assert costs_of_ranks(best, setting).imbalance < 1.2 < 2 < costs_of_ranks(whole, setting).imbalance


def test_copies_across_hosts_with_rows_inside_are_offered_where_they_are_named() -> None:
    """Too large to be on every rank, read so often that its vectors should not cross hosts. A wider choice is no plan of the default."""
    large = tables([(40_000, 64)], "none")
    access, cluster = lengths(large, 200.0), small_cluster(2, 4)
    work = workload(batch_size=512, lengths={"t0": 200.0}, access=access.tables)
    cluster = replace(cluster, cross_host=replace(cluster.cross_host, bandwidth_gb_s=1.0))
    inputs = PlanInputs(large, access, replace(cluster, device=replace(cluster.device, memory_gb=2.0)), FP32, work)
    planner = Neo4D(schemes=["table_wise", "row_wise", "flexshard"])
    sharding = planner.plan(inputs)
    (placement,) = sharding.placements
    validate(sharding)
    assert placement.scheme == "flexshard" and {s.tier for s in placement.shards} == {"host_sharded"}
    assert [s.ranks for s in placement.shards] == [(0, 4), (1, 5), (2, 6), (3, 7)]
    reasons = planner.reasons(sharding, inputs)
    assert reasons.chosen.worst_ms >= reasons.bound_ms * (1 - 1e-9)
    assert "flexshard" not in schemes(Neo4D().plan(inputs))
    table = large[0]
    (piece,) = next(c for c in cuts_of(0, table, ["flexshard"], planner._setting(inputs), work) if c.of_all).pieces
    memory, without = (bytes_of_ranks(p, work) for p in (sharding, replace(sharding, tables=(), placements=())))
    own = 2 * 4 * 512 * 200 * 64  # what a rank receives for its own samples, whoever holds the rows
    assert piece.size.passing == max(memory.buffers) - without.buffers[0] - own + memory.kept[0] > memory.kept[0] > 0
    assert not cuts_of(0, table, ["flexshard"], replace(planner._setting(inputs), cluster=small_cluster(1, 4)), work)


def test_what_does_not_fit_names_the_nearest_change() -> None:
    own_tables = tables([(100_000, 64)] * 8)
    with pytest.raises(PlanDoesNotFit, match="nearest change that would fit"):
        plan(own_tables, lengths(own_tables, 1.0), small_cluster(1, 2, memory_gb=0.05), FP32, workload())


def test_sequences_and_mistakes() -> None:
    cluster = small_cluster(2, 2)
    clicks = tables([(500, 16), (3, 16)], "none")
    work = workload(lengths={"t0": 9.0, "t1": 9.0})
    assert set(schemes(plan(clicks, lengths(clicks, 9.0), cluster, FP32, work))) <= {
        "table_wise",
        "column_wise",
        "row_wise",
        "data_parallel",
    }
    with pytest.raises(UserError, match=r"sharder\.planner\.schemes.*can be cut in none|can be cut in none.*"):
        plan(clicks, lengths(clicks, 9.0), cluster, FP32, work, schemes=["grid_shard"])
    for options, words in (
        ({"placement": "gredy"}, "did you mean 'greedy'"),
        ({"schemes": ["rows"]}, "row_wise"),
        ({"load_weight": -1.0}, "planner.load_weight: out of range"),
    ):
        with pytest.raises(UserError, match=words):
            plan(clicks, lengths(clicks, 9.0), cluster, FP32, work, **options)


def test_reasons_tell_bounds_and_other_choices() -> None:
    own_tables = tables([(5000, 16)] * 6)
    inputs = PlanInputs(own_tables, lengths(own_tables, 2.0), small_cluster(2, 2), FP32, workload())
    reasons = Neo4D().reasons(Neo4D().plan(inputs), inputs)
    assert Reasons.from_json(reasons.to_json()) == reasons
    assert {a.name for a in reasons.alternatives} == {"placement=greedy", "even_out=false", "table_wise only"}
    assert all(choice.worst_ms >= reasons.bound_ms * (1 - 1e-9) for choice in (reasons.chosen, *reasons.alternatives))
    assert "No plan can be below" in " ".join(reasons.explanation()["sentences"])


def test_hundreds_of_tables_come_near_the_bound() -> None:
    own_tables = tables([((n * 7919) % 100_000 + 10, 4 * (1 + n * 31 % 64)) for n in range(150)])
    access = lengths(own_tables, *[1.0 + (n * 17) % 40 for n in range(150)])
    cluster = built("cluster", "zionex_x16").reshaped(2, 8)
    inputs = PlanInputs(own_tables, access, cluster, FP32, workload(batch_size=512))
    best = Neo4D().best(inputs)
    assert best.fits and best.costs.worst_ms < 1.1 * best.bound_ms
    alone = Neo4D(even_out=False).best(inputs)
    assert best.costs.worst_ms < alone.costs.worst_ms


def test_column_ranges_cover_all_columns() -> None:
    assert column_ranges(30, 3) == [(0, 12), (12, 24), (24, 30)] and column_ranges(4, 8) == [(0, 4)]
