"""Small parts of a plan by hand: bytes of optimizers and of the dense part, steps, tiers, memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from recsys_lab.errors import UserError
from recsys_lab.plan import Placement, Shard, ShardingPlan, Step, Steps
from recsys_lab.plan.context import Context, collective, copy_of_batch, folded, input_distribution, last_of
from recsys_lab.plan.dense import activation_share, dense_backward, dense_forward, dense_optimizer, optimizer_bytes
from recsys_lab.plan.lower import lower
from recsys_lab.plan.memory import RankMemory, bytes_of_ranks, missing_bytes
from recsys_lab.plan.scheme import Scheme, even_scheme, families, home_scheme, schemes_of
from recsys_lab.plan.steps import DENSE, DENSE_SYNC, SIZES, TIER
from recsys_lab.plan.table_work import table_steps
from recsys_lab.plan.tiers import is_tiered, tier_of_shard, tier_rows
from recsys_lab.plan.workload import TowerWork
from recsys_lab.precision import Precision
from recsys_lab.tables import AccessStatistics, Table, TableAccess
from tests.plan.plans import FP32, LENGTHS, TABLES, access, flexshard, plan, workload
from tests.plan.test_memory import cluster


@pytest.mark.parametrize(
    ("name", "of_table", "of_dense"),
    [("sgd", 0, 8), ("adagrad", 4 * 12, 12), ("row_wise_adagrad", 4 * 3, 8), ("adam", 8 * 12, 16), ("lamb", 8 * 12, 16)],
)
def test_optimizers_keep_state_a_weight_or_a_row(name: str, of_table: int, of_dense: int) -> None:
    """Of 3 rows of 4; of the dense part with its weights and gradients in FP32."""
    assert workload(sparse_optimizer=name).table_state_bytes(3, 4) == of_table
    assert workload(dense_optimizer=name, dense_parameters=5).dense_bytes == 5 * of_dense
    assert workload(dense_optimizer=name).dense_bytes_of(7) == 7 * of_dense


@pytest.mark.parametrize(
    ("stored", "compute", "share", "weight", "gradient"),
    [("fp32", "fp32", 1.0, 4, 4), ("bf16_master", "bf16", 0.5, 6, 2), ("split_bf16", "bf16", 0.5, 4, 2)],
)
def test_the_dense_part_moves_weights_and_activations(stored: str, compute: str, share: float, weight: int, gradient: int) -> None:
    """10 parameters; 3 samples of 100 bytes of activations in FP32."""
    work = workload(3, 10, dense_format=stored, activation_bytes_per_sample=100.0)
    precision = Precision("p", compute=compute, dense=stored, dense_comm="bf16")
    assert activation_share(precision) == share
    forward = dense_forward(precision, work, ("rows",))
    assert forward == Step(
        "dense.forward", "dense", "forward", (10 * gradient + 300 * share,), flops=3e6, after=("rows",), number_format=compute, role=DENSE
    )
    backward, sync = dense_backward(4, precision, work)
    assert backward == Step(
        "dense.backward", "dense", "backward", (20 * gradient + 600 * share,), flops=6e6, after=("dense.forward",), number_format=compute,
        role=DENSE,
    )  # fmt: skip
    assert sync == Step("dense.all_reduce", "all_reduce", "backward", (20.0,), ((0, 1, 2, 3),), after=("dense.backward",), role=DENSE_SYNC)
    assert dense_backward(1, precision, work) == [backward]
    assert optimizer_bytes(work) == 2 * weight + gradient + 16  # adam's two states, read and written
    assert dense_optimizer(4, work) == Step(
        "dense.optimizer", "update", "optimizer", (10.0 * (2 * weight + gradient + 16),), after=("dense.all_reduce",), role=DENSE
    )
    assert dense_optimizer(1, work).after == ("dense.backward",)


def test_a_batch_is_copied_with_its_dense_features_and_labels() -> None:
    """5 tables' 16 look-ups of 8 bytes and 6 lengths of 4; 13 dense features and a label."""
    step = copy_of_batch(TABLES, access(TABLES, LENGTHS), workload(10, dense_features=13))
    assert step == Step("input.copy", "host_to_device", "input", (10.0 * (16 * 8 + 6 * 4 + 14 * 4),))


def test_a_step_s_figures_are_of_a_rank_or_of_all() -> None:
    alike, each = Step("a", "all_reduce", "backward", (3.0,), ((0, 1), (2, 3))), Step("b", "lookup", "forward", (1.0, 5.0, 2.0, 0.0))
    assert [alike.bytes_on(rank) for rank in (0, 3)] == [3.0, 3.0] and [each.bytes_on(rank) for rank in (0, 1, 3)] == [1.0, 5.0, 0.0]
    assert (alike.max_bytes, each.max_bytes) == (3.0, 5.0) and (alike.is_collective, each.is_collective) == (True, False)
    assert alike.group_of(3) == (2, 3) and each.group_of(0) is None and Step("c", "gather", "input", (1.0,), ((1, 2),)).group_of(0) is None
    steps = Steps(4, 6, (each, alike))
    assert steps.collectives == (alike,) and steps.collectives_of(2) == [("all_reduce", (2, 3), 3.0)]


def test_figures_fold_to_one_where_all_are_alike() -> None:
    assert folded([2, 2, 2]) == (2.0,) and folded([2, 3, 2]) == (2.0, 3.0, 2.0) and folded(np.array([7.0])) == (7.0,)


def test_a_collective_of_single_ranks_is_none_and_what_is_received_is_told_where_it_differs() -> None:
    def steps_of(groups: Any, sent: Any, received: Any = None) -> list[Step]:
        return collective("s", "all_to_all", "input", groups, sent, ("x",), ("t",), received)

    assert steps_of([(0,), (1,)], 5.0) == []
    (alike,) = steps_of([(0, 1)], 5.0, np.array([5.0, 5.0]))
    assert (alike.bytes_of_rank, alike.received_of_rank, alike.after, alike.tables) == ((5.0,), (), ("x",), ("t",))
    (uneven,) = steps_of([(0, 1)], 5.0, np.array([4.0, 6.0]))
    assert uneven.received_of_rank == (4.0, 6.0)


def test_last_steps_are_those_that_none_waits_for() -> None:
    steps = [
        Step("a", "lookup", "forward", (1.0,)),
        Step("b", "lookup", "forward", (1.0,), after=("a",)),
        Step("c", "lookup", "forward", (1.0,)),
    ]
    assert last_of(steps, "other") == ("b", "c") and last_of([], "other") == ("other",)


TABLE = Table("t", 10, 4, ("a", "b"), dtype="bf16_master")


#: Five rows of 0.4 and five of 0.1: 2.5 look-ups.
COUNTED = AccessStatistics({"t": TableAccess("t", 2.5, (5, 5), (0.4, 0.1), "formula", "by hand")})


def context(placement: Placement, hosts: int = 1, ranks: int = 2, **more: Any) -> Context:
    sharding = ShardingPlan("by_hand", hosts, ranks, (TABLE,), (placement,))
    return Context("s", sharding, ((TABLE, placement),), COUNTED, FP32, workload(3, sparse_optimizer="row_wise_adagrad"), **more)


def test_table_work_by_hand() -> None:
    """Six samples of two ranks look up 15 rows, 6 of 10 in rank 0's; a row of BF16 is 8 bytes, with its master 24, its state 4."""
    shards = (Shard((0,), 0, 6, 0, 4), Shard((1,), 6, 10, 0, 4))
    look, update = table_steps(context(Placement("t", "row_wise", shards)), ("ids",), ("gradients",))
    assert (look.name, look.kind, look.phase, look.after, look.tables) == ("s.lookup", "lookup", "forward", ("ids",), ("t",))
    assert look.bytes_of_rank == (9 * 8.0, 6 * 8.0) and look.rows_of_rank == update.rows_of_rank == (9.0, 6.0)
    assert look.shards_of_rank == (1.0,) and look.written_of_rank == (6 * 2 * 4 * 4.0,)
    distinct = 5 * (1 - 0.6**6) + 5 * (1 - 0.9**6)
    assert update.bytes_of_rank == pytest.approx([rows * 16 + 2 * distinct * share * 28 for rows, share in ((9, 0.6), (6, 0.4))])
    assert look.repeated_of_rank == pytest.approx([(rows - distinct * share) * 8 for rows, share in ((9, 0.6), (6, 0.4))])
    assert update.repeated_of_rank == (0.0,)  # 12 bags have more gradients than look-ups
    assert (update.name, update.kind, update.phase, update.after, update.written_of_rank) == (
        "s.update",
        "update",
        "backward",
        ("gradients",),
        (),
    )


def test_work_at_home_is_a_rank_s_own_batch_and_averaged_rows_are_all_updated() -> None:
    everywhere = Placement("t", "data_parallel", (Shard((0, 1), 0, 10, 0, 4),))
    look, update = table_steps(context(everywhere, at_home=True, averaged=True), (), ())
    assert (look.rows_of_rank, look.bytes_of_rank, look.written_of_rank) == ((7.5,), (60.0,), (3 * 2 * 16.0,))
    assert update.bytes_of_rank == pytest.approx((7.5 * 16 + 2 * 10 * 28,))
    distinct = 5 * (1 - 0.6**3) + 5 * (1 - 0.9**3)
    assert look.repeated_of_rank == pytest.approx(((7.5 - distinct) * 8,))
    assert update.repeated_of_rank == (1.5 * 16,)  # six bags


def test_groups_and_batches_of_a_context() -> None:
    one = Placement("t", "table_wise", (Shard((0,), 0, 10, 0, 4),))
    over_all, inside = context(one, 2, 3), context(one, 2, 3, within=((0, 1, 2), (3, 4, 5)))
    assert over_all.groups == ((0, 1, 2, 3, 4, 5),) and inside.groups == over_all.hosts == ((0, 1, 2), (3, 4, 5))
    assert over_all.peers == inside.replicas == ((0, 3), (1, 4), (2, 5)) and over_all.replicas == tuple((rank,) for rank in range(6))
    assert (over_all.group_batch, inside.group_batch, over_all.global_batch, over_all.batch) == (18, 9, 18, 3)
    assert (over_all.ids_per_sample, over_all.features, over_all.output_columns, over_all.names) == (2.5, 2, 8, ("t",))
    assert not over_all.is_sequence and over_all.per_rank().tolist() == [0.0] * 6


def test_ids_travel_behind_their_lengths_and_both_behind_their_sizes() -> None:
    """3 sizes of 8 bytes for each rank of the group; lengths of 4 bytes, ids of 8."""
    sizes, lengths, ids = input_distribution(
        context(Placement("t", "row_wise", ())), 10.0, 20.0, np.array([10.0, 10.0]), np.array([15.0, 25.0])
    )
    assert (sizes.name, sizes.role, sizes.bytes_of_rank, sizes.after) == ("s.input.splits", SIZES, (3 * 2 * 8.0,), ())
    assert (lengths.name, lengths.bytes_of_rank, lengths.received_of_rank, lengths.after) == ("s.input.lengths", (40.0,), (), (sizes.name,))
    assert (ids.bytes_of_rank, ids.received_of_rank, ids.after) == ((160.0,), (120.0, 200.0), (sizes.name,))
    assert sizes.groups == lengths.groups == ids.groups == ((0, 1),)


def test_fp8_rows_have_a_scale_each_and_sums_have_16_bits() -> None:
    """A byte a number and four a row; a reduce-scatter sums FP16, and the gradients behind it are BF16."""
    own = replace(context(Placement("t", "row_wise", ())), precision=Precision("p", forward_comm="fp8", backward_comm="fp8"))
    rows, world = (80.0, 10.0), [(0, 1)]
    steps = [own.rows_there(kind, world, rows)[0] for kind in ("all_to_all", "scatter", "reduce_scatter")]
    steps += [own.gradients_back(kind, world, rows)[0] for kind in ("all_to_all", "gather", "all_gather")]
    assert [step.bytes_of_rank for step in steps] == [(120.0,), (120.0,), (160.0,)] * 2


def test_rows_travel_as_the_precision_says() -> None:
    own = replace(context(Placement("t", "row_wise", ()), role=TIER), precision=Precision("p", forward_comm="bf16", backward_comm="fp32"))
    (there,) = own.rows_there("all_to_all", [(0, 1)], (10.0, 1.0), (np.array([5.0, 15.0]), 1.0))
    assert (there.name, there.phase, there.bytes_of_rank, there.received_of_rank) == (
        "s.output.all_to_all",
        "forward",
        (20.0,),
        (10.0, 30.0),
    )
    assert (there.after, there.tables, there.role) == (("s.lookup",), ("t",), TIER)
    (back,) = own.gradients_back("gather", [(0, 1)], (10.0, 1.0), name="other", tables=("u",))
    assert (back.name, back.phase, back.bytes_of_rank, back.after, back.tables) == (
        "s.other",
        "backward",
        (40.0,),
        ("dense.backward",),
        ("u",),
    )


def test_without_overlap_all_but_ids_block() -> None:
    sharding = plan(("table_wise",), 2, 2)
    for overlap in (True, False):
        steps = lower(sharding, access(TABLES, LENGTHS), FP32, workload(), overlap=overlap).steps
        assert {s.name for s in steps if s.blocks} == (
            set() if overlap else {s.name for s in steps if s.is_collective and s.phase != "input"}
        )


def test_steps_stand_in_the_order_in_which_they_are_issued() -> None:
    """Sizes of all schemes, then their ids; look-ups before exchanges; the backward in the other order."""
    steps = lower(plan(("table_wise", "row_wise"), 1, 2), access(TABLES, LENGTHS), FP32, workload())
    assert [s.name for s in steps.steps] == [
        "input.copy",
        "table_wise.input.splits", "row_wise.input.splits",
        "table_wise.input.lengths", "table_wise.input.ids", "row_wise.input.lengths", "row_wise.input.ids",
        "table_wise.lookup", "row_wise.lookup", "table_wise.output.all_to_all", "row_wise.output.reduce_scatter",
        "dense.forward", "dense.backward", "dense.all_reduce",
        "row_wise.gradient.all_gather", "row_wise.update", "table_wise.gradient.all_to_all", "table_wise.update",
        "dense.optimizer",
    ]  # fmt: skip
    assert (steps.world_size, steps.batch_size) == (2, 6)
    assert {s.name: s.after for s in steps.steps if s.kind in ("lookup", "update")} == {
        "table_wise.lookup": ("table_wise.input.lengths", "table_wise.input.ids"),
        "row_wise.lookup": ("row_wise.input.lengths", "row_wise.input.ids"),
        "row_wise.update": ("row_wise.gradient.all_gather",),
        "table_wise.update": ("table_wise.gradient.all_to_all",),
        "dense.optimizer": ("dense.all_reduce",),
    }
    assert next(s for s in steps.steps if s.name == "dense.forward").after == (
        "table_wise.output.all_to_all",
        "row_wise.output.reduce_scatter",
    )


MIXED = flexshard(Table("t", 20, 4, ("a",)), 3, 5, 2, 2)


def test_rows_in_tiers_are_counted() -> None:
    assert tier_rows(MIXED) == {"replicated": 3, "host_sharded": 5, "row_sharded": 12} and is_tiered(MIXED)
    table = Table("t", 20, 8, ("a",))
    whole, copies = (plan((scheme,), 2, 2, (table,)).placements[0] for scheme in ("grid_shard", "data_parallel"))
    assert tier_rows(whole) == {"replicated": 0, "host_sharded": 0, "row_sharded": 20}
    assert tier_rows(copies) == {"replicated": 20, "host_sharded": 0, "row_sharded": 0}
    assert not is_tiered(whole) and tier_of_shard(copies, copies.shards[0]) == "replicated"
    assert tier_of_shard(MIXED, MIXED.shards[1]) == "host_sharded"


def test_families_are_in_the_order_of_their_first_tables() -> None:
    sharding = plan(("row_wise", "table_wise"), 1, 2)
    assert {name: [t.name for t, _ in members] for name, members in families(sharding).items()} == {
        "row_wise": ["t0", "t2", "t4"],
        "table_wise": ["t1", "t3"],
    }
    assert [scheme.name for scheme in schemes_of(sharding)] == ["row_wise", "table_wise"]
    assert (home_scheme().name, even_scheme().name) == ("data_parallel", "row_wise")


def test_a_holder_serves_all_ranks_unless_it_serves_its_own_alone() -> None:
    """Of 3 samples a rank and one feature, 4 ranks in blocks of rows have 12 pooled rows each; replicated tables send none."""
    table = Table("t", 40, 8, ("a",))
    for scheme, rows in (("row_wise", 12), ("data_parallel", 0)):
        sharding = plan((scheme,), 2, 2, (table,))
        buffers = bytes_of_ranks(sharding, workload(3, 5)).buffers
        without = bytes_of_ranks(replace(sharding, tables=(), placements=()), workload(3, 5)).buffers
        own, gradient = 2 * 4 * 3 * 8, 4 * 40 * 8 if scheme == "data_parallel" else 0
        assert {a - b for a, b in zip(buffers, without)} == {2 * 4 * rows * 8 + own + gradient}
    assert Scheme.__dataclass_fields__["tier"].default == "row_sharded"


def test_what_is_missing_is_of_the_rank_that_lacks_most() -> None:
    """10 bytes of memory, 2 reserved: 8 for what lasts, 10 in all."""
    on = cluster(1, 2, 1e-8)
    assert missing_bytes(RankMemory((3, 9), (0, 0), (0, 0), (0, 0), (0, 0)), on) == (1, 1)
    assert missing_bytes(RankMemory((8, 8), (0, 0), (0, 0), (2, 1), (0, 0)), on) == (0, 0)
    assert missing_bytes(RankMemory((1, 2), (1, 1), (1, 1), (9, 5), (4, 1)), on) == (6, 0)
    assert missing_bytes(RankMemory((1, 1), (1, 1), (1, 1), (1, 3), (1, 1)), on) == (-3, 1)


def test_tower_modules_are_on_every_rank_where_no_scheme_says_otherwise() -> None:
    work = workload(3, 5, towers=(TowerWork(10, 4, 1.0, 2.0, 100.0), TowerWork(20, 4, 1.0, 2.0, 50.0)))
    sharding = plan(("row_wise",), 1, 2)
    with_towers, without = (bytes_of_ranks(sharding, w) for w in (work, replace(work, towers=())))
    assert [a - b for a, b in zip(with_towers.dense, without.dense)] == [30 * 16] * 2  # adam
    assert [a - b for a, b in zip(with_towers.buffers, without.buffers)] == [3 * 150] * 2


def test_sequences_are_held_row_by_row() -> None:
    """3 look-ups a sample: a rank with a quarter of the rows serves a quarter of those of four ranks' 2 samples."""
    table = Table("t", 8, 4, ("a",), "none")
    memory = bytes_of_ranks(plan(("row_wise",), 2, 2, (table,)), workload(2, lengths={"t": 3.0}, activation_bytes_per_sample=0.0))
    assert memory.buffers == (2 * 4 * 4 * (2 * 3 + 2 * 3 * 4 // 4),) * 4
    in_tiers = ShardingPlan("by_hand", 2, 2, (table,), (flexshard(table, 4, 0, 2, 2),))  # of 4 rows that travel each rank has one
    memory = bytes_of_ranks(in_tiers, workload(2, lengths={"t": 3.0}, activation_bytes_per_sample=0.0))
    assert memory.buffers == (2 * 4 * 4 * (2 * 3 + 2 * 3 * 4 // 4) + 4 * 4 * 4,) * 4
    hot = TableAccess("t", 3.0, (4, 4), (0.5, 0.25), "formula", "by hand")  # 2 of 3 look-ups are of the replicated rows
    memory = bytes_of_ranks(in_tiers, workload(2, lengths={"t": 3.0}, activation_bytes_per_sample=0.0, access={"t": hot}))
    of_ranks = np.array(memory.buffers) - (2 * 4 * 4 * 2 * 3 + 4 * 4 * 4)  # hot_rows.py deals them: of all ranks together
    assert of_ranks.sum() == 2 * 4 * 4 * (2 * 1 * 4) and of_ranks.min() >= 0
    in_hosts = ShardingPlan("by_hand", 2, 2, (table,), (flexshard(table, 0, 4, 2, 2),))  # 2 look-ups stay in the host of two ranks
    memory = bytes_of_ranks(in_hosts, workload(2, lengths={"t": 3.0}, activation_bytes_per_sample=0.0, access={"t": hot}))
    assert sum(memory.buffers) == 4 * (2 * 4 * 4 * (2 * 3 + 2 * 2 * 2 // 2 + 2 * 1 * 4 // 4) + 4 * 2 * 4)


def test_tiers_are_added_up_in_memory_and_taken_apart_again() -> None:
    """2 samples of 3 ids, 8 columns in each of two tiers: 36 + 2 x 11 passes over an id, 3 x 8 numbers added, 2 x 8 laid side by side."""
    table = Table("t", 20, 8, ("a",))
    sharding = ShardingPlan("by_hand", 2, 2, (table,), (flexshard(table, 4, 0, 2, 2),))
    steps = {step.name: step for step in lower(sharding, access((table,), {"a": 3}), FP32, workload(2)).steps}
    assert steps["tiers.merge"].max_bytes == 2 * (8 * 3 * (36 + 2 * 11) + 4 * (3 * 8 + 2 * 8))
    split = steps["tiers.gradient.split"]
    assert split.max_bytes == 2 * 4 * 2 * 16 and split.after == ("dense.backward",)
    followers = [step for step in steps.values() if split.name in step.after]
    assert followers and not any("dense.backward" in step.after for step in followers)


def test_column_shards_of_sequences_have_one_width() -> None:
    tables = tuple(Table(f"s{dim}", 40, dim, (f"f{dim}",), "none") for dim in (8, 16))
    column_wise = schemes_of(plan(("column_wise",), 1, 2, (TABLES[0],)))[0]
    of = [plan(("column_wise",), 1, 2, (table,)).placements[0] for table in tables]
    assert column_wise.check_execution is not None
    column_wise.check_execution([(tables[0], of[0])])
    column_wise.check_execution([(TABLES[0], of[0]), (TABLES[2], of[1])])  # pooled ones may differ
    with pytest.raises(UserError, match="one width for the column shards of all tables of sequences; given 4, 8"):
        column_wise.check_execution(list(zip(tables, of)))
