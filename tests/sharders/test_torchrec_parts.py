"""What TorchRec's planner is told: widths of column shards, memory, the topology; and options of sharders, by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from recsys_lab.errors import PlanDoesNotFit, UserError
from recsys_lab.plan import Placement, Shard, ShardingPlan
from recsys_lab.sharders.base import PlanInputs
from recsys_lab.sharders.options import check_scheme, forced_schemes
from recsys_lab.sharders.torchrec.columns import _allowed, _narrower, first_widths, idle_ranks, more_shards
from recsys_lab.sharders.torchrec.memory import uncounted_bytes
from recsys_lab.sharders.torchrec.planner import _could_fit, _does_not_fit, _search_of
from recsys_lab.sharders.torchrec.search import _topology
from recsys_lab.tables import AccessStatistics, Table, TableAccess
from tests.plan.plans import FP32, workload
from tests.simulate.clusters import cluster


def table(name: str = "t", dim: int = 48, rows: int = 10, dtype: str = "fp32") -> Table:
    return Table(name, rows, dim, (f"f_{name}",), dtype=dtype)


@pytest.mark.parametrize(("dim", "widths"), [(48, [4, 8, 12, 16, 24, 48]), (4, [4]), (6, [6]), (3, [3]), (8, [4, 8]), (20, [4, 20])])
def test_columns_are_cut_into_equal_multiples_of_four(dim: int, widths: list[int]) -> None:
    assert _allowed(table(dim=dim)) == widths


@pytest.mark.parametrize(("width", "narrower"), [(48, 24), (24, 12), (16, 8), (12, 4), (8, 4), (4, 4)])
def test_halves_or_less(width: int, narrower: int) -> None:
    assert _narrower(table(), width) == narrower


@pytest.mark.parametrize(
    ("forced", "width", "shards", "expected"),
    [
        (None, None, None, 48),  # 32 at least
        (None, 12, None, 12),
        (None, None, "3", 16),
        (None, None, "5", 12),  # 9.6 columns
        (None, None, "1", 48),
        (None, None, "100", 4),
        (None, None, "auto", 48),
        ("column_wise", None, None, 8),  # over 6 ranks
        ("table_column_wise", None, None, 16),  # over 3 of a host
        ("grid_shard", None, None, 24),  # over 2 hosts
        ("column_wise", 24, None, 24),
        ("column_wise", None, "2", 24),
        ("row_wise", 12, None, 48),  # not cut by columns
        ("row_wise", 5, None, 48),
    ],
)
def test_the_width_of_column_shards(forced: str | None, width: int | None, shards: str | None, expected: int) -> None:
    schemes = {"t": forced} if forced else {}
    assert first_widths((table(),), schemes, cluster(2, 3), width, shards) == {"t": expected}


@pytest.mark.parametrize(
    ("width", "shards", "says"),
    [
        (5, None, "column_shard_width.*given 5; allowed: 4, 8, 12, 16, 24, 48"),
        (None, "0", "no such number of shards.*given 0; allowed: auto, factor, 1 or more"),
        (None, "many", "no such number of shards"),
        (None, "-1", "no such number of shards"),
        (8, "2", "how wide column shards are or how many.*given 2 and 8"),
    ],
)
def test_widths_that_cannot_be(width: int | None, shards: str | None, says: str) -> None:
    with pytest.raises(UserError, match=says):
        first_widths((table(),), {}, cluster(2, 3), width, shards)


def placed(*each: tuple[Table, str, list[Shard]]) -> ShardingPlan:
    return ShardingPlan("", 1, 4, tuple(t for t, _, _ in each), tuple(Placement(t.name, s, tuple(shards)) for t, s, shards in each))


def whole(own: Table, *ranks: int) -> Shard:
    return Shard(ranks, 0, own.rows, 0, own.dim)


def test_ranks_are_idle_that_hold_only_what_all_hold() -> None:
    a, b = table("a"), table("b")
    copies = (b, "data_parallel", [whole(b, 0, 1, 2, 3)])
    assert idle_ranks(placed((a, "table_wise", [whole(a, 2)]), copies)) == 3
    assert idle_ranks(placed((a, "table_wise", [whole(a, 2)]), (b, "table_wise", [whole(b, 1)]))) == 2
    assert idle_ranks(placed(copies)) == 0


def counted(**lengths: float) -> AccessStatistics:
    return AccessStatistics({name: TableAccess(name, length, (10,), (length / 10,), "formula", "") for name, length in lengths.items()})


def test_the_heaviest_tables_are_halved_until_every_rank_has_a_shard() -> None:
    a, b = table("a"), table("b")
    both = placed((a, "table_wise", [whole(a, 0)]), (b, "table_wise", [whole(b, 0)]))
    free = {"a": None, "b": None}
    assert more_shards(both, counted(a=3.0, b=1.0), free) == {"a": 12}  # 1 shard, then 2, then 4: three idle ranks
    assert more_shards(both, counted(a=1.5, b=1.0), free) == {"a": 12, "b": 24}  # b when a has half of its columns, then a again
    assert more_shards(both, counted(a=2.0, b=1.0), free | {"a": ["table_wise"]}) == {"b": 12}
    assert more_shards(both, counted(a=2.0, b=1.0), {"a": ["row_wise"], "b": ["table_wise"]}) == {}
    apart = placed((a, "column_wise", [replace(whole(a, r), col_start=12 * r, col_stop=12 * r + 12) for r in range(4)]))
    assert more_shards(apart, counted(a=1.0), {"a": None}) == {}
    narrow = table("n", dim=4)
    assert more_shards(placed((narrow, "table_wise", [whole(narrow, 0)])), counted(n=1.0), {"n": None}) == {}


@pytest.mark.parametrize(
    ("dtype", "optimizer", "uncounted"),
    [
        ("fp32", "adam", 0),
        ("fp16", "sgd", 0),
        ("fp16", "adagrad", 2),
        ("bf16_master", "sgd", 4),
        ("bf16_master", "adam", 8),
        ("split_bf16_8", "sgd", 1),
    ],
)
def test_bytes_that_torchrec_does_not_count(dtype: str, optimizer: str, uncounted: int) -> None:
    """What is stored beside what a look-up reads, and state in FP32 of which it counts what a weight has."""
    assert uncounted_bytes(table(dtype=dtype), optimizer) == uncounted


@pytest.mark.parametrize("kind", ["cuda", "cpu"])
def test_the_topology_has_what_a_plan_may_fill_and_bytes_a_millisecond(kind: str) -> None:
    work = workload(dense_parameters=1000, dense_optimizer="sgd")
    topology = _topology(_search_of(PlanInputs((), AccessStatistics({}), cluster(2, 3, kind=kind), FP32, work), {}, {}))
    room = 68_000_000_000 - 8000
    assert (topology.world_size, topology.local_world_size, topology.compute_device) == (6, 3, kind)
    assert {d.storage.hbm for d in topology.devices} == {room if kind == "cuda" else 0}
    assert {d.storage.ddr for d in topology.devices} == {0 if kind == "cuda" else room}
    assert (topology.hbm_mem_bw, topology.ddr_mem_bw, topology.intra_host_bw, topology.inter_host_bw) == (1e9, 1e9, 1e8, 1e7)
    full = workload(dense_parameters=10**12)
    none = _topology(_search_of(PlanInputs((), AccessStatistics({}), cluster(2, 3, kind="cuda"), FP32, full), {}, {}))
    assert {d.storage.hbm for d in none.devices} == {0}


def test_tables_could_fit_if_all_ranks_together_hold_one_copy() -> None:
    """Two ranks of 8,500 bytes less 1,600 of the dense part: 13,800."""
    on, work = cluster(1, 2), workload(dense_parameters=100, sparse_optimizer="row_wise_adagrad")
    on = replace(on, device=replace(on.device, memory_gb=1e-5))
    assert _could_fit((table(rows=69, dim=49),), on, work) and not _could_fit((table(rows=70, dim=49),), on, work)


@pytest.mark.parametrize(
    ("types", "says"),
    [
        ({"a": ["table_wise"], "b": ["table_wise"]}, "the pieces are too large to be spread evenly"),
        ({"a": ["data_parallel"], "b": None}, "a rank lacks 500 B"),  # 6,000 of a, half of b's 6,000, in 8,500
        ({"a": ["data_parallel"], "b": ["table_wise"]}, "a rank lacks 3.5 kB"),
    ],
)
def test_why_no_plan_fits(types: dict[str, Any], says: str) -> None:
    on = cluster(1, 2)
    on = replace(on, device=replace(on.device, memory_gb=1e-5))
    tables = tuple(table(name, dim=15, rows=100) for name in "ab")
    work = workload(1, 0, sparse_optimizer="sgd", activation_bytes_per_sample=0.0)
    error = _does_not_fit(PlanInputs(tables, counted(a=1.0, b=1.0), on, FP32, work), types)
    assert isinstance(error, PlanDoesNotFit) and says in str(error) and "8.5 kB of tables a rank" in str(error)


def test_options_of_sharders() -> None:
    check_scheme("here", "row_wise", ("row_wise",), "no")
    with pytest.raises(UserError, match=r"^here: no; given rows; allowed: row_wise, table_wise"):
        check_scheme("here", "rows", ("row_wise", "table_wise"), "no")


def test_a_later_pattern_wins_and_one_without_a_table_is_refused() -> None:
    tables = [table(f"t{i}") for i in range(10)]
    force = {"t*": "row_wise", "t[12]": "table_wise", "t2": "row_wise"}
    schemes = forced_schemes(tables, force, ("row_wise", "table_wise"), "no")
    assert schemes == {f"t{i}": "row_wise" for i in range(10)} | {"t1": "table_wise"} and forced_schemes(tables, None, (), "no") == {}
    with pytest.raises(UserError, match=r"force.u1"):
        forced_schemes(tables, {"u1": "row_wise"}, ("row_wise",), "no")
    with pytest.raises(UserError, match=r"allowed: t0, t1, t2, t3, t4, t5, t6, t7(;|$)"):
        forced_schemes(tables[:8], {"nothing": "row_wise"}, ("row_wise",), "no")
