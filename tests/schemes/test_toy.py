"""A scheme and a sharder in a folder of their own (`tests/toy`) do all that those inside do; nothing inside knows of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import tests.toy as toy
from recsys_lab.cluster import Cluster
from recsys_lab.config.choices import built
from recsys_lab.errors import UserError
from recsys_lab.executor.recorded import register
from recsys_lab.plan import Placement, Shard, ShardingPlan
from recsys_lab.plan.explain import explain
from recsys_lab.plan.lower import lower
from recsys_lab.plan.memory import bytes_of_ranks
from recsys_lab.plan.serialise import load_plan, save_plan
from recsys_lab.plan.tiers import tier_rows
from recsys_lab.plan.validate import validate
from recsys_lab.sharders.base import PlanInputs
from recsys_lab.simulate import simulate
from recsys_lab.tables.tiers import HOST_SHARDED
from tests.plan.plans import FP32, LENGTHS, TABLES, access, workload
from tests.schemes.generated import cases, check_equality, check_plans, check_volume
from tests.toy.sharder import OnceAHost

ROOT = Path(__file__).resolve().parents[2]
register()  # before a rank joins its process group


def h100(hosts: int) -> Cluster:
    return built("cluster", "h100").reshaped(hosts, 2)


def plan_of(hosts: int) -> tuple[ShardingPlan, PlanInputs]:
    inputs = PlanInputs(TABLES, access(TABLES, LENGTHS), h100(hosts), FP32, workload())
    return OnceAHost().plan(inputs), inputs


def test_it_plans_lowers_simulates_and_explains(tmp_path: Path) -> None:
    plan, inputs = plan_of(hosts=2)
    validate(plan)
    assert load_plan(save_plan(plan, tmp_path / "plan.json")) == plan
    steps = lower(plan, inputs.access, FP32, inputs.workload)
    kinds = [(step.kind, step.groups) for step in steps.collectives if step.role != "dense_sync"]
    within, peers = ((0, 1), (2, 3)), ((0, 2), (1, 3))
    assert kinds == [("all_to_all", within)] * 5 + [("all_reduce", peers)]
    simulated, timeline = simulate(steps, inputs.cluster, built("profile", "torchrec"), plan, inputs.workload)
    assert simulated.feasible and simulated.iteration_ms > 0 and len(timeline.events) == len(steps.steps)
    assert any("gradients between the hosts' copies" in sentence for sentence in explain(plan))
    assert [tier_rows(placement)[HOST_SHARDED] for placement in plan.placements] == [table.rows for table in TABLES]
    alone = bytes_of_ranks(plan_of(hosts=1)[0], inputs.workload).weights
    assert bytes_of_ranks(plan, inputs.workload).weights == alone * 2, "each host has all tables once"


def test_its_rules_are_kept() -> None:
    plan, _ = plan_of(hosts=2)
    table = plan.tables[0]
    wrong = Placement(table.name, toy.ONCE_A_HOST, (Shard((0, 3), 0, table.rows, 0, table.dim),))
    with pytest.raises(UserError, match="same local rank"):
        validate(ShardingPlan("toy", 2, 2, plan.tables, (wrong, *plan.placements[1:])))


def test_it_passes_what_is_generated_for_every_scheme() -> None:
    checked = list(cases(toy.SCHEME, 2, 2))
    assert {case.pooling for case in checked} == {"sum", "mean"}
    check_plans(checked)
    check_equality(checked)
    check_volume(checked)


def test_one_line_trains_with_it(tmp_path: Path) -> None:
    where = [f"hydra.searchpath=[file://{ROOT}/tests/toy/conf]", f"hydra.run.dir={tmp_path / 'run'}"]
    line = ["sharder=toy", "cluster=h100x64", "data=synthetic_brief", "trainer.max_steps=20", "logger=none", *where]
    process = subprocess.run([sys.executable, "run.py", *line], cwd=ROOT, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    record = json.loads((tmp_path / "run" / "result.json").read_text())
    assert record["status"] == "completed" and record["choices"]["sharder"] == "toy"
    assert record["simulated"]["world_size"] == 64 and record["measured"]["world_size"] == 4
    prefix = f"{toy.ONCE_A_HOST}."
    simulated = {one["name"] for one in record["simulated"]["collectives"] if one["name"].startswith(prefix)}
    assert simulated == {one["name"] for one in record["measured"]["collectives"] if one["name"].startswith(prefix)} != set()
