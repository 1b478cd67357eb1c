"""MLPerf's DLRMv4 as its reference trains it: planned, lowered, and simulated with the profile torchrec."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from experiments.validation.cases import roomy
from recsys_lab.cluster import Cluster
from recsys_lab.config.choices import apart_from_hydra, built
from recsys_lab.data.protocol import DataSet
from recsys_lab.experiment import Experiment, of_words
from recsys_lab.models.dlrm_v4 import HISTORY, OTHER_TOKENS
from recsys_lab.plan import Placement, Shard, ShardingPlan, Step, Steps, Workload
from recsys_lab.plan.dense import dense_backward, dense_forward
from recsys_lab.plan.lower import lower
from recsys_lab.plan.memory import RankMemory, bytes_of_ranks
from recsys_lab.plan.sharding_plan import even_blocks
from recsys_lab.plan.workload import ModelCost, SequenceWork
from recsys_lab.planning import workload_of
from recsys_lab.precision import Precision
from recsys_lab.sharders.base import PlanInputs
from recsys_lab.sharders.torchrec import TorchRec
from recsys_lab.simulate import Profile
from recsys_lab.simulate.simulated import iteration_ms
from recsys_lab.tables import AccessStatistics, Table, TableAccess
from recsys_lab.tables.lengths import Lengths

HERE = Path(__file__).parent
SAMPLES, LAYERS = 1024, 3
#: The user's path in BF16, rows and gradients in FP16 on their way, all else in FP32.
REFERENCE = Precision("reference", dense="bf16_master", compute="bf16", forward_comm="fp16", backward_comm="fp16")
#: What the reference's loader does: pageable memory, and a merged copy of 12 numbers an event, where three ids of eight bytes are counted.
INPUT = {"input": "pageable", "input_volume": 4.0}
ROWS, COLUMNS, HAND_MADE = "rows", "columns", "hand_made"


@dataclass(frozen=True)
class Case:
    """`events`: mean length of histories. `plan`: rows: every table by row; columns: A3's own; hand_made: albums and artists by column, the
    others by row. `ranks_per_host`: None: all of the cluster's.
    """

    cluster: str
    hosts: int
    events: float
    plan: str = COLUMNS
    dedup: bool = True
    last_layer: str = "all"
    ranks_per_host: int | None = None


@dataclass(frozen=True)
class Priced:
    plan: ShardingPlan
    steps: Steps
    workload: Workload
    cluster: Cluster
    memory: RankMemory


@cache
def published() -> dict[str, Any]:
    return yaml.safe_load((HERE / "published.yaml").read_text(encoding="utf-8"))


def as_run(profile: Profile) -> Profile:
    return replace(profile, **INPUT)


@cache
def cluster(name: str, hosts: int, ranks_per_host: int | None = None) -> Cluster:
    with apart_from_hydra():
        found = built("cluster", name)
    return found.reshaped(hosts, ranks_per_host or found.ranks_per_host)


def profile() -> Profile:
    """The software, with the reference's input."""
    with apart_from_hydra():
        found: Profile = built("profile", "torchrec")
    return as_run(found.of_sequences)


def time_ms(of: Priced, software: Profile, on: Cluster) -> float:
    return iteration_ms(of.steps, on, software, of.plan, of.workload, None, of.memory)


@cache
def priced(case: Case) -> Priced:
    """Planned and lowered once."""
    tables, access, workload = _model(case.events, case.last_layer)
    workload, machine = replace(workload, dedup=case.dedup), cluster(case.cluster, case.hosts, case.ranks_per_host)
    plan = PLANS[case.plan](PlanInputs(tables, access, machine, REFERENCE, workload))
    steps = lower(plan, access, REFERENCE, workload, hot_rows=True)
    return Priced(plan, steps, workload, machine, bytes_of_ranks(plan, workload))


@cache
def layer_steps(last_layer: str, tokens: float) -> tuple[Workload, tuple[Step, ...]]:
    """One of the layers, `all` or `candidate`, forward and backward on one rank: what two layers have more than one.

    `tokens`: of a batch.
    """
    events = tokens / SAMPLES - OTHER_TOKENS
    two, one = (_counted(events, which, layers) for which, layers in ((last_layer, 2), ("all", 1)))
    history = Lengths.law(events, published()["spread"], published()["cap"])
    work = Workload(
        batch_size=SAMPLES,
        dense_parameters=two.dense_parameters - one.dense_parameters,
        forward_flops_per_sample=two.forward_flops_per_sample - one.forward_flops_per_sample,
        backward_flops_per_sample=two.backward_flops_per_sample - one.backward_flops_per_sample,
        activation_bytes_per_sample=two.activation_bytes_per_sample - one.activation_bytes_per_sample,
        sparse_optimizer="row_wise_adagrad",
        dense_optimizer="adam",
        layers=tuple((Counter(two.layers) - Counter(one.layers)).elements()),
        sequence=SequenceWork(*map(_less, astuple(two.sequence), astuple(one.sequence))),
        history=history,
    )
    return work, (dense_forward(REFERENCE, work, ()), dense_backward(1, REFERENCE, work)[0])


def _less(of: tuple[float, float], than: tuple[float, float]) -> tuple[float, float]:
    return of[0] - than[0], of[1] - than[1]


@cache
def _experiment(last_layer: str, layers: int) -> tuple[Experiment, DataSet]:
    words = [f"model.last_layer={last_layer}", f"model.layers={layers}"]
    with apart_from_hydra():
        found = of_words(["model=dlrm_v4", "data=yambda_law", "mode=simulate", "optimizer=row_wise_adagrad", *words], where="dlrm_v4")
    return replace(found, precision=REFERENCE), found.open_data()


def _counted(events: float, last_layer: str, layers: int) -> ModelCost:
    experiment, data = _experiment(last_layer, layers)
    of_history = {feature.name: events if feature.name in HISTORY else 1.0 for feature in data.features}
    return experiment.model.counted(experiment.tables(data), data.dense_features, (), of_history, REFERENCE.compute)


@cache
def _model(events: float, last_layer: str) -> tuple[tuple[Table, ...], AccessStatistics, Workload]:
    experiment, data = _experiment(last_layer, LAYERS)
    tables, facts = experiment.tables(data), published()
    access = {table.name: _as_long(data.access[table.name], events) for table in tables}
    history = Lengths.law(events, facts["spread"], facts["cap"]).in_order({SAMPLES: facts["order"]["spread_of_mean"] * events})
    workload = workload_of(experiment, _counted(events, last_layer, LAYERS), data, SAMPLES, access)
    return tables, AccessStatistics(access), replace(workload, history=history)


def _as_long(access: TableAccess, events: float) -> TableAccess:
    """With histories of so many events, and the candidate; in the published order."""
    if access.table not in HISTORY:
        return access
    distinct = published()["order"]["distinct"][access.table]
    return access.with_length(events + 1).in_order({SAMPLES: distinct * SAMPLES * events})


def _by_row(inputs: PlanInputs) -> ShardingPlan:
    return _planned(inputs, {table.name: "row_wise" for table in inputs.tables})


def _hand_made(inputs: PlanInputs) -> ShardingPlan:
    """What kept the published run of 32 GPUs alive."""
    by_column = ("album_id", "artist_id")
    return _planned(inputs, {table.name: "column_wise" if table.name in by_column else "row_wise" for table in inputs.tables})


def _planned(inputs: PlanInputs, force: Mapping[str, str]) -> ShardingPlan:
    """On a machine that holds any plan."""
    return TorchRec(force=dict(force)).plan(replace(inputs, cluster=roomy(inputs.cluster)))


def _published_columns(inputs: PlanInputs) -> ShardingPlan:
    """A3's, of eight ranks."""
    given = published()["plan"]
    placements = []
    for table in inputs.tables:
        whole = given["whole"].get(table.name)
        ranks = [whole] if whole is not None else given["columns"][table.name]
        blocks = even_blocks(table.dim, len(ranks))
        shards = tuple(Shard((rank,), 0, table.rows, *columns) for rank, columns in zip(ranks, blocks))
        placements.append(Placement(table.name, "column_wise" if whole is None else "table_wise", shards))
    return ShardingPlan("published", inputs.cluster.hosts, inputs.cluster.ranks_per_host, inputs.tables, tuple(placements))


PLANS = {ROWS: _by_row, COLUMNS: _published_columns, HAND_MADE: _hand_made}
