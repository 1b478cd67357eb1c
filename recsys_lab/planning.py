"""From what a run is made of to its plans and steps: for the named cluster, and for the processes that train here in its place."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path

import psutil
import torch
from omegaconf import DictConfig, OmegaConf

from recsys_lab.cluster import Cluster
from recsys_lab.config.command_line import CONF
from recsys_lab.config.schema import build
from recsys_lab.data.batch import DataSet
from recsys_lab.data.capped import capped
from recsys_lab.inputs import Towers, build_model, tables_of
from recsys_lab.models.click_model import ClickModel
from recsys_lab.models.workload import describe, describe_towers
from recsys_lab.plan import ShardingPlan, Steps, Workload
from recsys_lab.plan.lower import lower
from recsys_lab.plan.memory import check_fits
from recsys_lab.plan.workload import DenseLayer, TowerWork
from recsys_lab.precision import Precision
from recsys_lab.record.files import write_json
from recsys_lab.record.run_folder import REASONS_FILE
from recsys_lab.sharders.base import PlanInputs, Sharder
from recsys_lab.tables import AccessStatistics, Table

#: The tables that train here may fill this share of the machine's memory, weights and optimizer state together.
TABLES_SHARE_OF_MEMORY = 0.25
LOCAL = "local"  # the cluster that this machine is
EMULATED = "emulated"  # the launcher that makes this machine the cluster that is named


@dataclass(frozen=True)
class Planned:
    """A plan for one cluster, and what it was made from."""

    cluster: Cluster
    tables: tuple[Table, ...]
    access: AccessStatistics
    workload: Workload
    plan: ShardingPlan
    steps: Steps

    def inputs(self, precision: Precision) -> PlanInputs:
        return PlanInputs(self.tables, self.access, self.cluster, precision, self.workload, self.plan.towers)


def plan_for(cluster: Cluster, data: DataSet, config: DictConfig, batch_size: int, named: Planned | None = None) -> Planned:
    """Plans the tables of `data` for `cluster`, `batch_size` samples a rank, and lowers the plan to steps.

    `named`: what was planned for the named cluster, if `cluster` stands in for it.
    """
    precision = build(config.precision)
    tables = tables_of(config, data, precision.table)
    towers = towers_of(config, tables, cluster, named)
    model = build_model(config, data, torch.device("meta"), modules_of(config, towers))
    workload = workload_of(model, data, config, batch_size, {t.name: data.access[t.name].mean_length for t in tables})
    inputs = PlanInputs(tables, data.access, cluster, precision, workload, towers)
    plan = make_plan(config, inputs, named.inputs(precision) if named is not None else None)
    check_fits(plan, workload, cluster)
    executor = config.sharder.executor
    exchange = {key: executor[key] for key in ("exchange", "overlap") if key in executor}
    hot_rows = named is None and config.simulate.hot_rows  # what trains here is counted, not simulated
    steps = lower(plan, data.access, precision, workload, hot_rows=hot_rows, **exchange)
    return Planned(cluster, tables, data.access, workload, plan, steps)


def workload_of(model: ClickModel, data: DataSet, config: DictConfig, batch_size: int, lengths: dict[str, float]) -> Workload:
    """What an iteration of `model` (on the meta device) does besides its tables; its tower modules apart from the rest."""
    cost = describe(model, data.dense_features, {f.name: f.mean_length for f in data.features})
    towers = tuple(TowerWork(**asdict(tower)) for tower in describe_towers(model))
    return Workload(
        batch_size=batch_size,
        dense_parameters=cost.dense_parameters - sum(t.parameters for t in towers),
        forward_flops_per_sample=cost.forward_flops_per_sample - sum(t.forward_flops_per_sample for t in towers),
        backward_flops_per_sample=cost.backward_flops_per_sample - sum(t.backward_flops_per_sample for t in towers),
        activation_bytes_per_sample=max(cost.activation_bytes_per_sample - sum(t.activation_bytes_per_sample for t in towers), 0.0),
        sparse_optimizer=config.optimizer.sparse.name,
        dense_optimizer=config.optimizer.dense.name,
        lengths=lengths,
        towers=towers,
        layers=tuple(DenseLayer(**asdict(layer)) for layer in cost.layers),
        dense_format=config.precision.dense,
        replica_format=config.precision.dense_comm,
        dense_features=data.dense_features,
    )


def make_plan(config: DictConfig, here: PlanInputs, named: PlanInputs | None) -> ShardingPlan:
    """The sharder's plan of `here`; of ranks that stand in for those of a `named` cluster, the plan that it adapts to them."""
    sharder: Sharder = build(config.sharder.planner)
    return sharder.plan(here) if named is None else sharder.adapt(named, here)


def replan(config: DictConfig, access: AccessStatistics, here: Planned, named: Planned) -> ShardingPlan:
    """What trains here, planned with other access statistics."""
    precision = build(config.precision)
    return make_plan(config, replace(here.inputs(precision), access=access), named.inputs(precision))


def towers_of(config: DictConfig, tables: tuple[Table, ...], cluster: Cluster, named: Planned | None) -> Towers:
    """The groups of features that `sharder=dmt` makes towers of: the named cluster's own, also where another stands in for it."""
    if named is not None:
        return named.plan.towers
    return build(config.sharder.towers).towers(tables, cluster) if "towers" in config.sharder else ()


def modules_of(config: DictConfig, towers: Towers) -> Towers:
    """The towers that have a module of the model; none where the towers only say what travels how (dmt_sptt)."""
    return towers if config.sharder.get("tower_modules") else ()


def plan_here(config: DictConfig, data: DataSet, named: Planned, rows: int | None) -> Planned:
    """The plan that trains here: the named cluster's own if the launcher starts that many ranks, else one for this machine.

    `rows`: the most that a table may have here, None for no limit.
    """
    hosts, ranks_per_host = config.launcher.hosts, config.launcher.ranks_per_host
    if (named.cluster.hosts, named.cluster.ranks_per_host) == (hosts, ranks_per_host) and rows is None:
        return named
    return plan_for(this_machine(config), capped(data, rows) if rows is not None else data, config, batch_size_here(config), named)


def most_rows_here(named: Planned) -> int | None:
    """The most rows a table may have so that all tables, with optimizer state, fit this machine; None if they fit as they are."""
    budget = psutil.virtual_memory().total * TABLES_SHARE_OF_MEMORY

    def size_bytes(most: int) -> int:
        cut = [table.with_rows(min(table.rows, most)) for table in named.tables]
        return sum(t.weight_bytes + named.workload.table_state_bytes(t.rows, t.dim) for t in cut)

    largest = max(table.rows for table in named.tables)
    if size_bytes(largest) <= budget:
        return None
    low, high = 1, largest
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if size_bytes(middle) <= budget else (low, middle)
    return low


def this_machine(config: DictConfig) -> Cluster:
    """`conf/cluster/local.yaml` with the hosts and ranks of the launcher. Its own figures, not calibrated ones: the record of a run for
    another cluster does not hold them, and the plan here must not depend on what it does not hold.
    """
    local = OmegaConf.create({"launcher": config.launcher, "calibrated": False, "cluster": OmegaConf.load(CONF / "cluster" / "local.yaml")})
    OmegaConf.resolve(local)
    return build(OmegaConf.masked_copy(local.cluster, [key for key in local.cluster if key != "defaults"]))


def named_batch_size(config: DictConfig, cluster: Cluster) -> int:
    """Samples per rank of the named cluster: `simulate.batch_size`, but where this machine is that cluster what it really trains with."""
    here = cluster.name == LOCAL or config.choices.launcher == EMULATED
    return batch_size_here(config) if here else config.simulate.batch_size


def batch_size_here(config: DictConfig) -> int:
    return -(-config.data.batch_size // (config.launcher.hosts * config.launcher.ranks_per_host))


def write_reasons(config: DictConfig, planned: Planned, folder: Path) -> None:
    """Why the plan is as it is, where its sharder can tell."""
    sharder: Sharder = build(config.sharder.planner)
    reasons = sharder.reasons(planned.plan, planned.inputs(build(config.precision)))
    if reasons is not None:
        write_json(folder / REASONS_FILE, {"told": reasons.told(), "reasons": reasons.to_json()})
