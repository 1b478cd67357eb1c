"""One run, whole: the only place where all the rooms meet.

config ──> cluster ─┐
           tables ──┤                       ┌─> ranks      (here, or on the real cluster)  ─> measured ─┐
data ───> access ───┼─> planner ─> plan ─> steps                                                       ├─> record ─> page, W&B
         workload ──┤                       └─> simulator  (the cluster that is named)     ─> simulated ┘
         precision ─┘
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from omegaconf import DictConfig, OmegaConf

from recsys_lab.cluster import Cluster
from recsys_lab.config.command_line import CONF
from recsys_lab.config.frozen import fingerprint, plain
from recsys_lab.config.options import DataCommon
from recsys_lab.config.schema import build
from recsys_lab.data.batch import DataSet, Feature
from recsys_lab.data.capped import capped
from recsys_lab.data.frequencies import with_frequencies
from recsys_lab.errors import UserError
from recsys_lab.models.click_model import ClickModel
from recsys_lab.models.workload import describe
from recsys_lab.plan import ShardingPlan, Steps, Workload
from recsys_lab.plan.lower import lower
from recsys_lab.plan.memory import check_fits
from recsys_lab.plan.serialise import save_plan
from recsys_lab.plan.sharding_plan import FLEXSHARD
from recsys_lab.planners.flexshard import same_tiers
from recsys_lab.quiet import quiet_torchrec
from recsys_lab.report import say
from recsys_lab.report.environment import write_environment
from recsys_lab.report.files import write_json
from recsys_lab.report.loggers import finish
from recsys_lab.report.page import write_page
from recsys_lab.report.record import CHOICES, Result, plan_summary, write_result
from recsys_lab.report.run_folder import REASONS_FILE
from recsys_lab.simulate import simulate, write_trace
from recsys_lab.tables import AccessStatistics, RankLaw, Table
from recsys_lab.train.rank import Job, train

#: The tables that train here may fill this share of the machine's memory, weights and optimizer state together.
TABLES_SHARE_OF_MEMORY = 0.25
LOADER_KEYS = [field.name for field in fields(DataCommon)]  # of the data group: the rest is the data set's
LABEL_BLOCK_ROWS = 65_536
LOCAL = "local"  # the cluster that this machine is
Towers = tuple[tuple[str, ...], ...]  # groups of feature names


@dataclass(frozen=True)
class Planned:
    """A plan for one cluster, and what it was made from."""

    cluster: Cluster
    tables: tuple[Table, ...]
    access: AccessStatistics
    workload: Workload
    plan: ShardingPlan
    steps: Steps


def run(config: DictConfig, folder: Path, sweep: str | None = None, writes: bool = True) -> dict[str, Any] | None:
    """Runs `config` (frozen) in `folder` and returns the record. Raises UserError, PlanDoesNotFit, RankLost.

    `writes`: False on torchrun's ranks other than 0, which do the same but write nothing; they return None.
    """
    quiet_torchrec()
    if writes:
        OmegaConf.save(config, folder / "config.yaml")
    cluster: Cluster = build(config.cluster)
    data = open_data(config)
    check_data(data, config)
    say.data(data)
    named = plan_for(cluster, data, config, named_batch_size(config, cluster))
    say.plan(named.plan, cluster)
    simulated, timeline = None, None
    if config.mode in ("auto", "simulate"):
        simulated, timeline = simulate(named.steps, cluster, build(config.simulate.profile), named.plan, named.workload)
        say.simulated(simulated)
    trains = config.mode in ("auto", "train")
    rows = most_rows_here(named) if trains else None
    here = plan_here(config, data, named, rows) if trains else named
    say.trains_here(named.plan, here.plan)

    record = Result(
        status="completed",
        mode=config.mode,
        seed=config.seed,
        config_fingerprint=fingerprint(config),
        choices={group: choice for group, choice in config.choices.items() if group in CHOICES},
        plan_fingerprint=named.plan.fingerprint,
        plan=plan_summary(named.plan, named.access, named.workload),
        simulated=simulated,
    )
    if writes:
        write_environment(folder, data={"notes": list(data.notes), "best_auc": dict(data.best_auc)})
        save_plan(named.plan, folder / "plan.json")
        if here is not named:
            save_plan(here.plan, folder / "plan_here.json")
        write_reasons(config, named, folder)
        if timeline is not None:
            write_trace(timeline, folder / "trace.json")
    if trains:
        written = train_here(config, folder, here, named, rows, record, sweep)
    else:
        written = record.to_json()
        write_result(folder, record)
        log_untrained(config, folder, sweep)
    if writes:
        write_page(folder)
    return written


def open_data(config: DictConfig) -> DataSet:
    """The data set of `config`. Where the model fixes its tables or its dense features, data that are made are made for it."""
    ours = OmegaConf.masked_copy(config.data, [key for key in config.data if key not in LOADER_KEYS])
    if "dense_features" in ours and config.model.get("dense_features") is not None:
        ours.dense_features = config.model.dense_features
    data = build(ours, wanted_features(config))
    return with_frequencies(data, config.data.frequencies) if config.data.frequencies else data


def wanted_features(config: DictConfig) -> tuple[Feature, ...] | None:
    """The features of a model that fixes its tables (MLPerf's, the CPU paper's, FlexShard's); None where the data decide."""
    rows, lengths = config.model.get("rows"), config.model.get("lengths")
    if rows is None:
        return None
    pooling = "none" if "objective" in config.model else "sum"  # a sequence model has an objective
    law = RankLaw.from_config(config.model.law) if config.model.get("law") else None
    each = enumerate(zip(rows, lengths or [1] * len(rows), strict=True))
    return tuple(Feature(f"cat_{i}", r, float(n), pooling, law=law) for i, (r, n) in each)


def tables_of(data: DataSet, dim: int, dtype: str) -> tuple[Table, ...]:
    """The tables that the features read, in the order in which they first appear, all of the model's dimension."""
    readers: dict[str, list[Feature]] = {}
    for feature in data.features:
        readers.setdefault(feature.table_name, []).append(feature)
    return tuple(Table(name, of[0].rows, dim, tuple(f.name for f in of), of[0].pooling, dtype) for name, of in readers.items())


def build_model(config: DictConfig, data: DataSet, device: torch.device, towers: Towers = ()) -> ClickModel:
    """The model of `config` for the features of `data`; with a tower module for each of `towers`."""
    precision = build(config.precision)
    tables = tables_of(data, config.model.embedding_dim, precision.table)
    return build(config.model, tables, data.dense_features, device, *((towers,) if towers else ()))


def towers_of(config: DictConfig, tables: tuple[Table, ...], cluster: Cluster, named: Planned | None) -> Towers:
    """The groups of features that `sharder=dmt` makes towers of: the named cluster's own, also where another stands in for it."""
    if named is not None:
        return named.plan.towers
    return build(config.sharder.towers, tables, cluster) if "towers" in config.sharder else ()


def modules_of(config: DictConfig, towers: Towers) -> Towers:
    """The towers that have a module of the model; none where the towers only say what travels how (dmt_sptt)."""
    return towers if config.sharder.get("tower_modules") else ()


def plan_for(cluster: Cluster, data: DataSet, config: DictConfig, batch_size: int, named: Planned | None = None) -> Planned:
    """Plans the tables of `data` for `cluster`, `batch_size` samples a rank, and lowers the plan to steps.

    `named`: what was planned for the named cluster, if `cluster` stands in for it.
    """
    precision = build(config.precision)
    tables = tables_of(data, config.model.embedding_dim, precision.table)
    towers = towers_of(config, tables, cluster, named)
    model = build_model(config, data, torch.device("meta"), modules_of(config, towers))
    cost = describe(model, data.dense_features, {f.name: f.mean_length for f in data.features})
    workload = Workload(
        batch_size=batch_size,
        dense_parameters=cost.dense_parameters,
        forward_flops_per_sample=cost.forward_flops_per_sample,
        backward_flops_per_sample=cost.backward_flops_per_sample,
        activation_bytes_per_sample=cost.activation_bytes_per_sample,
        sparse_optimizer=config.optimizer.sparse.name,
        dense_optimizer=config.optimizer.dense.name,
        lengths={table.name: data.access[table.name].mean_length for table in tables},
    )
    plan = make_plan(config, data.access, tables, cluster, workload, towers, named)
    check_fits(plan, workload, cluster)
    return Planned(cluster, tables, data.access, workload, plan, lower(plan, data.access, precision, workload))


def make_plan(
    config: DictConfig,
    access: AccessStatistics,
    tables: tuple[Table, ...],
    cluster: Cluster,
    workload: Workload,
    towers: Towers,
    named: Planned | None,
) -> ShardingPlan:
    """The planner's plan of `tables` for `cluster`. Where that stands in for a named one for which tables were placed row by row, its
    tiers are those that the named cluster would get: they follow from its batch and links.
    """
    precision, further = build(config.precision), (towers,) if towers else ()
    plan = partial(build, config.sharder.planner, tables, access)
    if named is None or all(p.scheme != FLEXSHARD for p in named.plan.placements):
        return plan(cluster, precision, workload, *further)
    return same_tiers(plan(named.cluster, precision, named.workload), cluster)


def replan(config: DictConfig, access: AccessStatistics, here: Planned, named: Planned) -> ShardingPlan:
    """What trains here, planned with other access statistics."""
    return make_plan(config, access, here.tables, here.cluster, here.workload, here.plan.towers, named)


def write_reasons(config: DictConfig, planned: Planned, folder: Path) -> None:
    """Why the plan is as it is, where its planner can tell: from the same options as the plan."""
    if "reasons" not in config.sharder:
        return
    teller = OmegaConf.merge(config.sharder.planner, {"_target_": config.sharder.reasons})
    made = build(teller, planned.plan, planned.tables, planned.access, planned.cluster, build(config.precision), planned.workload)
    write_json(folder / REASONS_FILE, {"told": made.told(), "reasons": made.to_json()})


def named_batch_size(config: DictConfig, cluster: Cluster) -> int:
    """Samples per rank of the named cluster: `simulate.batch_size`, but on this machine what it really trains with."""
    return batch_size_here(config) if cluster.name == LOCAL else config.simulate.batch_size


def batch_size_here(config: DictConfig) -> int:
    return -(-config.data.batch_size // (config.launcher.hosts * config.launcher.ranks_per_host))


def plan_here(config: DictConfig, data: DataSet, named: Planned, rows: int | None) -> Planned:
    """The plan that trains here: the named cluster's own if the launcher starts that many ranks, else one for this machine.

    `rows`: the most that a table may have here, None for no limit.
    """
    hosts, ranks_per_host = config.launcher.hosts, config.launcher.ranks_per_host
    if (named.cluster.hosts, named.cluster.ranks_per_host) == (hosts, ranks_per_host) and rows is None:
        return named
    return plan_for(this_machine(config), capped(data, rows) if rows is not None else data, config, batch_size_here(config), named)


def train_here(
    config: DictConfig, folder: Path, here: Planned, named: Planned, rows: int | None, record: Result, sweep: str | None
) -> dict[str, Any] | None:
    """Trains on the ranks that the launcher starts. The record on rank 0; None on torchrun's other ranks."""
    job = Job(
        config=plain(config),
        folder=folder,
        plan=here.plan,
        steps=here.steps,
        record=record,
        open_data=partial(open_capped, rows=rows),
        build_model=partial(build_model, towers=modules_of(config, here.plan.towers)),
        replan=partial(replan, here=here, named=named),
        sweep=sweep,
    )
    return build(config.launcher, train, {"job": job}, folder)


def open_capped(config: DictConfig, rows: int | None) -> DataSet:
    """The data as they train here: tables of at most `rows` rows."""
    data = open_data(config)
    return data if rows is None else capped(data, rows)


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
    """`conf/cluster/local.yaml` with the hosts and ranks of the launcher."""
    local = OmegaConf.create({"launcher": config.launcher, "cluster": OmegaConf.load(CONF / "cluster" / "local.yaml")})
    OmegaConf.resolve(local)
    return build(local.cluster)


def check_data(data: DataSet, config: DictConfig) -> None:
    """Refuses, before anything is trained, a split of clicks whose quality could not be told. Raises UserError."""
    if config.mode not in ("auto", "train") or not data.learnable or config.model.get("objective") == "next_item":
        return
    for split in ("validation", "test"):
        if split not in data.splits:
            continue
        rows, seen = data.splits[split], set()
        for start in range(0, rows.rows, LABEL_BLOCK_ROWS):
            seen |= set(rows.read(np.arange(start, min(start + LABEL_BLOCK_ROWS, rows.rows))).labels.tolist())
            if len(seen) > 1:
                break
        else:
            raise UserError(
                f"split {split} has only label {int(next(iter(seen)))}: AUC is undefined",
                where=f"data.splits.{split}",
                given=f"{rows.rows} rows of one class",
                remedy="give it rows of both classes",
            )


def log_untrained(config: DictConfig, folder: Path, sweep: str | None) -> None:
    """The logger's run of a job that plans and simulates only."""
    name = "_".join(str(config.choices[group]) for group in ("model", "sharder", "cluster"))
    logger = build(config.logger, folder, plain(config), name, sweep)
    finish(logger, "completed")
