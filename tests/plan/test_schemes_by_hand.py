"""What every scheme sends, by hand: two hosts of two ranks with 3 samples each, in FP32."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recsys_lab.errors import UserError
from recsys_lab.plan import Placement, Shard, ShardingPlan
from recsys_lab.plan.context import Context
from recsys_lab.plan.lower import lower
from recsys_lab.plan.steps import HOST_TIER, TIER
from recsys_lab.plan.workload import TowerWork
from recsys_lab.schemes.in_host.placement import on_host, on_hosts
from recsys_lab.schemes.replicated.placement import on_every_rank
from recsys_lab.schemes.row_blocks.placement import in_row_blocks
from recsys_lab.schemes.tiers.lower import tier_of
from recsys_lab.schemes.tiers.placement import holders, in_tiers, reference_cases, served_ranks, validate
from recsys_lab.schemes.whole.placement import example, halves, in_columns, on_rank
from recsys_lab.tables import AccessStatistics, Table, TableAccess
from tests.plan.plans import FP32, workload

#: 10 rows of 4 columns with two features, 5 look-ups a sample; 6 rows of 6 with one and 2.
A, B = Table("a", 10, 4, ("a0", "a1")), Table("b", 6, 6, ("b0",), "mean")
ACCESS = AccessStatistics(
    {"a": TableAccess("a", 5.0, (5, 5), (0.8, 0.2), "formula", ""), "b": TableAccess("b", 2.0, (6,), (1 / 3,), "formula", "")}
)
WORLD = (0, 1, 2, 3)
ALL, HOSTS, PEERS = (WORLD,), ((0, 1), (2, 3)), ((0, 2), (1, 3))
Sent = tuple[tuple[tuple[int, ...], ...], tuple[float, ...], tuple[float, ...]]


def plan_of(tables: tuple[Table, ...], *placements: Placement, **more: object) -> ShardingPlan:
    return replace(ShardingPlan("by_hand", 2, 2, tables, placements), **more)  # type: ignore[arg-type]


def sent(plan: ShardingPlan, exchange: str = "all_to_all", towers: tuple[TowerWork, ...] = ()) -> dict[str, Sent]:
    """By name of each collective but sizes and the dense part's: groups, bytes sent, and bytes received where these differ."""
    work = workload(3, towers=towers)
    steps = lower(plan, ACCESS, FP32, work, exchange=exchange).collectives
    skipped = ("splits", "dense.all_reduce")
    return {s.name: (s.groups, s.bytes_of_rank, s.received_of_rank) for s in steps if not s.name.endswith(skipped)}


def test_rows_in_blocks() -> None:
    """60 look-ups of 12 samples fall on blocks of 3, 3, 3 and 1 rows. Parts of 8 columns are summed."""
    served = (18 * 8.0, 18 * 8.0, 18 * 8.0, 6 * 8.0)
    found = sent(plan_of((A,), in_row_blocks(A, WORLD)))
    assert found == {
        "row_wise.input.lengths": (ALL, (2 * 12 * 4.0,), ()),
        "row_wise.input.ids": (ALL, (15 * 8.0,), pytest.approx(served)),
        "row_wise.output.reduce_scatter": (ALL, (8 * 12 * 4.0,), ()),
        "row_wise.gradient.all_gather": (ALL, (8 * 3 * 4.0,), ()),
    }
    sequence = replace(A, pooling="none")
    found = sent(plan_of((sequence,), in_row_blocks(sequence, WORLD)))
    rows = pytest.approx(tuple(4 * 4 * n for n in (18, 18, 18, 6)))
    assert found["row_wise.output.all_to_all"] == (ALL, rows, (15 * 4 * 4.0,))
    assert found["row_wise.gradient.all_to_all"] == (ALL, (15 * 4 * 4.0,), rows)


def test_whole_tables_and_columns() -> None:
    """`a` is on rank 1; of `b` rank 0 has 4 columns and rank 3 two. A feature goes to each shard."""
    columns = in_columns(B, "column_wise", [(0, 0, 4), (3, 4, 6)])
    found = sent(plan_of((A, B), replace(on_rank(A, 1), scheme="column_wise"), columns))
    assert found == {
        "column_wise.input.lengths": (ALL, (4 * 3 * 4.0,), (12 * 4.0, 24 * 4.0, 0.0, 12 * 4.0)),
        "column_wise.input.ids": (ALL, (9 * 3 * 8.0,), (24 * 8.0, 60 * 8.0, 0.0, 24 * 8.0)),
        "column_wise.output.all_to_all": (ALL, (48 * 4.0, 96 * 4.0, 0.0, 24 * 4.0), (14 * 3 * 4.0,)),
        "column_wise.gradient.all_to_all": (ALL, (14 * 3 * 4.0,), (48 * 4.0, 96 * 4.0, 0.0, 24 * 4.0)),
    }
    sequence = replace(A, pooling="none")
    found = sent(plan_of((sequence,), on_rank(sequence, 2)))
    assert found["table_wise.output.all_to_all"] == (ALL, (0.0, 0.0, 12 * 5 * 4 * 4.0, 0.0), (3 * 5 * 4 * 4.0,))


def test_whole_tables_in_scatters() -> None:
    """Each rank with tables hands its pooled rows out: of each table, or of all of its tables at once."""
    tables = (A, B, replace(A, name="c", features=("c0",)))
    access = ACCESS.tables | {"c": ACCESS["a"]}
    plan = plan_of(tables, on_rank(A, 1), on_rank(B, 3), on_rank(tables[2], 1))

    def scattered(exchange: str) -> dict[str, Sent]:
        steps = lower(plan, AccessStatistics(access), FP32, workload(3), exchange=exchange).collectives
        return {s.name.split(".", 1)[1]: (s.tables, s.bytes_of_rank, s.received_of_rank) for s in steps if s.kind in ("scatter", "gather")}

    one_by_one = {"a": (1, 8), "c": (1, 4), "b": (3, 6)}
    expected = {}
    for name, (root, columns) in one_by_one.items():
        everything, own = tuple(columns * 12 * 4.0 if rank == root else 0.0 for rank in WORLD), (columns * 3 * 4.0,)
        expected[f"output.scatter.{name}"] = ((name,), everything, own)
        expected[f"gradient.gather.{name}"] = ((name,), own, everything)
    assert scattered("scatter_list") == expected
    together = scattered("fused_scatter")
    assert together["output.scatter.rank_1"] == (("a", "c"), (0.0, 12 * 12 * 4.0, 0.0, 0.0), (12 * 3 * 4.0,))
    assert together["gradient.gather.rank_3"] == (("b",), (6 * 3 * 4.0,), (0.0, 0.0, 0.0, 6 * 12 * 4.0))
    assert len(together) == 4


def test_rows_inside_hosts() -> None:
    """`a` is on the second host, 5 rows a rank. `b` has 4 columns on the first and two on the second, 3 rows a rank."""
    found = sent(plan_of((A,), on_host(A, (2, 3))))
    assert found == {
        "table_row_wise.input.lengths": (ALL, (2 * 2 * 3 * 4.0,), (0.0, 0.0, 24 * 4.0, 24 * 4.0)),
        "table_row_wise.input.ids": (ALL, (15 * 8.0,), (0.0, 0.0, 30 * 8.0, 30 * 8.0)),
        "table_row_wise.output.reduce_scatter": (HOSTS, (0.0, 0.0, 8 * 12 * 4.0, 8 * 12 * 4.0), ()),
        "table_row_wise.output.all_to_all": (PEERS, (0.0, 0.0, 8 * 6 * 4.0, 8 * 6 * 4.0), (8 * 3 * 4.0,)),
        "table_row_wise.gradient.all_to_all": (PEERS, (8 * 3 * 4.0,), (0.0, 0.0, 8 * 6 * 4.0, 8 * 6 * 4.0)),
        "table_row_wise.gradient.all_gather": (HOSTS, (0.0, 0.0, 8 * 6 * 4.0, 8 * 6 * 4.0), ()),
    }
    summed = replace(B, pooling="sum")
    found = sent(plan_of((summed,), on_hosts(summed, [((0, 1), 0, 4), ((2, 3), 4, 6)])))
    assert found["grid_shard.input.lengths"] == (ALL, (2 * 2 * 3 * 4.0,), ())
    assert found["grid_shard.input.ids"] == (ALL, (2 * 6 * 8.0,), ())
    assert found["grid_shard.output.reduce_scatter"] == (HOSTS, (48 * 4.0, 48 * 4.0, 24 * 4.0, 24 * 4.0), ())
    assert found["grid_shard.output.all_to_all"] == (PEERS, (24 * 4.0, 24 * 4.0, 12 * 4.0, 12 * 4.0), (18 * 4.0,))
    twice = sent(plan_of((summed,), on_hosts(summed, [((0, 1), 0, 4), ((0, 1), 4, 6)])))  # two shards on one host
    assert twice["grid_shard.input.ids"] == (ALL, (2 * 6 * 8.0,), (24 * 8.0, 24 * 8.0, 0.0, 0.0))


def test_replicas_send_gradients_of_all_rows() -> None:
    found = sent(plan_of((A, B), on_every_rank(A, WORLD), on_every_rank(B, WORLD)))
    assert found == {"data_parallel.gradient.all_reduce": (ALL, ((40 + 36) * 4.0,), ())}


def test_rows_in_tiers() -> None:
    """Of `a` 3 rows are on every rank, 5 in each host (3 and 2) and 2 on ranks 0 and 1: 2.4, 2.2 and 0.4 look-ups a sample."""
    found = sent(plan_of((A,), in_tiers(A, 3, 5, 2, 2)))
    assert found == {
        "replicated.gradient.all_reduce": (ALL, (3 * 4 * 4.0,), ()),
        "host_sharded.input.lengths": (HOSTS, (2 * 6 * 4.0,), ()),
        "host_sharded.input.ids": (HOSTS, pytest.approx((2.2 * 3 * 8,)), pytest.approx(tuple(13.2 * part * 8 for part in (0.6, 0.4) * 2))),
        "host_sharded.output.reduce_scatter": (HOSTS, (8 * 6 * 4.0,), ()),
        "host_sharded.gradient.all_gather": (HOSTS, (8 * 3 * 4.0,), ()),
        "host_sharded.gradient.all_reduce": (PEERS, (3 * 16.0, 2 * 16.0) * 2, ()),
        "row_sharded.input.lengths": (ALL, (2 * 12 * 4.0,), ()),
        "row_sharded.input.ids": (ALL, pytest.approx((0.4 * 3 * 8,)), pytest.approx((2.4 * 8, 2.4 * 8, 0, 0))),
        "row_sharded.output.reduce_scatter": (ALL, (8 * 12 * 4.0,), ()),
        "row_sharded.gradient.all_gather": (ALL, (8 * 3 * 4.0,), ()),
    }
    assert [(name, kept) for name, kept in found.items() if kept[0] == PEERS][0][0] == "host_sharded.gradient.all_reduce"


@pytest.mark.parametrize("hosts", [1, 2])
def test_a_tier_is_its_rows_with_the_look_ups_that_go_there(hosts: int) -> None:
    placement = in_tiers(A, 3, 5, hosts, 2)
    plan = ShardingPlan("by_hand", hosts, 2, (A, B), (placement, in_tiers(B, 6, 0, hosts, 2)))
    context = Context("flexshard", plan, tuple(zip(plan.tables, plan.placements)), ACCESS, FP32, workload(3))
    tiers = {tier: tier_of(context, tier) for tier in ("replicated", "host_sharded", "row_sharded")}
    assert {tier: [table.rows for table, _ in part.placed] for tier, part in tiers.items()} == {
        "replicated": [3, 6], "host_sharded": [5], "row_sharded": [2],
    }  # fmt: skip
    assert [part.access["a"].mean_length for part in tiers.values()] == pytest.approx([2.4, 2.2, 0.4])
    assert [(part.prefix, part.role, part.within, part.averaged) for part in tiers.values()] == [
        ("replicated", TIER, (), False),
        ("host_sharded", HOST_TIER, ((0, 1), (2, 3))[:hosts], hosts > 1),  # the only copy needs no average
        ("row_sharded", TIER, (), False),
    ]
    assert {s.tier for s in tiers["host_sharded"].placed[0][1].shards} == {"host_sharded"}


def test_placements_in_tiers() -> None:
    assert holders(2, 2) == {"replicated": [WORLD], "host_sharded": [(0, 2), (1, 3)], "row_sharded": [(0,), (1,), (2,), (3,)]}
    shards = in_tiers(A, 3, 5, 2, 2).shards
    assert [(s.ranks, s.row_start, s.row_stop, s.tier) for s in shards] == [
        (WORLD, 0, 3, "replicated"), ((0, 2), 3, 6, "host_sharded"), ((1, 3), 6, 8, "host_sharded"),
        ((0,), 8, 9, "row_sharded"), ((1,), 9, 10, "row_sharded"), ((2,), 10, 10, "row_sharded"), ((3,), 10, 10, "row_sharded"),
    ]  # fmt: skip
    assert [s.tier for s in in_tiers(A, 0, 10, 2, 2).shards] == ["host_sharded"] * 2
    plan = plan_of((A,), in_tiers(A, 3, 5, 2, 2))
    assert [served_ranks(shards[n], plan) for n in (0, 1, 3)] == [0, 2, 4]
    assert served_ranks(shards[1], replace(plan, hosts=1, ranks_per_host=3)) == 3


@pytest.mark.parametrize(
    ("number", "change", "says"),
    [
        (1, {"tier": "warm"}, "unknown tier; given warm; allowed: replicated, host_sharded, row_sharded"),
        (1, {"tier": ""}, "unknown tier; given none"),
        (0, {"ranks": (0, 1)}, "the replicated tier is held by other ranks"),
        (2, {"ranks": (1, 2)}, "the host_sharded tier is held by other ranks"),
        (0, {"row_stop": 2}, "block 0 of the host_sharded tier must hold rows 2 to 5, all columns; given rows 3-6"),
        (2, {"row_start": 7}, "block 0 of the host_sharded tier must hold rows 3 to 5"),
        (2, {"col_stop": 3}, "block 1 of the host_sharded tier must hold rows 6 to 8, all columns; given rows 6-8, columns 0-3"),
        (4, {"row_start": 8, "row_stop": 9}, "block 1 of the row_sharded tier must hold rows 9 to 10"),
    ],
)
def test_tiers_that_cannot_be(number: int, change: dict, says: str) -> None:
    placement = in_tiers(A, 3, 5, 2, 2)
    validate("here", A, placement, plan_of((A,), placement))
    shards = list(placement.shards)
    shards[number] = replace(shards[number], **change)
    with pytest.raises(UserError, match=says):
        validate("here", A, replace(placement, shards=tuple(shards)), plan_of((A,), placement))


def test_reference_plans_in_tiers() -> None:
    """All tables in three tiers; then each in others: three, two, one and the rest, one alone."""
    tables = tuple(Table(f"t{i}", 20, 4, (f"t{i}",)) for i in range(7))

    def rows(plan: ShardingPlan) -> list[list[int]]:
        tiers = ("replicated", "host_sharded", "row_sharded")
        return [[max((s.row_stop for s in p.shards if s.tier == t), default=0) for t in tiers] for p in plan.placements]

    first, second = reference_cases(tables, 2, 2)
    assert (first.hosts, first.ranks_per_host, rows(first)) == (2, 2, [[4, 9, 20]] * 7)
    others = [[10, 20, 0], [6, 0, 20], [0, 20, 0], [0, 0, 20], [20, 0, 0], [4, 9, 20], [10, 20, 0]]
    assert rows(second) == others
    odd = next(reference_cases((Table("t", 10, 4, ("t",)),), 1, 2))
    assert rows(odd) == [[2, 5, 10]]  # 2.5 host-sharded rows are 3


def test_examples_of_whole_tables() -> None:
    """Table i on rank 3 i + 1; columns in halves on two ranks, of one host or not."""
    assert [example(A, n, 2, 4, "table_wise").ranks for n in range(4)] == [(1,), (4,), (7,), (2,)]
    cut = [[(s.ranks[0], s.col_start, s.col_stop) for s in example(A, n, 2, 3, "column_wise").shards] for n in (0, 5)]
    assert cut == [[(0, 0, 2), (1, 2, 4)], [(5, 0, 2), (0, 2, 4)]]
    assert [example(A, n, 2, 3, "table_column_wise").ranks for n in range(3)] == [(0, 1), (3, 4), (0, 1)]
    assert halves(Table("t", 5, 1, ("t",)), (7, 8)) == [(7, 0, 1)] and halves(Table("t", 5, 5, ("t",)), (7,)) == [(7, 0, 2), (7, 2, 5)]


#: `a` in columns on the first site, 3 and 1 of them; the mean table `b` in rows on the second.
TOWERS = (
    Placement("a", "tower_column_wise", (Shard((0,), 0, 10, 0, 3), Shard((1,), 0, 10, 3, 4))),
    Placement("b", "tower_row_wise", (Shard((2,), 0, 3, 0, 6), Shard((3,), 3, 6, 0, 6))),
)


def test_tables_in_towers() -> None:
    """A rank and its peer have 6 samples. A mean sends its count with its parts."""
    plan = plan_of((A, B), *TOWERS, towers=(("a0", "a1"), ("b0",)), permute="rows")
    order = (WORLD,)
    found = sent(plan)
    columns, sites = (6 * 12 * 4.0, 2 * 12 * 4.0, 0.0, 0.0), (8 * 6 * 4.0, 8 * 6 * 4.0, 0.0, 0.0)
    given, taken = (8 * 6 * 4.0, 8 * 6 * 4.0, 6 * 6 * 4.0, 6 * 6 * 4.0), (14 * 3 * 4.0,)
    assert found == {
        "towers.input.lengths": (order, (6 * 3 * 4.0,), (24 * 4.0, 24 * 4.0, 12 * 4.0, 12 * 4.0)),
        "towers.input.ids": (order, (12 * 3 * 8.0,), (60 * 8.0, 60 * 8.0, 12 * 8.0, 12 * 8.0)),
        "towers.exchange.all_to_all": (((0, 1),), columns, sites),
        "towers.exchange.reduce_scatter": (((2, 3),), (0.0, 0.0, 7 * 12 * 4.0, 7 * 12 * 4.0), ()),
        "towers.output.all_to_all": (PEERS, given, taken),
        "towers.gradient.output.all_to_all": (PEERS, taken, given),
        "towers.gradient.exchange.all_to_all": (((0, 1),), sites, columns),
        "towers.gradient.exchange.all_gather": (((2, 3),), (0.0, 0.0, 6 * 6 * 4.0, 6 * 6 * 4.0), ()),
    }
    steps = {s.name: s for s in lower(plan, ACCESS, FP32, workload(3)).steps}
    assert steps["towers.permute"].bytes_of_rank == tuple(2 * 4 * n * 12.0 for n in (6, 2, 6, 6))
    assert steps["towers.gradient.permute"].bytes_of_rank == steps["towers.permute"].bytes_of_rank
    assert steps["towers.shuffle"].bytes_of_rank == tuple(2 * 4 * n * 6.0 for n in (8, 8, 6, 6))
    assert steps["towers.input.splits"].bytes_of_rank == (4 * 8.0,)  # one figure a rank
    waits = {name: steps[name].after for name in ("towers.permute", "towers.exchange.all_to_all", "towers.shuffle", "towers.update")}
    assert waits == {
        "towers.permute": ("towers.lookup",),
        "towers.exchange.all_to_all": ("towers.permute",),
        "towers.shuffle": ("towers.exchange.all_to_all", "towers.exchange.reduce_scatter"),
        "towers.update": ("towers.gradient.exchange.all_gather", "towers.gradient.permute"),
    }


def test_tower_modules() -> None:
    """Of 10 and 20 weights, which hand on 5 and 2 columns, with 40 and 80 bytes of activations; 6 samples of a rank and its peer."""
    works = (TowerWork(10, 5, 100.0, 200.0, 40.0), TowerWork(20, 2, 300.0, 500.0, 80.0))
    plan = plan_of((A, B), *TOWERS, towers=(("a0", "a1"), ("b0",)), permute="none")
    steps = {s.name: s for s in lower(plan, ACCESS, FP32, workload(3, towers=works)).steps}
    module, gradient = steps["towers.module"], steps["towers.gradient.module"]
    assert (module.bytes_of_rank, module.flops) == ((40 + 240.0, 40 + 240.0, 80 + 480.0, 80 + 480.0), 1800.0)
    assert (gradient.bytes_of_rank, gradient.flops) == (tuple(2 * size for size in module.bytes_of_rank), 3000.0)
    assert steps["towers.output.all_to_all"].bytes_of_rank == (5 * 24.0, 5 * 24.0, 2 * 24.0, 2 * 24.0)
    assert steps["towers.output.all_to_all"].received_of_rank == (7 * 12.0,)
    averaged, update = steps["towers.module.all_reduce"], steps["towers.module.update"]
    assert (averaged.groups, averaged.bytes_of_rank, averaged.after) == (HOSTS, (40.0, 40.0, 80.0, 80.0), ("towers.gradient.module",))
    assert (update.bytes_of_rank, update.after) == ((280.0, 280.0, 560.0, 560.0), ("towers.module.all_reduce",))  # adam: 28 a weight
    both = plan_of((A, B), *TOWERS, towers=(("a0", "a1"), ("b0",)), permute="none")
    one_site = [
        Placement("a", "tower_table_wise", (Shard((0,), 0, 10, 0, 4),)),
        Placement("b", "tower_table_wise", (Shard((0,), 0, 6, 0, 6),)),
    ]
    alone = replace(both, hosts=1, ranks_per_host=1, placements=tuple(one_site))
    steps = {s.name: s for s in lower(alone, ACCESS, FP32, workload(3, towers=works)).steps}
    assert steps["towers.module"].bytes_of_rank == (120 + 3 * 120.0,) and steps["towers.module"].flops == 3 * 400.0
    assert steps["towers.module.update"].after == ("towers.gradient.module",) and "towers.permute" not in steps
