"""Planners weigh ranks with hot rows: by our simulator no plan is slower than the same planner's that takes all rows to be alike."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from recsys_lab.config.choices import built
from recsys_lab.plan import Placement, ShardingPlan
from recsys_lab.plan.lower import lower
from recsys_lab.plan.workload import Workload
from recsys_lab.sharders.base import PlanInputs
from recsys_lab.sharders.dmt import DMT
from recsys_lab.sharders.neo.costs import costs_of_ranks
from recsys_lab.sharders.neo.planner import Neo4D
from recsys_lab.sharders.torchrec import TorchRec
from recsys_lab.simulate.simulated import iteration_ms
from recsys_lab.tables import AccessStatistics, Table, TableAccess
from tests.executor.sharded import FP32

CLUSTER, PROFILE = built("cluster", "v100x16"), built("profile", "torchrec")
#: By our simulator a plan may be so much slower where Neo's cost model, which chooses, thinks otherwise. Of bags sums travel, however hot
#: their rows, so little depends on it: that model weighs a look-up four times, which the simulator does not.
MORE = {"none": 1.01, "sum": 1.05}


def inputs(pooling: str, draw: np.random.Generator, ranks: int = 2) -> PlanInputs:
    """A few large tables, of which some have one row with a tenth to half of all look-ups."""
    tables, access = [], {}
    for number in range(int(draw.integers(2, 5))):
        rows, length, share = int(draw.integers(2, 40)) * 100_000, float(draw.integers(20, 300)), float(draw.choice([0.0, 0.1, 0.3, 0.5]))
        tables.append(Table(f"t{number}", rows, 128, (f"f{number}",), pooling))
        p = (share * length, (1 - share) * length / (rows - 1))
        access[f"t{number}"] = TableAccess(f"t{number}", length, (1, rows - 1), p, "formula", "one hot row")
    cluster = CLUSTER.reshaped(2, ranks)
    lengths = {name: one.mean_length for name, one in access.items()}
    work = Workload(512, 1000, 1e3, 2e3, 1e3, "row_wise_adagrad", "sgd", lengths, access=access)
    return PlanInputs(tuple(tables), AccessStatistics(access), cluster, FP32, work)


def ms(plan: ShardingPlan, given: PlanInputs) -> float:
    steps = lower(plan, given.access, given.precision, given.workload, hot_rows=True)
    return iteration_ms(steps, given.cluster, PROFILE, plan, given.workload, None, None)


def alike(given: PlanInputs) -> PlanInputs:
    """What planners see where nothing is known of the rows."""
    access = {
        t.name: replace(given.access[t.name], bucket_rows=(t.rows,), bucket_p=(given.access[t.name].mean_length / t.rows,))
        for t in given.tables
    }
    return replace(given, access=AccessStatistics(access), workload=replace(given.workload, access={}))


@pytest.mark.parametrize("pooling", ["none", "sum"])
@pytest.mark.parametrize("planner", [Neo4D(), Neo4D(schemes=["row_wise", "column_wise", "table_wise"])], ids=["all", "no replicas"])
def test_neo_s_plan_is_no_slower_than_without_weights(planner: Neo4D, pooling: str) -> None:
    better = 0
    for seed in range(4):
        given = inputs(pooling, np.random.default_rng(seed))
        weighed, plain = planner.plan(given), planner.plan(alike(given))
        setting = planner._setting(given)
        assert costs_of_ranks(weighed, setting).worst_ms <= costs_of_ranks(plain, setting).worst_ms * (1 + 1e-9)
        assert ms(weighed, given) <= MORE[pooling] * ms(plain, given)
        better += ms(weighed, given) < 0.99 * ms(plain, given)
    assert better or pooling == "sum", "of sequences hot rows travel"


@pytest.mark.parametrize("seed", range(2))
def test_torchrec_s_plan_is_no_slower_than_without_weights(seed: int) -> None:
    given = inputs("none", np.random.default_rng(seed))
    planner = TorchRec(sharding_types=["row_wise", "column_wise", "table_wise"])
    assert ms(planner.plan(given), given) <= MORE["none"] * ms(planner.plan(alike(given)), given)


def test_torchrec_leaves_the_rows_of_a_hot_table_and_keeps_what_is_forced() -> None:
    """Too large for one rank, so rows or columns; one row has half of the look-ups of `hot`, none of `cold`."""
    tables = tuple(Table(name, 4_000_000, 128, (name,), "none") for name in ("hot", "cold"))
    access = {
        "hot": TableAccess("hot", 200.0, (1, 3_999_999), (100.0, 100 / 3_999_999), "formula", ""),
        "cold": TableAccess("cold", 200.0, (4_000_000,), (200 / 4e6,), "formula", ""),
    }
    cluster = CLUSTER.reshaped(2, 2)
    work = Workload(2048, 1000, 1e3, 2e3, 1e3, "sgd", "sgd", dict.fromkeys(access, 200.0), access=access)
    given = PlanInputs(tables, AccessStatistics(access), cluster, FP32, work)
    rows = ["row_wise", "column_wise"]

    def schemes(**options: Any) -> dict[str, str]:
        return {p.table: p.scheme for p in TorchRec(sharding_types=rows, **options).plan(given).placements}

    assert schemes()["hot"] == "column_wise"
    assert schemes(force={"hot": "row_wise"})["hot"] == "row_wise"


def test_dmt_puts_less_beside_hot_rows() -> None:
    """A table in rows, of which one rank serves nearly all, and two that are whole: none goes to that rank."""
    tables = tuple(Table(name, rows, 64, (name,)) for name, rows in (("rows", 60_000), ("a", 1000), ("b", 1000)))
    hot = TableAccess("rows", 1000.0, (1, 59_999), (950.0, 50 / 59_999), "formula", "", hottest_row=0)
    access = {"rows": hot} | {name: TableAccess(name, 20.0, (1000,), (0.02,), "formula", "") for name in ("a", "b")}
    cluster = CLUSTER.reshaped(1, 4)
    work = Workload(64, 1000, 1e3, 2e3, 1e3, "sgd", "sgd", access=access)
    given = PlanInputs(tables, AccessStatistics(access), cluster, FP32, work, (("rows", "a", "b"),))
    placed: dict[str, Placement] = {p.table: p for p in DMT().plan(given).placements}
    if placed["rows"].scheme != "tower_row_wise":
        pytest.skip("columns moved less")
    assert not {0} & {rank for name in ("a", "b") for rank in placed[name].ranks}
