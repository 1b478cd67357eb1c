"""What bounds each step: the part of the cluster whose double would shorten the step most, as the simulator prices it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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
HOST_LINK, DISK = "host link", "disk"


def twice_memory(cluster: Cluster) -> Cluster:
    """Twice the bandwidth of the devices' memory."""
    return _with_device(cluster, memory_bandwidth_gb_s=2 * cluster.device.memory_bandwidth_gb_s)


def _with_device(cluster: Cluster, **figures: float | dict[str, float]) -> Cluster:
    device: Device = replace(cluster.device, **figures)  # type: ignore[arg-type]
    return replace(cluster, device=device)


def _twice_peaks(cluster: Cluster) -> Cluster:
    return _with_device(cluster, peak_tflops={name: 2 * peak for name, peak in cluster.device.peak_tflops.items()})


def twice_host_link(cluster: Cluster) -> Cluster:
    """Twice the bytes a second between devices and their hosts."""
    return cluster if cluster.device.host_link_gb_s is None else _with_device(cluster, host_link_gb_s=2 * cluster.device.host_link_gb_s)


def _twice_host_memory(cluster: Cluster) -> Cluster:
    host = cluster.host
    return cluster if host is None else replace(cluster, host=replace(host, memory_bandwidth_gb_s=2 * host.memory_bandwidth_gb_s))


def twice_disk(cluster: Cluster) -> Cluster:
    """Twice the bytes and twice the requests a second."""
    if cluster.disk is None:
        return cluster
    names = ("read_gb_s", "write_gb_s", "random_reads_per_s")
    figures: dict[str, float] = {name: 2 * getattr(cluster.disk, name) for name in names}
    disk: Disk = replace(cluster.disk, **figures)  # type: ignore[arg-type]
    return replace(cluster, disk=disk)


#: What can bound a step, and the cluster with twice of it.
TWICE: Mapping[str, Callable[[Cluster], Cluster]] = {
    "arithmetic": _twice_peaks,
    "memory bandwidth": twice_memory,
    "links between hosts": lambda cluster: replace(cluster, cross_host=cluster.cross_host.faster(2)),
    "links in a host": lambda cluster: replace(cluster, intra_host=cluster.intra_host.faster(2)),
    HOST_LINK: twice_host_link,
    "host memory": _twice_host_memory,
    DISK: twice_disk,
}


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
