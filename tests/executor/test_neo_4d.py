"""Plans of neo_4d train as one process with whole tables does, and their recorded collectives are their steps.

Each is a plan as the planner makes it: mixed schemes, dimensions of all sizes, column shards of different widths.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from recsys_lab.plan import ShardingPlan
from recsys_lab.sharders.base import PlanInputs
from recsys_lab.sharders.neo import Neo4D
from recsys_lab.tables import Table
from tests.executor.reference import Outcome, Sample, samples, train_unsharded
from tests.executor.sharded import FP32, small_cluster, train, workload
from tests.executor.test_sharded_equals_unsharded import DENSE, ROWS, STEPS
from tests.executor.test_sharded_equals_unsharded import check as check_training
from tests.plan.plans import LENGTHS, access
from tests.plan.test_volume import check as check_volume
from tests.ranks import run_ranks

TABLES = (
    Table("few", 3, 12, ("a",)),
    Table("shared", 33, 16, ("b", "c")),
    Table("wide", 40, 40, ("d",)),
    Table("odd", 51, 6, ("e",)),
    Table("long", 21, 28, ("f",)),
)
#: One of each, for a plan of many exchanges side by side.
EACH = ("data_parallel", "table_row_wise", "column_wise", "table_wise", "grid_shard")


def planned(tables: tuple[Table, ...], schemes: list[str] | None = None) -> ShardingPlan:
    inputs = PlanInputs(tables, access(tables, LENGTHS), small_cluster(2, 2), FP32, workload(batch_size=300))
    return Neo4D(schemes=schemes).plan(inputs)


def mixed() -> ShardingPlan:
    alone = [planned((table,), [scheme]).placements[0] for table, scheme in zip(TABLES, EACH)]
    return replace(planned(TABLES), placements=tuple(alone))


WIDE = tuple(table for table in TABLES if table.dim > 8)
PLANS = [
    planned(TABLES),
    planned(TABLES, ["table_wise", "data_parallel"]),
    mixed(),
    planned(WIDE, ["column_wise"]),
    planned(WIDE, ["grid_shard"]),
]


def train_each(cases: list[tuple[ShardingPlan, list[Sample]]]) -> list[Outcome]:
    return [train(plan.tables, plan, batches, "adagrad", DENSE) for plan, batches in cases]


def test_the_plans_are_as_various_as_they_should_be() -> None:
    assert {p.scheme for p in PLANS[0].placements} == {"column_wise"}  # of one piece too: they are exchanged with the others
    assert {p.scheme for p in PLANS[1].placements} == {"table_wise", "data_parallel"}
    assert tuple(p.scheme for p in PLANS[2].placements) == EACH
    assert any(len({shard.cols for shard in p.shards}) > 1 for plan in PLANS[2:] for p in plan.placements)


@pytest.mark.timeout(120)
def test_training_equals_the_unsharded_model() -> None:
    batches = {plan.tables: samples(plan.tables, STEPS, ROWS, DENSE) for plan in PLANS}
    cases = [(plan, batches[plan.tables]) for plan in PLANS]
    ranks = run_ranks(train_each, 2, 2, cases)
    references = {tables: train_unsharded(tables, batches[tables], "adagrad", DENSE) for tables in batches}
    for number, plan in enumerate(PLANS):
        what = str([p.scheme for p in plan.placements])
        check_training([rank[number] for rank in ranks], references[plan.tables], what, columns_cut=False, optimizer="adagrad")


@pytest.mark.timeout(120)
def test_recorded_collectives_equal_the_steps() -> None:
    check_volume(PLANS)
