"""Turns measurements into a cluster and a software profile.

Some figures are means. Others are fits of the simulator's own formulas to the measured pieces.

Memory bandwidth and peaks are measured directly. Links are fitted to collectives alone. The dense arch's share of the peak and the cost of
a launch are fitted to layers alone. Look-ups and updates are fitted to tables alone. Only `FITTED_TO_RUNS` are fitted to trainings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from scipy.optimize import least_squares, nnls

from recsys_lab.calibrate.cores import SharedCores
from recsys_lab.calibrate.measured import CacheTime, CollectiveTime, DenseTime, DotsTime, Measured, TableTime
from recsys_lab.calibrate.runs import Run
from recsys_lab.cluster import Cluster, Device, Disk, Host, Link
from recsys_lab.models.linear import LEAST_WORK
from recsys_lab.plan.dense import dense_backward, dense_forward
from recsys_lab.plan.memory import bytes_of_ranks
from recsys_lab.plan.workload import DenseLayer, Workload
from recsys_lab.precision import Precision
from recsys_lab.simulate import Profile
from recsys_lab.simulate.collectives import Shape, group_ms
from recsys_lab.simulate.costs import compute_step_ms, launches
from recsys_lab.simulate.memory import added_memory_bytes
from recsys_lab.units import NS_PER_MS, US_PER_MS, counted

IterationTime = Callable[[Run, Profile], float]
NAME = "local"
LINKS = ("intra_host", "cross_host")
FITTED_TO_RUNS = ("iteration_overhead_ms", "tier_overhead_us", "memory_efficiency")
MEMORY_FITTED_TO_RUNS = ("buffer_factor", "process_memory_mb")
LEAST, OUTLIER = 1e-4, 0.2
#: What calibration starts from: how the executors work, and where the fits begin.
START = Profile(
    name=NAME,
    lookup_efficiency_forward=0.5,
    lookup_efficiency_backward=0.5,
    memory_efficiency=1.0,
    dense_mfu=0.5,
    launch_overhead_us=10.0,
    dense_bucket_mib=25.0,
    overlaps=[],
    peak_of_format={"fp32": "fp32", "bf16": "bf16", "fp16": "fp16"},
    sources={},
    fitted_kind="cpu",
)


def cluster_of(measured: Measured, memory_gb: float, base: Cluster) -> Cluster:
    """`base` with the ranks of `measured`, of `memory_gb` each unless it is their own. A link that no group of theirs crosses stays."""
    ranks = measured.hosts * measured.ranks_per_host
    machine = measured.machine
    where = f"{measured.cores} cores, {counted(ranks, 'process')} of one thread" if machine.kind == "cpu" else counted(ranks, "GPU")
    how = f"by calibrate on {where}, all at it"
    peaks = dict(machine.peak_tflops)
    of_device = (machine.memory_gb or memory_gb, machine.memory_bandwidth_gb_s, peaks, f"measured {how}")
    device = Device(machine.device, machine.kind, *of_device, host_link_gb_s=base.device.host_link_gb_s)
    cluster = replace(base, hosts=measured.hosts, ranks_per_host=measured.ranks_per_host, device=device)
    cluster = links_of(cluster, measured.collectives, f"fitted to collectives measured {how}", measured.crowded)
    return with_messages_of_host(cluster) if measured.crowded else cluster


def with_host(cluster: Cluster, memory_gb: float, machines: float, disk: Disk | None) -> Cluster:
    """`cluster` with the memory and the `disk` of its hosts. A host is one of `machines` equal parts of a machine with `memory_gb`.

    On a GPU the measured bandwidth is not the host's, so the host's stays as `cluster` had it. A disk that was not measured stays too.
    """
    if disk is not None:
        names = ("size_gb", "read_gb_s", "write_gb_s", "random_reads_per_s", "cached_reads_per_s", "rewritten_gb_s")
        shares: dict[str, float] = {name: getattr(disk, name) / machines for name in names if getattr(disk, name) is not None}
        part: Disk = replace(disk, **shares)  # type: ignore[arg-type]
        cluster = replace(cluster, disk=part)
    if cluster.device.kind != "cpu":
        return cluster
    bandwidth = cluster.ranks_per_host * cluster.device.memory_bandwidth_gb_s
    return replace(cluster, host=Host("this machine", memory_gb / machines, bandwidth, f"of all its ranks: {cluster.device.source}"))


def links_of(cluster: Cluster, times: Sequence[CollectiveTime], source: str, crowded: Sequence[CollectiveTime] = ()) -> Cluster:
    """`cluster` with the links that `times` tell of, fitted to all of them together, as the simulator prices them.

    `crowded`: of more ranks of one host, which have a smaller part of its cores each.
    """
    crossed, near = links_crossed(times), SharedCores(("intra_host",), ("intra_host",))
    if not crossed:
        return cluster

    def with_links(x: np.ndarray) -> Cluster:
        links = {name: _link(getattr(cluster, name), x[4 * at : 4 * at + 4], x[-1], source) for at, name in enumerate(crossed)}
        return replace(cluster, **links)  # type: ignore[arg-type]

    def errors(x: np.ndarray) -> list[float]:
        fitted = with_links(x)
        hosts_of = {t.size: t.size // fitted.ranks_per_host for t in crowded}
        slower = {size: near.with_hosts(fitted, START, hosts)[0] for size, hosts in hosts_of.items()}
        on = [(t, fitted) for t in times] + [(t, slower[t.size]) for t in crowded]
        return [np.log(group_ms(t.kind, Shape(t.size, t.hosts, t.local), t.bytes, those) / t.ms) for t, those in on]

    first = np.array([2.0, 2.0, 50.0, 50.0] * len(crossed) + [50.0])
    return with_links(_fit(errors, first, np.full(len(first), 1e6), loss="soft_l1"))


def with_messages_of_host(cluster: Cluster) -> Cluster:
    """`cluster` with messages between hosts as those within one: hosts that are parts of this machine have them from the same cores."""
    near, far = cluster.intra_host, cluster.cross_host
    messages = {"latency_us": near.latency_us, "message_us": near.message_us, "start_us": near.start_us}
    source = f"{far.source}; messages as within a host, {near.source}"
    return replace(cluster, cross_host=replace(far, **messages, source=source))  # type: ignore[arg-type]


def links_crossed(times: Sequence[CollectiveTime]) -> tuple[str, ...]:
    """Those of `LINKS` that some of `times` crossed."""
    crossed = any(t.local > 1 for t in times), any(t.hosts > 1 for t in times)
    return tuple(name for name, some in zip(LINKS, crossed) if some)


def _link(link: Link, figures: np.ndarray, start_us: float, source: str) -> Link:
    """`link` with other figures. What only a slower collective of it would tell is not known."""
    bandwidth, ring, latency, message = map(float, figures)
    whole = replace(link, line_gb_s=None, in_network_gb_s=None, exchange_us=0.0, source=source)
    return replace(whole, bandwidth_gb_s=bandwidth, ring_gb_s=ring, latency_us=latency, message_us=message, start_us=float(start_us))


def dense_figures(profile: Profile, cluster: Cluster, times: Sequence[DenseTime]) -> Profile:
    """`profile` with the share of the peak and the launches of layers alone, in FP32.

    On a CPU models have a library for small layers and one for large ones. Each has a share where both were measured.
    """
    names, least = ["dense_mfu", "launch_overhead_us"], float(LEAST_WORK[torch.float32])
    sizes = [t.batch * t.width**2 for t in times]
    if cluster.device.kind == "cpu" and min(sizes) < least <= max(sizes):
        names, profile = [*names, "small_mfu"], replace(profile, small_multiply_adds=least)

    def errors(x: np.ndarray) -> list[float]:
        candidate = with_figures(profile, names, x)
        return [np.log(layers_ms(t, cluster, candidate) / t.ms) for t in times]

    solution = _fit(errors, np.array([0.5, 10.0, 0.5])[: len(names)], np.array([1.0, 1e4, 1.0])[: len(names)])
    return with_figures(profile, names, solution)


def layers_ms(time: DenseTime, cluster: Cluster, profile: Profile) -> float:
    """What the simulator says of the layers of `time`. A GPU computes them while its host issues them."""
    weights = time.depth * time.width**2
    layers = (DenseLayer(1.0, time.width, time.width),) * time.depth
    work = Workload(time.batch, weights, 2.0 * weights, 4.0 * weights, 4.0 * time.depth * time.width, "sgd", "sgd", layers=layers)
    precision = Precision("fp32")
    steps = [dense_forward(precision, work, ()), *dense_backward(1, precision, work)]
    computed = sum(float(compute_step_ms(s, cluster, profile, work)[0]) for s in steps)
    issued = sum(launches(s, profile, work) for s in steps) * profile.launch_overhead_us / US_PER_MS
    return computed + issued if cluster.device.kind == "cpu" else max(computed, issued)


def dots_figures(profile: Profile, cluster: Cluster, times: Sequence[DotsTime]) -> Profile:
    """`profile` with the share of the peak that products of a few vectors reach.

    Three products of F x F x D are measured, forward and backward.
    """
    if not times:
        return profile
    peak = cluster.device.peak_tflops[profile.peak_of_format["fp32"]]
    shares = [3 * 2 * t.batch * t.vectors**2 * t.dim / (peak * 1e9) / t.ms for t in times]
    return replace(profile, dots_mfu=float(np.clip(np.exp(np.mean(np.log(shares))), LEAST, 1.0)))


def table_figures(profile: Profile, cluster: Cluster, times: Sequence[TableTime]) -> Profile:
    """`profile` with the measured cost of look-ups and updates.

    Both get a share of the memory bandwidth; look-ups have one for reads and one for their output. An update also gets a cost for each
    look-up. What either reads again comes from the caches, which are some times as fast. Beside it a CPU has one launch of each, as the
    profile says. On a GPU each takes some time of its own, which does not count here: trainings tell it, with all else that a host issues.
    """
    names = ("lookup_efficiency_forward", "output_efficiency", "lookup_efficiency_backward", "lookup_ns", "cache_speed")
    gb_s = cluster.device.memory_bandwidth_gb_s * 1e6  # bytes a ms
    launch_ms, on_cpu = profile.launch_overhead_us / US_PER_MS, cluster.device.kind == "cpu"

    def errors(x: np.ndarray) -> list[float]:
        residuals = []
        look_up_ms, update_ms = (launch_ms, launch_ms) if on_cpu else x[5:]
        for t in times:
            first = min(t.bags, t.ids)
            read, made = 4 * t.dim * (t.distinct + (t.ids - t.distinct) / (1 + x[4])), 4 * t.bags * t.dim
            updated = 4 * t.dim * (first + (t.ids - first) / (1 + x[4])) + 8 * t.distinct * (t.dim + 1)
            residuals.append(np.log((look_up_ms + (read / x[0] + made / x[1]) / gb_s) / t.look_up_ms))
            residuals.append(np.log((update_ms + updated / (gb_s * x[2]) + t.ids * x[3] / 1e6) / t.update_ms))
        return residuals

    first, most = [0.3, 0.3, 0.3, 10.0, 1.0], [1.0, 1.0, 1.0, 1e6, 1e3]
    if not on_cpu:
        first, most = [*first, 0.1, 1.0], [*most, 10.0, 10.0]
    solution = _fit(errors, np.array(first), np.array(most))
    return with_figures(profile, names, (*solution[:4], solution[4] + 1))


def cache_figures(profile: Profile, times: Sequence[CacheTime]) -> Profile:
    """`profile` with what caches of rows cost cores: for each table, each look-up and each row that is missed.

    Rows that are read have a price beside this one, that of the page cache.
    """
    if not times:
        return profile
    costs, _ = nnls(np.array([(t.tables, t.ids, t.misses) for t in times]), np.maximum([t.extra_ms for t in times], 0.0))
    names = ("cached_table_us", "cached_lookup_ns", "cached_miss_ns")
    return with_figures(profile, names, costs * (US_PER_MS, NS_PER_MS, NS_PER_MS))


def fitted_to(runs: Sequence[Run], profile: Profile, iteration_ms: IterationTime, names: Sequence[str] = FITTED_TO_RUNS) -> Profile:
    """`profile` with the figures `names` that tell the iterations of `runs` best. `iteration_ms(run, profile)` is one, simulated, in ms."""

    def changed(x: np.ndarray) -> Profile:
        return with_figures(profile, names, x)

    def errors(x: np.ndarray) -> list[float]:
        return [np.log(iteration_ms(run, changed(x)) / run.iteration_ms) for run in runs]

    most = np.array([1.0 if name.endswith("efficiency") else 1e4 for name in names])
    return changed(_fit(errors, np.minimum([max(getattr(profile, name), 0.1) for name in names], most / 2), most))


def memory_fitted_to(runs: Sequence[Run], profile: Profile) -> Profile:
    """`profile` with what buffers and libraries take, where the system tells what trainings added to their processes."""
    added_by_run = [(run, run.added_memory_bytes) for run in runs if run.added_memory_bytes is not None]
    if not added_by_run:
        return profile
    memories = [bytes_of_ranks(run.planned.plan, run.planned.workload) for run, _ in added_by_run]

    def errors(x: np.ndarray) -> list[float]:
        candidate = with_figures(profile, MEMORY_FITTED_TO_RUNS, (x[0] + 1, x[1]))
        figures = zip(added_by_run, memories)
        return [np.log(added_memory_bytes(r.planned.steps, r.planned.cluster, candidate, memory) / added) for (r, added), memory in figures]

    solution = _fit(errors, np.array([0.5, 30.0]), np.array([100.0, 1e6]))
    return with_figures(profile, MEMORY_FITTED_TO_RUNS, (solution[0] + 1, solution[1]))


def with_figures(profile: Profile, names: Sequence[str], values: Sequence[float] | np.ndarray) -> Profile:
    """`profile` with other figures."""
    figures: dict[str, Any] = {name: float(value) for name, value in zip(names, values)}
    return replace(profile, **figures)


def _fit(errors: Callable[[np.ndarray], Sequence[float]], first: np.ndarray, most: np.ndarray, loss: str = "linear") -> np.ndarray:
    """The figures above zero and below `most` that make `errors` (logarithms) least. Deterministic.

    `loss`: scipy's. With soft_l1, errors beyond `OUTLIER` count as they are and not squared: a pause of the machine moves little.
    """
    bounds = (np.full(len(first), LEAST), most)
    return least_squares(errors, first, bounds=bounds, x_scale=first, diff_step=1e-3, loss=loss, f_scale=OUTLIER).x
