"""Price the steps of an iteration on a named cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from recsys_lab.cluster import Cluster, Price, doubt, ranks_text
from recsys_lab.errors import UserError
from recsys_lab.plan import ShardingPlan, Steps, Workload
from recsys_lab.plan.memory import RankMemory, bytes_of_ranks, missing_bytes
from recsys_lab.plan.store_facts import Files
from recsys_lab.simulate.longest import with_wait
from recsys_lab.simulate.memory import MemoryAt, added_memory_bytes, memory_over_time
from recsys_lab.simulate.page_cache import beside_page_cache
from recsys_lab.simulate.phases import exposed_phases
from recsys_lab.simulate.placed import Event, Launch, Schedule
from recsys_lab.simulate.posterior import Interval, hosts_seen
from recsys_lab.simulate.profile import Profile
from recsys_lab.simulate.stores import with_bookkeeping
from recsys_lab.simulate.timeline import place
from recsys_lab.units import MS_PER_HOUR, MS_PER_S, counted, human_bytes


@dataclass(frozen=True)
class Collective:
    """One collective of the iteration. `group` as `ranks_text` writes it: the first of those alike. `bytes`: of the rank with most."""

    name: str
    kind: str
    group: str
    bytes: float
    ms: float


@dataclass(frozen=True)
class Spread:
    """Over ranks."""

    max: float
    mean: float


@dataclass(frozen=True)
class InRun:
    """The same iteration in a run's first `steps`, a mean: caches and files still fill. Rows that nobody has read are made, not read.

    `bytes_read`, `bytes_written`: of all ranks in an iteration, from and to files and hosts' memory.
    """

    steps: int
    iteration_ms: float
    phases_ms: dict[str, float]
    bytes_read: float
    bytes_written: float


@dataclass(frozen=True)
class Simulated:
    """The record's `simulated` object, field by field.

    Attributes:
        cluster: the cluster's name.
        world_size: its ranks.
        profile: the software profile's name.
        examples_per_second: samples of all ranks.
        iteration_ms: the sum of `phases_ms`.
        phases_ms: what the iteration waits for, by phase, on the slowest rank.
        collectives: those of the slowest rank, in order.
        bytes_per_rank: memory that lasts from step to step, as in the plan's summary.
        feasible: whether the plan fits the cluster's memory.
        interval_ms: 90 % interval of the iteration (`posterior.py`), wider outside of the profile's fit; None: it was not asked for, or the
            profile was not fitted.
        cost_per_billion_samples: dollars at `price`; None without a price.
        software: the profile's figures.
        added_memory_bytes: what training adds to a process of the fullest rank; on a GPU, in tensors.
        extrapolates: in words, what the profile was fitted on, where this is something else.
        price: of a device-hour; None: the cluster has none.
        in_run: with stores, the mean of the training beside it; all other figures are of the long run. None without such a training.
        bound_by: of each part of cluster and software that would shorten the iteration, the ms that it would save at twice the speed, the
            most first (`bounds.py`). The first is what bounds the iteration. None: it was not asked for.
        torchrec_ms: of an iteration under sharder=torchrec, of a model that is far too small for the cluster; None of others.
        torchrec_host_ms: the same on one of the cluster's hosts, which takes the samples of all; None also where there is one host.
        doubt: what may be wrong with the cluster's figures (`cluster/doubts.py`); None: nothing is seen.
        calibrated: whether the cluster's figures are its own (`Cluster.calibrated`). If not, the record keeps no times (`without_times`).
    """

    cluster: str
    world_size: int
    profile: str
    examples_per_second: float
    iteration_ms: float
    phases_ms: dict[str, float]
    collectives: tuple[Collective, ...]
    bytes_per_rank: Spread
    feasible: bool
    interval_ms: Interval | None = None
    cost_per_billion_samples: float | None = None
    software: Mapping[str, Any] = field(default_factory=dict)
    added_memory_bytes: float | None = None
    extrapolates: str | None = None
    price: Price | None = None
    in_run: InRun | None = None
    bound_by: Mapping[str, float] | None = None
    torchrec_ms: float | None = None
    torchrec_host_ms: float | None = None
    doubt: str | None = None
    calibrated: bool = True

    def __str__(self) -> str:
        """A table, without the collectives and the software's figures."""
        interval = f"  (90 % interval {self.interval_ms.low:,.3f} to {self.interval_ms.high:,.3f} ms)" if self.interval_ms else ""
        rows = [("iteration", f"{self.iteration_ms:,.3f} ms", interval)]
        rows += [(f"  {name.replace('_', ' ')}", f"{ms:,.3f} ms", "") for name, ms in self.phases_ms.items()]
        rows.append(("examples per second", f"{self.examples_per_second:,.0f}   ", ""))
        if self.cost_per_billion_samples is not None:
            at = f"  (at {self.price.usd_per_device_hour:,.2f} $ a device-hour)" if self.price else ""
            rows.append(("dollars per 1e9 samples", f"{self.cost_per_billion_samples:,.2f} $ ", at))
        rows.append(("lasting memory, most", f"{human_bytes(self.bytes_per_rank.max)} ", "" if self.feasible else "  (does not fit)"))
        name, figure = (max(len(row[place]) for row in rows) for place in (0, 1))
        head = f"{self.cluster}: {counted(self.world_size, 'rank')}, profile {self.profile}; simulated"
        table = [f"{words:<{name}}  {value:>{figure}}{more}".rstrip() for words, value, more in rows]
        return "\n".join([head, *table, *(words for words in (self.extrapolates, self.doubt) if words)])


def without_times(simulated: Mapping[str, Any]) -> dict[str, Any]:
    """The record's `simulated` object without what follows from another machine's figures. Volumes, and memory by the plan, are left."""
    kept = {key: simulated[key] for key in ("cluster", "world_size", "profile", "bytes_per_rank", "feasible")}
    collectives = [{**one, "ms": None} for one in simulated["collectives"] or ()]
    phases = dict.fromkeys(simulated["phases_ms"] or ())
    none = dict.fromkeys(key for key in simulated if key != "in_run")
    return none | kept | {"phases_ms": phases, "collectives": collectives, "software": {}, "calibrated": False}


@dataclass(frozen=True)
class Timeline:
    """Where each step lies in the simulated iteration of the slowest rank, and its memory. `title` says what was simulated.

    `least`: the same of the rank that computes least, empty where all are alike. Between the two lies what waits for stragglers.
    `launches`, `least_launches`: what the hosts of both issue meanwhile. A host may be an iteration ahead. A CPU has none.
    """

    title: str
    events: tuple[Event, ...]
    memory: tuple[MemoryAt, ...] = ()
    least: tuple[Event, ...] = ()
    launches: tuple[Launch, ...] = ()
    least_launches: tuple[Launch, ...] = ()


def simulate(
    steps: Steps,
    cluster: Cluster,
    profile: Profile,
    plan: ShardingPlan,
    workload: Workload,
    files: Files | None = None,
    memory: RankMemory | None = None,
) -> tuple[Simulated, Timeline]:
    """Prices one iteration.

    Args:
        steps: the lowered `plan`.
        cluster: of as many ranks as `steps`.
        profile: the software's efficiencies and overlaps.
        plan: gives the memory of each rank.
        workload: one iteration of one rank.
        files: of each rank, with rows; None: as large as the plan says, and never rewritten.
        memory: of each rank; None: counted here.

    Returns:
        The record's figures, and the timelines of the slowest and the least busy rank.

    Raises:
        UserError: where the cluster lacks a figure that a step needs, or has another number of ranks.
    """
    if steps.world_size != cluster.world_size:
        raise UserError(
            "the plan is for another number of ranks", where=f"cluster {cluster.name}", given=steps.world_size, allowed=cluster.world_size
        )
    memory = bytes_of_ranks(plan, workload) if memory is None else memory
    whole = _placed(steps, cluster, profile, plan, workload, files, memory)
    events = whole.events(whole.slowest)
    phases = exposed_phases(events, float(whole.host_ms.max()))
    iteration_ms = sum(phases.values())
    simulated = Simulated(
        cluster=cluster.name,
        world_size=cluster.world_size,
        profile=profile.name,
        examples_per_second=steps.batch_size * steps.world_size / iteration_ms * MS_PER_S,
        iteration_ms=iteration_ms,
        phases_ms=phases,
        collectives=tuple(
            Collective(e.step.name, e.step.kind, ranks_text(e.step.groups[0]), e.step.max_bytes, e.ms)
            for e in events
            if e.step.is_collective
        ),
        bytes_per_rank=Spread(max(memory.lasting), sum(memory.lasting) / len(memory.lasting)),
        feasible=missing_bytes(memory, cluster)[0] <= 0,
        cost_per_billion_samples=_cost(iteration_ms / (steps.batch_size * steps.world_size), cluster),
        software=asdict(profile),
        added_memory_bytes=added_memory_bytes(steps, cluster, profile, memory),
        extrapolates=extrapolates(profile, cluster),
        price=cluster.price,
        doubt=doubt(cluster),
        calibrated=cluster.calibrated,
    )
    title = f"simulated: {cluster.name}, {counted(cluster.world_size, 'rank')}, profile {profile.name}"
    over_time = memory_over_time(events, memory, whole.slowest, workload)
    uneven = whole.fastest != whole.slowest
    least, of_least = (whole.events(whole.fastest), whole.launches(whole.fastest)) if uneven else ([], ())
    return simulated, Timeline(title, tuple(events), tuple(over_time), tuple(least), whole.launches(whole.slowest), of_least)


def iteration_ms(
    steps: Steps, cluster: Cluster, profile: Profile, plan: ShardingPlan, workload: Workload, files: Files | None, memory: RankMemory
) -> float:
    """The `iteration_ms` of `simulate` alone."""
    return float(_placed(steps, cluster, profile, plan, workload, files, memory).ends.max())


def _placed(
    steps: Steps, cluster: Cluster, profile: Profile, plan: ShardingPlan, workload: Workload, files: Files | None, memory: RankMemory
) -> Schedule:
    in_files = beside_page_cache(with_bookkeeping(steps, cluster, profile), cluster, profile, plan, memory, files)
    in_files = with_wait(in_files, cluster, profile, workload)
    return place(in_files, cluster, profile, workload)


def extrapolates(profile: Profile, cluster: Cluster) -> str | None:
    """Of what the profile has seen nothing: another device, or more hosts of one; None where it was fitted to such systems, or to none."""
    fitted = profile.fitted_systems
    if not fitted or hosts_seen(cluster) <= fitted.get(cluster.device.name, 0):
        return None
    return (
        f"fitted on {', '.join(_hosts_of(*one) for one in fitted.items())}; this is {_hosts_of(cluster.device.name, hosts_seen(cluster))}"
    )


def _hosts_of(device: str, hosts: int) -> str:
    return f"{counted(hosts, 'host')} of {device}"


def _cost(ms_per_sample: float, cluster: Cluster) -> float | None:
    """Of a billion samples, all devices together, in dollars."""
    if cluster.price is None:
        return None
    return ms_per_sample * 1e9 / MS_PER_HOUR * cluster.price.usd_per_device_hour * cluster.world_size
