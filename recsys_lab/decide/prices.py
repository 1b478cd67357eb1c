"""What a combination takes: planned by the function that plans a run, and priced by the one that prices it (`planning.price`)."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field, replace
from typing import Any

from recsys_lab.cluster import Cluster, Price
from recsys_lab.data.batch import DataSet
from recsys_lab.decide.combinations import Combination
from recsys_lab.errors import PlanDoesNotFit, UserError
from recsys_lab.plan import ShardingPlan
from recsys_lab.plan.memory import bytes_of_ranks
from recsys_lab.planning import Planned, plan_for, price
from recsys_lab.simulate import Profile, Simulated, Timeline
from recsys_lab.units import GB

#: What the phases of a simulated iteration wait for, in words; of other phases the name.
PHASES = {
    "exposed_embedding_comm": "exchange",
    "exposed_dense_sync": "all-reduce",
    "exposed_store": "rows from host memory or disk",
    "host_launch": "host",
}
#: What a step of compute is, in words.
COMPUTE = {"lookup": "look-ups", "update": "updates", "dense": "dense"}


@dataclass(frozen=True)
class Row:
    """A combination under one profile. Simulated figures are None where it does not `fit`, and where the sharder cannot plan it at all.

    `batch`, `batch_per_rank`: samples. `ms`: of an iteration; intervals are 90 % intervals, None where the profile's error is not
    known. `usd_per_1e9`: dollars per 1e9 samples at `price`, both None without a price; `device_hours_per_1e9`: the same in device-hours.
    `memory_gb`: of the fullest rank, buffers included, of `memory_there_gb` (1e9 bytes). `phases_ms`: where the iteration's time goes.
    `bound`: what takes most of it. `pareto`: under its profile no other row is both faster and cheaper. `robust`: that under every profile.
    `software`: the profile as the record names it, which says whether the executor's pipeline is on. `command`: the line of run.py with the
    same figures. `why_not`: why there are none; `fix`: of a row that does not fit, the nearest change that does.
    """

    cluster: str
    sharder: str
    precision: str
    optimizer: str
    profile: str
    batch: int
    batch_per_rank: int
    ranks: int
    fits: bool
    ms: float | None = None
    ms_interval: tuple[float, float] | None = None
    samples_per_second: float | None = None
    usd_per_1e9: float | None = None
    usd_interval: tuple[float, float] | None = None
    device_hours_per_1e9: float | None = None
    memory_gb: float | None = None
    memory_there_gb: float | None = None
    exposed_ms: float | None = None
    phases_ms: dict[str, float] = field(default_factory=dict)
    bound: str | None = None
    pareto: bool = False
    robust: bool = False
    why_not: str | None = None
    fix: str | None = None
    software: str | None = None
    extrapolates: str | None = None
    command: str = ""
    price: Price | None = None

    @property
    def choices(self) -> tuple[str, str, str, str]:
        return self.cluster, self.sharder, self.precision, self.optimizer

    @property
    def name(self) -> str:
        return " ".join(self.choices)

    @property
    def cost(self) -> float:
        """Dollars, or device-hours without a price, per 1e9 samples. Of a row that has figures; to compare rows, take `cost_order`."""
        cost = self.device_hours_per_1e9 if self.usd_per_1e9 is None else self.usd_per_1e9
        assert cost is not None
        return cost

    @property
    def cost_order(self) -> tuple[bool, float]:
        """A key to sort by: rows with a price by their dollars, then those without by device-hours."""
        return self.usd_per_1e9 is None, self.cost

    @property
    def cost_interval(self) -> tuple[float, float] | None:
        """Of the cost, as wide as that of the time; None where no interval is known."""
        if self.ms is None or self.ms_interval is None:
            return None
        low, high = self.ms_interval
        return self.cost * low / self.ms, self.cost * high / self.ms


@dataclass(frozen=True)
class Priced:
    """A combination's rows, one for each of its profiles, and its plan; a row without figures and no plan where it cannot be planned."""

    combination: Combination
    rows: tuple[Row, ...]
    plan: ShardingPlan | None = None


def price_combination(combination: Combination, data: DataSet) -> Priced:
    """Plans and prices it. Raises UserError where the cluster lacks a figure."""
    try:
        planned = plan_for(combination.experiment, data)
    except UserError as error:
        fits = not isinstance(error, PlanDoesNotFit)
        return Priced(combination, (_row(combination, combination.profiles[0], fits=fits, why_not=str(error)),))
    memory_gb = fullest_gb(planned)
    rows = tuple(replace(priced_row(combination, planned, profile), memory_gb=memory_gb) for profile in combination.profiles)
    return Priced(combination, rows, planned.plan)


def fullest_gb(planned: Planned) -> float:
    """What the fullest rank holds, buffers included, in 1e9 bytes."""
    return max(bytes_of_ranks(planned.plan, planned.workload).totals) / GB


def priced_row(combination: Combination, planned: Planned, profile: Profile, cluster: Cluster | None = None) -> Row:
    """`planned` under `profile`, on its cluster or on another with as many ranks; its memory is not counted.

    Raises UserError where the cluster lacks a figure.
    """
    simulated, timeline = price(planned, profile, cluster)
    cluster = planned.cluster if cluster is None else cluster
    usd, ms = simulated.cost_per_billion_samples, simulated.iteration_ms
    told = simulated.interval_ms
    return _row(
        combination,
        profile,
        fits=simulated.feasible,
        ms=ms,
        ms_interval=told and (told.low, told.high),
        samples_per_second=simulated.examples_per_second,
        usd_per_1e9=usd,
        usd_interval=told and (usd * told.low / ms, usd * told.high / ms) if usd is not None else None,
        device_hours_per_1e9=1e9 / simulated.examples_per_second / 3600 * cluster.world_size,
        memory_there_gb=cluster.device.memory_gb,
        exposed_ms=simulated.phases_ms.get("exposed_embedding_comm"),
        phases_ms=simulated.phases_ms,
        bound=bound_of(simulated, timeline),
        software=simulated.profile,
        extrapolates=simulated.extrapolates,
    )


def _row(combination: Combination, profile: Profile, **figures: Any) -> Row:
    cluster = combination.experiment.cluster
    own = profile.name == combination.experiment.profile.name
    words = combination.words if own else (*combination.words, f"profile@simulate.profile={profile.name}")
    return Row(
        cluster=combination.cluster,
        sharder=combination.sharder,
        precision=combination.precision,
        optimizer=combination.optimizer,
        profile=profile.name,
        batch=combination.batch,
        batch_per_rank=combination.experiment.batch_size,
        ranks=cluster.world_size,
        price=cluster.price,
        command=f"python run.py {shlex.join(words)}",
        **figures,
    )


def bound_of(simulated: Simulated, timeline: Timeline) -> str:
    """What the iteration waits for most; of compute, which part of it takes longest."""
    phase = max(simulated.phases_ms, key=lambda name: simulated.phases_ms[name])
    if phase != "compute":
        return PHASES.get(phase, phase.replace("_", " "))
    busy: dict[str, float] = {}
    for event in timeline.events:
        if event.step.kind in COMPUTE:
            busy[event.step.kind] = busy.get(event.step.kind, 0.0) + event.ms
    return COMPUTE[max(busy, key=lambda kind: busy[kind])] if busy else "compute"
