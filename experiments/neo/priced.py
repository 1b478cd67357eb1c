"""An iteration of Neo's models on ZionEX: planned by neo_4d, lowered, and simulated with the profile neo, which is fitted to none of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
import yaml

from experiments.validation.cases import dealt
from experiments.validation.models import Model
from recsys_lab.cluster import Cluster
from recsys_lab.config.choices import apart_from_hydra, built
from recsys_lab.experiment import of_words
from recsys_lab.models.click_model import ClickModel
from recsys_lab.plan import ShardingPlan, Steps, Workload
from recsys_lab.plan.lower import lower
from recsys_lab.planning import workload_of
from recsys_lab.precision import Precision
from recsys_lab.sharders.base import PlanInputs
from recsys_lab.sharders.neo import Neo4D
from recsys_lab.sharders.neo.costs import Setting, Weights, costs_of_ranks
from recsys_lab.simulate import Profile, Simulated, Timeline, simulate
from recsys_lab.tables import AccessStatistics, Table, power_law_access

HERE = Path(__file__).parent
HOSTS, RANKS_PER_HOST = 16, 8
FP32 = Precision("fp32")
FP16_TABLES = Precision("fp16_tables", table="fp16")
SIMULATED = "Simulated with MAD-Max's shares of the hardware for model A (profile neo); nothing is fitted to the paper's own figures."
#: Section 8.4: FP16 forward, BF16 backward, in the all-to-alls alone.
QUANTISED = Precision("quantised", table="fp16", forward_comm="fp16", backward_comm="bf16")


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

    On fewer than 16 hosts tables have fewer rows in proportion, as the paper has it (8.3).
    """

    model: str
    hosts: int = HOSTS
    batch_of_gpu: int = 512
    precision: Precision = FP32
    placement: str = "karmarkar_karp"
    schemes: tuple[str, ...] | None = None
    even_out: bool = True


@dataclass(frozen=True)
class Priced:
    """`imbalance`: of the ranks' costs by the planner's model."""

    plan: ShardingPlan
    steps: Steps
    workload: Workload
    simulated: Simulated
    timeline: Timeline
    imbalance: float

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
    with apart_from_hydra():
        experiment = of_words([f"model={name}", "data=random", "mode=simulate", "cluster=zionex_x16"], where="neo")
    data = experiment.open_data()
    tables = experiment.model.tables(data, "fp32")
    model = experiment.build_model(data, torch.device("meta"))
    workload = workload_of(experiment, model, data, 1, {t.name: data.access[t.name].mean_length for t in tables})
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
def tables_of_case(name: str, hosts: int, dtype: str) -> tuple[tuple[Table, ...], AccessStatistics]:
    of = base(name)
    tables = tuple(replace(t, rows=max(t.rows * hosts // HOSTS, 1), dtype=dtype) for t in of.tables)
    access = {t.name: power_law_access(t.name, t.rows, of.access[t.name].mean_length, of.exponent) for t in tables}
    return tables, AccessStatistics(access)


@cache
def priced(case: Case) -> Priced:
    """Raises PlanDoesNotFit."""
    tables, access = tables_of_case(case.model, case.hosts, case.precision.table)
    work = replace(base(case.model).workload, batch_size=case.batch_of_gpu)
    on = cluster(case.hosts)
    if case.placement == "dealt":
        plan = dealt(Model(tables, access, 0, 0.0, 0.0, 0.0, ()), on, case.precision, work)
    else:
        schemes = None if case.schemes is None else list(case.schemes)
        sharder = Neo4D(placement=case.placement, schemes=schemes, even_out=case.even_out)
        plan = sharder.plan(PlanInputs(tables, access, on, case.precision, work))
    steps = lower(plan, access, case.precision, work)
    simulated, timeline = simulate(steps, on, profile(), plan, work)
    costs = costs_of_ranks(plan, Setting(access, on, case.precision, case.batch_of_gpu, Weights()))
    return Priced(plan, steps, work, simulated, timeline, costs.imbalance)
