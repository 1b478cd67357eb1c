"""Steps placed in time on two tracks, compute and communication."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from recsys_lab.cluster import Cluster
from recsys_lab.errors import UserError
from recsys_lab.plan.steps import Step, Steps
from recsys_lab.simulate.collectives import collective_ms
from recsys_lab.simulate.profile import Profile
from recsys_lab.units import MIB, US_PER_MS, compute_ms, transfer_ms

DENSE_ALL_REDUCE = "dense.all_reduce"
DENSE_SYNCS = (DENSE_ALL_REDUCE, "towers.module.all_reduce")
HOST_TIER = "host_sharded."
COMPUTE, DENSE_SYNC, EMBEDDING_COMM, OTHER = "compute", "exposed_dense_sync", "exposed_embedding_comm", "other"


@dataclass(frozen=True)
class Event:
    """A step of an iteration from `start_ms` to `end_ms`."""

    step: Step
    start_ms: float
    end_ms: float

    @property
    def phase(self) -> str:
        if not self.step.is_collective:
            return COMPUTE
        return DENSE_SYNC if self.step.name in DENSE_SYNCS else EMBEDDING_COMM

    @property
    def ms(self) -> float:
        return self.end_ms - self.start_ms


def step_ms(step: Step, cluster: Cluster, profile: Profile) -> float:
    """The step's time on the rank that needs longest, without launch overhead."""
    if step.is_collective:
        return collective_ms(step, cluster)
    device = cluster.device
    if step.kind == "dense":
        peak = profile.peak_of_format.get(step.number_format)
        if peak not in device.peak_tflops:
            raise UserError(
                f"no peak for {step.number_format} (profile {profile.name} wants {peak})",
                where="cluster.device.peak_tflops",
                given=", ".join(device.peak_tflops),
                remedy="add the figure and its source to the cluster, or map the format in profile.peak_of_format",
            )
        work = compute_ms(step.flops, device.peak_tflops[peak] * profile.dense_mfu)
        return max(work, transfer_ms(step.max_bytes, device.memory_bandwidth_gb_s * profile.memory_efficiency))
    efficiency = profile.memory_efficiency
    if step.kind == "lookup":
        efficiency = profile.lookup_efficiency_forward
    elif step.phase == "backward":
        efficiency = profile.lookup_efficiency_backward
    return transfer_ms(step.max_bytes, device.memory_bandwidth_gb_s * efficiency)


def schedule(steps: Steps, cluster: Cluster, profile: Profile) -> list[Event]:
    """One after another in the order of `steps`, but for what the profile lets overlap: that runs on a communication track beside
    compute, from when it is ready, and holds up only what comes after it or needs its link.
    """
    overhead = profile.launch_overhead_us / US_PER_MS
    placed: dict[str, Event] = {}
    now, link_free = 0.0, {False: 0.0, True: 0.0}  # by whether it is the link within the host
    for step in _ordered(steps.steps, profile):
        ms, beside = step_ms(step, cluster, profile), _overlaps(step, profile)
        if beside and step.name == DENSE_ALL_REDUCE:
            ready = _first_bucket_ms(step, ms, placed["dense.backward"], profile)
        else:
            ready = max((placed[name].end_ms for name in step.after if name in placed), default=0.0)
        within = step.is_collective and "host_tier" in profile.overlaps and within_host(step, cluster)
        start = max(ready if beside else max(now, ready), link_free[within] if step.is_collective else 0.0) + overhead
        event = placed[step.name] = Event(step, start, start + ms)
        if not beside:
            now = event.end_ms
        if step.is_collective:
            link_free[within] = event.end_ms
    return list(placed.values())


def _first_bucket_ms(step: Step, ms: float, backward: Event, profile: Profile) -> float:
    """When an all-reduce in equal buckets begins: not before the backward has filled the first, and so that the last follows its end."""
    buckets = max(math.ceil(step.max_bytes / (profile.dense_bucket_mib * MIB)), 1)
    return max(backward.start_ms + backward.ms / buckets, backward.end_ms + ms / buckets - ms)


def exposed_phases(events: Iterable[Event]) -> dict[str, float]:
    """Milliseconds by what the iteration waits for: compute first, then communication that nothing hides, then nothing (other)."""
    events = list(events)
    edges = sorted({0.0, *(e.start_ms for e in events), *(e.end_ms for e in events)})
    phases = {COMPUTE: 0.0, EMBEDDING_COMM: 0.0, DENSE_SYNC: 0.0, OTHER: 0.0}
    for start, end in zip(edges, edges[1:]):
        running = {e.phase for e in events if e.start_ms <= start and e.end_ms >= end}
        phases[next((p for p in (COMPUTE, EMBEDDING_COMM, DENSE_SYNC) if p in running), OTHER)] += end - start
    return phases


def within_host(step: Step, cluster: Cluster) -> bool:
    """Whether a collective of the host-sharded tier keeps off the links between hosts, on a cluster that has some."""
    return (
        step.name.startswith(HOST_TIER)
        and cluster.hosts > 1
        and all(len({cluster.host_of(rank) for rank in group}) == 1 for group in step.groups)
    )


def _overlaps(step: Step, profile: Profile) -> bool:
    if not step.is_collective:
        return False
    if step.name.startswith(HOST_TIER) and "host_tier" in profile.overlaps:
        return True
    return (step.phase == "input" and "input" in profile.overlaps) or (step.name == DENSE_ALL_REDUCE and "dense_sync" in profile.overlaps)


def _ordered(steps: tuple[Step, ...], profile: Profile) -> list[Step]:
    """The given order; an overlapped input distribution is the next batch's, and starts with the dense part's forward."""
    if "input" not in profile.overlaps:
        return list(steps)
    inputs = [step for step in steps if step.phase == "input"]
    rest = [step for step in steps if step.phase != "input"]
    at = next((i for i, step in enumerate(rest) if step.kind == "dense"), len(rest))
    first = tuple(step.name for step in rest[:at])[-1:]
    names = {step.name for step in inputs}
    inputs = [replace(step, after=step.after or first) for step in inputs]
    rest = [replace(step, after=tuple(name for name in step.after if name not in names)) for step in rest]
    return [*rest[:at], *inputs, *rest[at:]]
