"""Price the steps of an iteration on a named cluster."""

from __future__ import annotations

from dataclasses import dataclass

from recsys_lab.cluster import Cluster, ranks_text
from recsys_lab.errors import UserError
from recsys_lab.plan import ShardingPlan, Steps, Workload
from recsys_lab.plan.memory import bytes_of_ranks, missing_bytes
from recsys_lab.simulate.profile import Profile
from recsys_lab.simulate.timeline import Event, exposed_phases, schedule
from recsys_lab.units import MS_PER_S


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
class Simulated:
    """The record's `simulated` object, field by field. `bytes_per_rank`: what lasts from step to step, as in the plan's summary."""

    cluster: str
    world_size: int
    profile: str
    examples_per_second: float
    iteration_ms: float
    phases_ms: dict[str, float]
    collectives: tuple[Collective, ...]
    bytes_per_rank: Spread
    feasible: bool


@dataclass(frozen=True)
class Timeline:
    """Where each step lies in the simulated iteration. `title` says what was simulated."""

    title: str
    events: tuple[Event, ...]


def simulate(steps: Steps, cluster: Cluster, profile: Profile, plan: ShardingPlan, workload: Workload) -> tuple[Simulated, Timeline]:
    """One iteration of `steps` (the lowered `plan`) on `cluster` with the software `profile`.

    Raises UserError where the cluster lacks a figure that a step needs, or has another number of ranks.
    """
    if steps.world_size != cluster.world_size:
        raise UserError(
            "the plan is for another number of ranks", where=f"cluster {cluster.name}", given=steps.world_size, allowed=cluster.world_size
        )
    events = schedule(steps, cluster, profile)
    phases = exposed_phases(events)
    iteration_ms = sum(phases.values())
    memory = bytes_of_ranks(plan, workload)
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
    )
    title = f"simulated: {cluster.name}, {cluster.world_size} ranks, profile {profile.name}"
    return simulated, Timeline(title, tuple(events))
