"""An iteration of Neo's models on ZionEX: planned by neo_4d, lowered, and simulated with the profile neo, which is fitted to none of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from experiments.validation.cases import dealt
from experiments.validation.models import Model
from recsys_lab.base.store_names import NONE
from recsys_lab.cluster import Cluster
from recsys_lab.config.choices import apart_from_hydra, built
from recsys_lab.errors import PlanDoesNotFit
from recsys_lab.experiment import of_words
from recsys_lab.plan import ShardingPlan, Step, Steps, Workload
from recsys_lab.plan.context import ID_BYTES
from recsys_lab.plan.lower import lower
from recsys_lab.plan.memory import bytes_of_ranks
from recsys_lab.planning import workload_of
from recsys_lab.precision import Precision
from recsys_lab.sharders.base import PlanInputs
from recsys_lab.sharders.neo import Neo4D
from recsys_lab.sharders.neo.costs import Setting, Weights, costs_of_ranks
from recsys_lab.sharders.stores import Stores
from recsys_lab.simulate import Profile, Simulated, Timeline, simulate
from recsys_lab.tables import AccessStatistics, Table, power_law_access

if TYPE_CHECKING:
    from recsys_lab.models.click_model import ClickModel

HERE = Path(__file__).parent
HOSTS, RANKS_PER_HOST = 16, 8
IN_FLIGHT = 2  # batches: the next one's input comes beside this one (section 4.2)
FP32 = Precision("fp32")
FP16_TABLES = Precision("fp16_tables", table="fp16")
SIMULATED = "Simulated with profile neo; nothing is fitted to the paper's own figures, but MAD-Max's, of the same system, are in its links."
#: Section 8.4: FP16 forward, BF16 backward, in the all-to-alls alone.
QUANTISED = Precision("quantised", table="fp16", forward_comm="fp16", backward_comm="bf16")
FP32_TABLES = Precision("fp32_tables", table="fp32", forward_comm="fp16", backward_comm="bf16")
#: FP16 tables make room for A and F (8.4, 8.5). I needs none: in FP32 it is a quarter of 16 hosts' memory.
OF_MODEL = {"neo_a": QUANTISED, "neo_f": QUANTISED, "neo_i": FP32_TABLES}


@dataclass(frozen=True)
class Base:
    """A model of conf/model as it stands there. `exponent`: of the power law of ids; `dense_features`: of a sample."""

    model: ClickModel
    tables: tuple[Table, ...]
    access: AccessStatistics
    workload: Workload
    exponent: float
    dense_features: int


@dataclass(frozen=True)
class Case:
    """`placement`: of neo_4d, or dealt: whole tables in falling size, there and back, as one without costs would. `schemes`: None for all.

    On fewer than 16 hosts tables have fewer rows in proportion, as the paper has it (8.3). `store`: where rows go that do not fit, as
    `sharder.store` has it. `exponent`: of the ids' power law; None: the model's. `parts`: tables of equal rows in place of each. `every`:
    only one in so many tables, with as many times the rows. `id_bytes`: of an id on its way. `lookups`: shares of the memory bandwidth
    forward and backward; None: the profile's. `dense_share`: of the dense arch's FLOPs and weights, all of its layers narrower alike.
    `reserved`: the share of a device's memory that is kept from tables; None: the cluster's.
    """

    model: str
    hosts: int = HOSTS
    batch_of_gpu: int = 512
    precision: Precision = FP32
    placement: str = "karmarkar_karp"
    schemes: tuple[str, ...] | None = None
    even_out: bool = True
    store: str = NONE
    exponent: float | None = None
    parts: int = 1
    every: int = 1
    id_bytes: int = 8
    lookups: tuple[float, float] | None = None
    dense_share: float = 1.0
    reserved: float | None = None


@dataclass(frozen=True)
class Priced:
    """`imbalance`: of the ranks' costs by the planner's model. `memory_share`: what the mean rank's tables and dense arch take of the
    memory beside the reserve.
    """

    plan: ShardingPlan
    steps: Steps
    workload: Workload
    simulated: Simulated
    timeline: Timeline
    imbalance: float
    memory_share: float

    @property
    def ms(self) -> float:
        return self.simulated.iteration_ms

    @property
    def queries(self) -> float:
        """Samples a second."""
        return self.simulated.examples_per_second


@cache
def published() -> dict[str, Any]:
    return yaml.safe_load((HERE / "published.yaml").read_text(encoding="utf-8"))


@cache
def base(name: str) -> Base:
    import torch

    with apart_from_hydra():
        experiment = of_words([f"model={name}", "data=random", "mode=simulate", "cluster=zionex_x16"], where="neo")
    data = experiment.open_data()
    tables = experiment.model.tables(data, "fp32")
    model = experiment.build_model(data, torch.device("meta"))
    lengths = {feature.name: feature.mean_length for feature in data.features}
    cost = experiment.model.counted(tables, data.dense_features, (), lengths, "fp32")
    workload = workload_of(experiment, cost, data, 1, data.access.tables)
    return Base(model, tables, data.access, workload, float(experiment.config["data"]["exponent"]), data.dense_features)


@cache
def profile() -> Profile:
    """Pipelined, as the executor of neo_4d is (section 4.2)."""
    with apart_from_hydra():
        return built("profile", "neo").pipelined


@cache
def cluster(hosts: int) -> Cluster:
    with apart_from_hydra():
        return built("cluster", "zionex_x16").reshaped(hosts, RANKS_PER_HOST)


@cache
def tables_of_case(case: Case) -> tuple[tuple[Table, ...], AccessStatistics]:
    of = base(case.model)
    exponent = of.exponent if case.exponent is None else case.exponent
    tables, access = [], {}
    for table, part in product(of.tables[:: case.every], range(case.parts)):
        length = of.access[table.name].mean_length
        if case.parts > 1:
            table = replace(table, name=f"{table.name}_{part}", features=(f"{table.name}_{part}",))
        rows = max(table.rows * case.every * case.hosts // (HOSTS * case.parts), 1)
        tables.append(replace(table, rows=rows, dtype=case.precision.table))
        access[table.name] = power_law_access(table.name, rows, length, exponent)
    return tuple(tables), AccessStatistics(access)


@cache
def priced(case: Case) -> Priced:
    """Raises PlanDoesNotFit."""
    tables, access = tables_of_case(case)
    work = thinner(replace(base(case.model).workload, batch_size=case.batch_of_gpu), case.dense_share)
    on = cluster(case.hosts)
    if case.reserved is not None:
        on = replace(on, reserved_memory_share=case.reserved)
    if case.placement == "dealt":
        plan = dealt(Model(tables, access, 0, 0.0, 0.0, 0.0, ()), on, case.precision, work)
    else:
        schemes = None if case.schemes is None else list(case.schemes)
        sharder = Neo4D(placement=case.placement, schemes=schemes, even_out=case.even_out)
        plan = _planned(sharder, PlanInputs(tables, access, on, case.precision, work), case.store)
    steps = with_ids_of(lower(plan, access, case.precision, work, in_flight=IN_FLIGHT), case.id_bytes)
    software = profile()
    if case.lookups:
        software = replace(software, lookup_efficiency_forward=case.lookups[0], lookup_efficiency_backward=case.lookups[1])
    simulated, timeline = simulate(steps, on, software, plan, work)
    costs = costs_of_ranks(plan, Setting(access, on, case.precision, case.batch_of_gpu, Weights()))
    lasting = bytes_of_ranks(plan, work).lasting
    filled = sum(lasting) / len(lasting) / on.usable_memory_bytes
    return Priced(plan, steps, work, simulated, timeline, costs.imbalance, filled)


def thinner(work: Workload, share: float) -> Workload:
    """With that share of the dense arch's FLOPs and weights."""
    if share == 1:
        return work
    layers = tuple(replace(layer, n_out=max(round(share * layer.n_out), 1)) for layer in work.layers)
    flops = share * work.forward_flops_per_sample, share * work.backward_flops_per_sample
    return replace(
        work,
        dense_parameters=round(share * work.dense_parameters),
        forward_flops_per_sample=flops[0],
        backward_flops_per_sample=flops[1],
        layers=layers,
    )


def with_ids_of(steps: Steps, id_bytes: int) -> Steps:
    """Exchanges of ids in so many bytes each, in place of int64."""
    share = id_bytes / ID_BYTES

    def shorter(step: Step) -> Step:
        if not (step.is_collective and step.name.endswith(".input.ids")):
            return step
        sent, taken = (tuple(share * figure for figure in of) for of in (step.bytes_of_rank, step.received_of_rank))
        return replace(step, bytes_of_rank=sent, received_of_rank=taken)

    return replace(steps, steps=tuple(map(shorter, steps.steps)))


def _planned(sharder: Neo4D, inputs: PlanInputs, store: str) -> ShardingPlan:
    try:
        return sharder.plan(inputs)
    except PlanDoesNotFit as refused:
        return Stores(store=store, in_flight=IN_FLIGHT).plan(inputs, sharder.plan, refused)
