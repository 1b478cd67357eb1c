"""A published point as what the simulator needs: cluster, plan, steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from experiments.validation import hybrid, mlperf
from experiments.validation.fit import Point, Setting
from experiments.validation.models import Model, model, published
from recsys_lab.cluster import Cluster
from recsys_lab.config.choices import built
from recsys_lab.plan import Placement, Shard, ShardingPlan, Steps, Workload
from recsys_lab.plan.lower import lower
from recsys_lab.precision import Precision
from recsys_lab.sharders.base import PlanInputs
from recsys_lab.sharders.torchrec import TorchRec
from recsys_lab.simulate import Profile
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
#: Of the hosts that tuned plans are for; a rack has more.
RANKS_OF_HOST = 8


@dataclass(frozen=True, eq=False)
class System:
    """What is simulated of a point. Points that differ in their submitter only share one."""

    cluster: Cluster
    steps: Steps
    workload: Workload

    def simulated_ms(self, profile: Profile) -> float:
        return _simulated_ms(self, repr(profile), lambda: float(place(self.steps, self.cluster, profile, self.workload).ends.max()))


@dataclass(frozen=True)
class Case:
    """One published point."""

    software: str
    what: str
    ms: float
    system: System
    setting: Setting

    @property
    def cluster(self) -> Cluster:
        return self.system.cluster

    @property
    def point(self) -> Point[Profile]:
        where = self.cluster
        return Point(
            self.software, self.what, self.ms, self.system.simulated_ms, family=where.device.name, hosts=where.hosts, setting=self.setting
        )

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
    who = f"{row.software}, {row.round} {row.submitter}, {made.cluster.device.name}"
    return Case(row.software, row.what, row.ms, made, _setting(who, row.model, planner, precision, made.cluster, row.batch))


def _case(software: str, point: dict[str, Any]) -> Case:
    cluster = built("cluster", point["cluster"]).reshaped(point["hosts"], point["ranks"])
    if "network" in point:
        cluster = replace(cluster, cross_host=mlperf.link(point["network"]))
    planner = point.get("planner", "torchrec")
    made = system(point["model"], cluster, point["batch"], point["precision"], planner)
    setting = _setting(f"{software}, {cluster.device.name}", point["model"], planner, point["precision"], cluster, point["batch"])
    return Case(software, point["what"], point["ms"], made, setting)


def _setting(system: str, model: str, planner: str, precision: str, cluster: Cluster, batch: int) -> Setting:
    return Setting(system, model, planner, precision, (cluster.hosts, cluster.ranks_per_host), batch)


_SYSTEMS: dict[str, System] = {}


def system(name: str, cluster: Cluster, batch: int, precision: str, planner: str) -> System:
    """Planned and lowered once. `precision`: of `PRECISIONS`; `planner`: hybrid, or of `PLANNERS`; `batch` of all ranks."""
    key = repr((name, cluster, batch, precision, planner))
    if key not in _SYSTEMS:
        found = model(name)
        work = found.workload(max(batch // cluster.world_size, 1), OPTIMIZERS.get(name, "adagrad"))
        if planner == "hybrid":
            steps = hybrid.steps_of(found, cluster, PRECISIONS[precision], work)
        else:
            steps = lower(_plan(name, planner, precision, cluster, work.batch_size), found.access, PRECISIONS[precision], work)
        _SYSTEMS[key] = System(cluster, steps, work)
    return _SYSTEMS[key]


_PLANS: dict[tuple, ShardingPlan] = {}


def _plan(name: str, planner: str, precision: str, cluster: Cluster, batch_size: int) -> ShardingPlan:
    key = (name, planner, precision, cluster.device, cluster.intra_host, cluster.hosts, cluster.ranks_per_host, batch_size)
    key = tuple(map(repr, key))
    if key not in _PLANS:
        _PLANS[key] = PLANNERS[planner](model(name), roomy(cluster), PRECISIONS[precision], model(name).workload(batch_size))
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


PLANNERS = {"torchrec": _by_torchrec, "tuned": _tuned, "whole_tables": whole_tables, "dealt": dealt}
