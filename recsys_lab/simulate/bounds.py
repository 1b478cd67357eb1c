"""What bounds a step, and what bounds an iteration: the part whose double speed would shorten it most, as the simulator prices it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from recsys_lab.cluster import Cluster, Disk
from recsys_lab.cluster.topology import Device
from recsys_lab.plan.steps import Step
from recsys_lab.plan.workload import Workload
from recsys_lab.simulate.costs import collective_step_cost, device_step_ms, of_profile
from recsys_lab.simulate.profile import Profile

#: At twice the speed a step that nothing else bounds takes half the time. A step that saves less than this waits for what has no rate.
LEAST_SAVED = 0.2
FIXED = "latency and overhead"
ARITHMETIC, MEMORY, HOST_MEMORY, DISK = "arithmetic", "memory bandwidth", "host memory", "disk"
BETWEEN_HOSTS, IN_A_HOST, HOST_LINK = "links between hosts", "links in a host", "host link"
LATENCY_BETWEEN, LATENCY_IN, NCCL = "latency between hosts", "latency in a host", "latency of NCCL"
HOST_LAUNCHES, KERNELS = "host launches and overhead", "overhead of kernels"
#: Figures of the software that are times: of the host for each launch, and of the device beside the work of its kernels.
LAUNCH_TIMES = ("launch_overhead_us", "iteration_overhead_ms")
KERNEL_TIMES = ("kernel_us", "table_overhead_us", "tier_overhead_us", "lookup_ns", "cached_table_us", "cached_lookup_ns", "cached_miss_ns")
#: A saving below this share of an iteration is rounding.
ROUNDING = 1e-6
#: The software and the cluster with something twice as fast.
Change = Callable[[Profile, Cluster], tuple[Profile, Cluster]]


def _twice_memory(cluster: Cluster) -> Cluster:
    return _with_device(cluster, memory_bandwidth_gb_s=2 * cluster.device.memory_bandwidth_gb_s)


def _with_device(cluster: Cluster, **figures: float | dict[str, float]) -> Cluster:
    device: Device = replace(cluster.device, **figures)  # type: ignore[arg-type]
    return replace(cluster, device=device)


def _twice_peaks(cluster: Cluster) -> Cluster:
    return _with_device(cluster, peak_tflops={name: 2 * peak for name, peak in cluster.device.peak_tflops.items()})


def _twice_host_link(cluster: Cluster) -> Cluster:
    return cluster if cluster.device.host_link_gb_s is None else _with_device(cluster, host_link_gb_s=2 * cluster.device.host_link_gb_s)


def _twice_host_memory(cluster: Cluster) -> Cluster:
    host = cluster.host
    return cluster if host is None else replace(cluster, host=replace(host, memory_bandwidth_gb_s=2 * host.memory_bandwidth_gb_s))


def _twice_disk(cluster: Cluster) -> Cluster:
    if cluster.disk is None:
        return cluster
    names = ("read_gb_s", "write_gb_s", "random_reads_per_s")
    figures: dict[str, float] = {name: 2 * getattr(cluster.disk, name) for name in names}
    disk: Disk = replace(cluster.disk, **figures)  # type: ignore[arg-type]
    return replace(cluster, disk=disk)


#: What can bound a step, and the cluster with twice of it.
TWICE: Mapping[str, Callable[[Cluster], Cluster]] = {
    ARITHMETIC: _twice_peaks,
    MEMORY: _twice_memory,
    BETWEEN_HOSTS: lambda cluster: replace(cluster, cross_host=cluster.cross_host.faster(2)),
    IN_A_HOST: lambda cluster: replace(cluster, intra_host=cluster.intra_host.faster(2)),
    HOST_LINK: _twice_host_link,
    HOST_MEMORY: _twice_host_memory,
    DISK: _twice_disk,
}


def _on_cluster(twice: Callable[[Cluster], Cluster]) -> Change:
    return lambda profile, cluster: (profile, twice(cluster))


def _halved(names: Sequence[str]) -> Change:
    """With half of these times of the software."""
    return lambda profile, cluster: (replace(profile, **{name: getattr(profile, name) / 2 for name in names}), cluster)


#: What can bound an iteration, and the software and the cluster with it twice as fast.
PARTS: Mapping[str, Change] = {
    HOST_LAUNCHES: _halved(LAUNCH_TIMES),
    KERNELS: _halved(KERNEL_TIMES),
    **{name: _on_cluster(twice) for name, twice in TWICE.items()},
    LATENCY_BETWEEN: _on_cluster(lambda cluster: replace(cluster, cross_host=cluster.cross_host.later(0.5))),
    LATENCY_IN: _on_cluster(lambda cluster: replace(cluster, intra_host=cluster.intra_host.later(0.5))),
    NCCL: _on_cluster(lambda cluster: replace(cluster, library_latency=cluster.library_latency / 2)),
}


def saved_ms(time_ms: Callable[[Profile, Cluster], float], profile: Profile, cluster: Cluster) -> dict[str, float]:
    """What each of `PARTS` would save of `time_ms` at twice the speed, the most first: the first is the bound. None that saves nothing."""
    now = time_ms(profile, cluster)
    saved = {part: now - time_ms(*faster(profile, cluster)) for part, faster in PARTS.items()}
    return {part: ms for part, ms in sorted(saved.items(), key=lambda one: -one[1]) if ms > ROUNDING * now}


def bounds_of(steps: Iterable[Step], cluster: Cluster, profile: Profile, workload: Workload) -> dict[str, str]:
    """Of each step, by its name: a key of `TWICE`, or `FIXED`."""
    now = of_profile(cluster, profile)
    faster = {name: of_profile(twice(cluster), profile) for name, twice in TWICE.items()}
    return {step.name: _bound(step, now, faster, profile, workload) for step in steps}


def _bound(step: Step, now: Cluster, faster: Mapping[str, Cluster], profile: Profile, workload: Workload) -> str:
    took = _ms(step, now, profile, workload)
    saved = {name: took - _ms(step, cluster, profile, workload) for name, cluster in faster.items()}
    most = max(saved, key=lambda name: saved[name])
    return most if saved[most] > LEAST_SAVED * took else FIXED


def _ms(step: Step, cluster: Cluster, profile: Profile, workload: Workload) -> float:
    """Of the rank that takes longest."""
    if step.is_collective:
        return max(collective_step_cost([step], cluster, profile)).ms
    return float(device_step_ms(step, cluster, profile, workload).max())
