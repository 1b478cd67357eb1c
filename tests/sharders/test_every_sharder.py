"""What holds for every choice in conf/sharder: its planner is a frozen dataclass of the YAML's keys, and plans the same every time."""

from __future__ import annotations

import dataclasses
import json

import pytest
from omegaconf import DictConfig

from recsys_lab.config.choices import composed
from recsys_lab.config.command_line import CONF, read
from recsys_lab.config.schema import build
from recsys_lab.errors import UserError
from recsys_lab.plan import ShardingPlan
from recsys_lab.plan.validate import validate
from recsys_lab.sharders.base import PlanInputs, Sharder
from recsys_lab.sharders.dmt import DMT
from recsys_lab.sharders.flexshard import FlexShard
from recsys_lab.sharders.neo import Neo4D
from recsys_lab.sharders.torchrec import TorchRec
from recsys_lab.tables import AccessStatistics, Table, power_law_access
from tests.executor.sharded import FP32, small_cluster
from tests.plan.plans import workload

SHARDERS = sorted(path.stem for path in (CONF / "sharder").glob("*.yaml"))
TABLES = tuple(Table(f"t{i}", rows, 16, (f"f{i}",)) for i, rows in enumerate([3000, 40, 7, 500, 90, 1200]))
ACCESS = AccessStatistics({t.name: power_law_access(t.name, t.rows, 3.0, 1.1) for t in TABLES})


def chosen(sharder: str) -> tuple[DictConfig, Sharder]:
    config = composed("sharder", sharder)
    return config, build(config.planner)


def inputs_for(config: DictConfig, hosts: int, ranks_per_host: int) -> PlanInputs:
    cluster = small_cluster(hosts, ranks_per_host)
    towers = build(config.towers).towers(TABLES, cluster) if "towers" in config else ()
    return PlanInputs(TABLES, ACCESS, cluster, FP32, workload(), towers)


@pytest.mark.parametrize("sharder", SHARDERS)
def test_its_options_are_the_fields_of_a_frozen_dataclass(sharder: str) -> None:
    config, planner = chosen(sharder)
    assert isinstance(planner, Sharder) and dataclasses.is_dataclass(planner)
    fields = [field.name for field in dataclasses.fields(planner)]
    assert all(field.kw_only for field in dataclasses.fields(planner))
    assert [key for key in config.planner if key != "_target_"] == fields
    with pytest.raises((dataclasses.FrozenInstanceError, AttributeError)):
        setattr(planner, fields[0] if fields else "option", None)
    assert "name" not in config and "reasons" not in config


@pytest.mark.parametrize("sharder", SHARDERS)
def test_it_plans_every_table_the_same_every_time_and_can_say_why(sharder: str) -> None:
    config, planner = chosen(sharder)
    inputs = inputs_for(config, 2, 2)
    plan = planner.plan(inputs)
    validate(plan)
    assert plan.tables == TABLES and (plan.hosts, plan.ranks_per_host) == (2, 2)
    assert plan.fingerprint == planner.plan(inputs).fingerprint == ShardingPlan.from_json(plan.to_json()).fingerprint
    reasons = planner.reasons(plan, inputs)
    if reasons is not None:
        explanation = json.loads(json.dumps(reasons.explanation()))
        assert set(explanation) == {"sentences", "columns", "rows", "note"} and explanation["sentences"]
        assert all(column in explanation["note"] for column in explanation["columns"][1:]), "a column without its meaning"
        assert all(len(row) == len(explanation["columns"]) for row in explanation["rows"]) and explanation["rows"][0][0] == "this plan"
        json.dumps(reasons.to_json(), allow_nan=False)


@pytest.mark.parametrize("sharder", SHARDERS)
def test_it_adapts_to_the_ranks_that_stand_in_for_a_cluster(sharder: str) -> None:
    config, planner = chosen(sharder)
    named, here = inputs_for(config, 4, 2), inputs_for(config, 1, 2)
    here = dataclasses.replace(here, towers=named.towers)
    plan = planner.adapt(named, here)
    validate(plan)
    assert (plan.hosts, plan.ranks_per_host) == (1, 2)
    assert planner.adapt(named, named) == planner.plan(named)


def test_a_sharder_has_no_name_of_its_own() -> None:
    """The record names the choice, the plan its planner: a third name could say anything."""
    for word in ("sharder.name=mine", "+sharder.name=mine"):
        with pytest.raises(UserError, match=r"sharder\.name"):
            read([word])


def test_a_sharder_without_a_plan_is_none() -> None:
    with pytest.raises(TypeError, match="plan"):
        Sharder()  # type: ignore[abstract]


def test_what_is_not_said_is_as_the_papers_have_it() -> None:
    none = dict.fromkeys(("replica_multiplier", "bandwidths", "force"))
    assert FlexShard(tiers=3) == FlexShard(tiers=3, goal="memory_neutral", extra_memory_gb=0.0, rule="paper", align=False, **none)
    assert DMT() == DMT(scheme="auto", permute="auto")
    assert Neo4D() == Neo4D(placement="karmarkar_karp", schemes=None, communication_weight=1.0, load_weight=4.0, even_out=True)
    assert TorchRec() == TorchRec(sharding_types=None, force=None, column_shard_width=None, column_shards=None)
