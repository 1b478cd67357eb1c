"""A published point as what the simulator needs: cluster, plan, steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

from experiments.validation import hybrid, mlperf
from experiments.validation.fit import Point, Setting
from experiments.validation.models import Model, model, published
from recsys_lab.cluster import Cluster
from recsys_lab.config.choices import built
from recsys_lab.plan import Placement, Shard, ShardingPlan, Step, Steps, Workload
from recsys_lab.plan.lower import lower
from recsys_lab.precision import Precision
from recsys_lab.sharders.base import PlanInputs
from recsys_lab.sharders.torchrec import TorchRec
from recsys_lab.simulate import Profile
from recsys_lab.simulate.posterior import RANKS_OF_HOST
from recsys_lab.simulate.timeline import place

#: Of MLPerf's one-hot DLRM; Adagrad elsewhere.
OPTIMIZERS = {"dlrm_mlperf": "sgd"}
PRECISIONS = {
    "bf16": Precision("bf16", compute="bf16", forward_comm="bf16", backward_comm="bf16", dense_comm="bf16"),
    "fp32": Precision("fp32"),
    "mixed": Precision("mixed", compute="fp16", forward_comm="fp16", backward_comm="fp16", dense_comm="fp16"),
}
FRAMEWORKS = ("hugectr", "nvidia_pytorch", "torchrec", "distributed_embeddings", "sok")
#: A plan must be there even where a framework keeps its tables smaller than ours (FP16, no optimizer state).
ROOM_GB = 1000.0
#: Tables of a tuned submission with fewer rows may be on every rank.
SMALL_ROWS = 100_000


#: What of an iteration was timed. A host waits for nothing where a kernel alone was.
PARTS: dict[str, Callable[[Step], bool]] = {
    "iteration": lambda step: True,
    "evaluation": lambda step: step.phase in ("input", "forward"),
    "lookup": lambda step: step.kind == "lookup",
    "update": lambda step: step.kind == "update" and step.phase == "backward",
}
KERNELS = ("lookup", "update")


@dataclass(frozen=True, eq=False)
class System:
    """What is simulated of a point. Points that differ in their submitter only share one.

    `steps`: what was timed of them. `of_profile`: the software as it was run.
    """

    cluster: Cluster
    steps: Steps
    workload: Workload
    of_profile: Callable[[Profile], Profile] = lambda profile: profile

    def time_ms(self, profile: Profile, cluster: Cluster) -> float:
        return float(place(self.steps, cluster, self.of_profile(profile), self.workload).ends.max())

    def simulated_ms(self, profile: Profile) -> float:
        return _simulated_ms(self, repr(profile), lambda: self.time_ms(profile, self.cluster))


@dataclass(frozen=True)
class Case:
    """One published point."""

    software: str
    what: str
    ms: float
    system: System
    setting: Setting
    together: str = ""

    @property
    def cluster(self) -> Cluster:
        return self.system.cluster

    @property
    def point(self) -> Point[Profile]:
        own = self.system
        figures = (self.software, self.what, self.ms, own.simulated_ms)
        return Point(*figures, cluster=own.cluster, time_ms=own.time_ms, setting=self.setting, together=self.together)

    def simulated_ms(self, profile: Profile) -> float:
        return self.system.simulated_ms(profile)


_TIMES: dict[tuple[int, str], float] = {}


def _simulated_ms(system: System, software: str, simulate: Callable[[], float]) -> float:
    """Of a system by a profile, simulated once."""
    key = (id(system), software)
    if key not in _TIMES:
        _TIMES[key] = simulate()
    return _TIMES[key]


@cache
def cases(software: str) -> tuple[Case, ...]:
    """The points of one framework, planned once."""
    given = published()[software]
    common = {key: given[key] for key in ("model", "precision", "planner", "network") if key in given}
    own = (_case(software, common | dict(point)) for point in given.get("points", ()) if software in FRAMEWORKS)
    return (*own, *(of_row(row) for row in mlperf.rows() if row.software == software))


def of_row(row: mlperf.Row) -> Case:
    """A run of MLPerf. GPUs compute and exchange in mixed precision, CPUs in BF16."""
    if row.software == "cpu":
        precision, planner = "bf16", "whole_tables"
    else:
        precision, planner = "mixed", "hybrid" if row.hybrid else "tuned"
    made = system(row.model, mlperf.cluster_of(row), row.batch, precision, planner)
    return Case(row.software, row.what, row.ms, made, _setting(row.software, row.model, planner, precision, made.cluster, row.batch))


def _case(software: str, point: dict[str, Any]) -> Case:
    cluster = built("cluster", point["cluster"]).reshaped(point["hosts"], point["ranks"])
    if "network" in point:
        cluster = replace(cluster, cross_host=mlperf.link(point["network"]))
    planner, part = point.get("planner", "torchrec"), point.get("part", "iteration")
    made = system(point["model"], cluster, point["batch"], point["precision"], planner, point.get("optimizer"), point.get("most_rows"))
    if {"part", "products", "pipelined"} & set(point):
        steps = tuple(replace(step, after=()) if part in KERNELS else step for step in made.steps.steps if PARTS[part](step))
        as_run = partial(_as_run, products=point.get("products", "tf32"), pipelined=point.get("pipelined", False), part=part)
        made = System(cluster, replace(made.steps, steps=steps), made.workload, as_run)
    precision = f"{point['precision']}, {point.get('products', 'tf32')}"
    setting = _setting(f"{software}, {part}", point["model"], planner, precision, cluster, point["batch"])
    return Case(software, point["what"], point["ms"], made, setting, point.get("together", ""))


def _as_run(profile: Profile, products: str, pipelined: bool, part: str) -> Profile:
    """`products`: where FP32 is multiplied, in "tf32" or on "fp32" cores."""
    if part in KERNELS:
        profile = replace(profile, iteration_overhead_ms=0.0, launch_overhead_us=0.0)
    peaks = profile.peak_of_format | {"fp32": products}
    return replace(profile.pipelined if pipelined else profile, peak_of_format=peaks)


def _setting(system: str, model: str, planner: str, precision: str, cluster: Cluster, batch: int) -> Setting:
    scale, hardware = (cluster.hosts, cluster.ranks_per_host), f"{cluster.device.name}, {cluster.intra_host.name}"
    return Setting(system, model, planner, precision, scale, batch, hardware)


_SYSTEMS: dict[str, System] = {}


def system(
    name: str, cluster: Cluster, batch: int, precision: str, planner: str, optimizer: str | None = None, most_rows: int | None = None
) -> System:
    """Planned and lowered once. `precision`: of `PRECISIONS`; `planner`: hybrid, or of `PLANNERS`; `batch` of all ranks.

    `optimizer`: None: the model's usual one. `most_rows`: of each table.
    """
    key = repr((name, cluster, batch, precision, planner, optimizer, most_rows))
    if key not in _SYSTEMS:
        found = model(name, most_rows)
        work = found.workload(max(batch // cluster.world_size, 1), optimizer or OPTIMIZERS.get(name, "adagrad"))
        if planner == "hybrid":
            steps = hybrid.steps_of(found, cluster, PRECISIONS[precision], work)
        else:
            steps = lower(_plan(found, name, planner, precision, cluster, work.batch_size), found.access, PRECISIONS[precision], work)
        _SYSTEMS[key] = System(cluster, steps, work)
    return _SYSTEMS[key]


_PLANS: dict[tuple, ShardingPlan] = {}


def _plan(found: Model, name: str, planner: str, precision: str, cluster: Cluster, batch_size: int) -> ShardingPlan:
    key = (name, planner, precision, cluster.device, cluster.intra_host, cluster.hosts, cluster.ranks_per_host, batch_size)
    key = tuple(map(repr, key))
    if key not in _PLANS:
        _PLANS[key] = PLANNERS[planner](found, roomy(cluster), PRECISIONS[precision], found.workload(batch_size))
    return _PLANS[key]


def roomy(cluster: Cluster) -> Cluster:
    """The cluster with memory for any plan."""
    return replace(cluster, device=replace(cluster.device, memory_gb=ROOM_GB))


def _by_torchrec(found: Model, cluster: Cluster, precision: Precision, work: Workload) -> ShardingPlan:
    return TorchRec().plan(PlanInputs(found.tables, found.access, cluster, precision, work))


def of_hosts(cluster: Cluster) -> Cluster:
    """A rack's ranks, which NVLink joins as one host, as hosts of `RANKS_OF_HOST` or, where these do not go into it, of fewer."""
    ranks = max(n for n in range(1, RANKS_OF_HOST + 1) if cluster.ranks_per_host % n == 0)
    return cluster.reshaped(cluster.world_size // ranks, ranks) if cluster.ranks_per_host > RANKS_OF_HOST else cluster


def _tuned(found: Model, cluster: Cluster, precision: Precision, work: Workload) -> ShardingPlan:
    """As a tuned submission may be. Their plans are not published.

    Within a host tables are cut by rows or columns, and small ones are on every rank. Across hosts they are cut in two dimensions, so that
    one message goes to each host. A rack is planned as hosts of so many ranks as others have.
    """
    cluster = of_hosts(cluster)
    option: dict[str, Any] = {"sharding_types": ["data_parallel", "row_wise", "column_wise"]}
    if cluster.hosts > 1:
        option = {"force": {t.name: "data_parallel" if t.rows < SMALL_ROWS else "grid_shard" for t in found.tables}}
    return TorchRec(**option).plan(PlanInputs(found.tables, found.access, cluster, precision, work))


def whole_tables(found: Model, cluster: Cluster, precision: Precision, work: Workload) -> ShardingPlan:
    return TorchRec(sharding_types=["table_wise", "column_wise"]).plan(PlanInputs(found.tables, found.access, cluster, precision, work))


def only_whole_tables(found: Model, cluster: Cluster, precision: Precision, work: Workload) -> ShardingPlan:
    return TorchRec(sharding_types=["table_wise"]).plan(PlanInputs(found.tables, found.access, cluster, precision, work))


def dealt(found: Model, cluster: Cluster, precision: Precision, work: Workload) -> ShardingPlan:
    """Whole tables in falling size, dealt to the ranks there and back, so that each has as many and as much memory."""
    turn = [*range(cluster.world_size), *reversed(range(cluster.world_size))]
    placed: dict[str, Placement] = {}
    for number, table in enumerate(sorted(found.tables, key=lambda t: -t.weight_bytes)):
        shard = Shard((turn[number % len(turn)],), 0, table.rows, 0, table.dim)
        placed[table.name] = Placement(table.name, "table_wise", (shard,))
    return ShardingPlan("dealt", cluster.hosts, cluster.ranks_per_host, found.tables, tuple(placed[t.name] for t in found.tables))


PLANNERS = {
    "torchrec": _by_torchrec,
    "tuned": _tuned,
    "whole_tables": whole_tables,
    "only_whole_tables": only_whole_tables,
    "dealt": dealt,
}
