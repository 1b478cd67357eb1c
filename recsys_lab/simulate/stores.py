"""Rows of tables with a store on their way between a device and its host's memory or disk. It says what they cost, and when they come.

A host's ranks share its memory and its disk. A step lasts until the host's last byte is there, on all its ranks. A rank's own link carries
one thing at a time, and so does a disk. So an iteration is no shorter than all that one of them carries. Without a cache the rows are read
and written by the kernels that compute, which go first on the link. Rows that a cache takes in and gives up are the next batch's where a
profile overlaps "input". Their transfer begins when that batch's ids could be there. The iteration's end waits for it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from recsys_lab.cluster import Cluster, Disk
from recsys_lab.errors import UserError
from recsys_lab.plan.steps import FETCH, MOVES, WRITE_BACK, Step, Steps
from recsys_lab.plan.store import DISK_CACHED, DISK_HOST_CACHED, ON_DISK
from recsys_lab.simulate.placed import COPY, DISK, Placed
from recsys_lab.simulate.profile import Profile
from recsys_lab.units import MS_PER_S, NS_PER_MS, US_PER_MS, transfer_ms

#: In place of a store's kind: of reads that the page cache of a disk's host serves.
PAGE_CACHE = "page_cache"
#: Of pages of a full file that its cores read and write again.
REWRITTEN = "rewritten"
#: Of what a cache of rows asks of a CPU's cores: it finds slots, chooses which rows leave and copies these.
BOOKKEEPING = "bookkeeping"
REMEDY = "add the figure and its source to the cluster, as conf/cluster/{0}/*.yaml have them"


def is_brought(step: Step) -> bool:
    """Whether rows come to a cache or leave it. Others are read and written where they are, by kernels."""
    return step.kind in MOVES and step.phase == "input"


def of_next_batch(step: Step, profile: Profile) -> bool:
    return is_brought(step) and not step.blocks and "input" in profile.overlaps


def moved_ms(step: Step, cluster: Cluster, profile: Profile) -> np.ndarray:
    """Of rows on their way: [R], or [1] where all ranks are alike."""
    if step.store == BOOKKEEPING:
        return _bookkeeping_ms(step, profile)
    if step.store == DISK_HOST_CACHED and cluster.device.kind != "cpu":
        return _disk_ms(step, cluster)  # from the disk to the host's memory; what a device takes of it passes the link in a step of its own
    near = link_ms(step, cluster, profile)
    if step.store == PAGE_CACHE:
        return np.maximum(near, _page_cache_ms(step, cluster))
    if step.store == REWRITTEN:
        return np.maximum(near, _rewritten_ms(step, cluster))
    return np.maximum(near, _disk_ms(step, cluster)) if step.store in ON_DISK else near


def link_ms(step: Step, cluster: Cluster, profile: Profile) -> np.ndarray:
    """Of a device's link and its host's memory. A CPU's memory is its host's, and what comes from a disk comes into it."""
    size = np.asarray(step.bytes_of_rank, dtype=float)
    device = cluster.device
    if device.kind == "cpu":
        return transfer_ms(1.0, device.memory_bandwidth_gb_s * profile.memory_efficiency) * size
    own = transfer_ms(1.0, host_link_gb_s(cluster, "rows") * profile.host_link_efficiency) * size
    if cluster.host is None:
        raise UserError(
            "no figures for the hosts' memory, where rows of tables are", where="cluster.host", given="null", remedy=REMEDY.format("host")
        )
    return np.maximum(own, transfer_ms(1.0, cluster.host.memory_bandwidth_gb_s) * _of_hosts(size, cluster))


def host_link_gb_s(cluster: Cluster, what: str) -> float:
    """Of the devices. Raises UserError where it is not known: it is for `what`."""
    if cluster.device.host_link_gb_s is None:
        raise UserError(
            f"no figure for the link from the host's memory, over which a device gets its {what}",
            where="cluster.device.host_link_gb_s",
            given="null",
            remedy="add the figure and its source to the cluster's device: PCIe 4 x16 has 31 GB/s, PCIe 5 x16 63",
        )
    return cluster.device.host_link_gb_s


def _disk_ms(step: Step, cluster: Cluster) -> np.ndarray:
    """Bytes in order or requests, whichever takes longer. What leaves together is written together, wherever its rows are."""
    disk = _disk_of(cluster)
    size, records = (np.asarray(figures or (0.0,), dtype=float) for figures in (step.bytes_of_rank, step.rows_of_rank))
    if step.kind == WRITE_BACK:
        return transfer_ms(1.0, disk.write_gb_s) * _of_hosts(size, cluster)
    requests = MS_PER_S / disk.random_reads_per_s * _of_hosts(records, cluster)
    return np.maximum(transfer_ms(1.0, disk.read_gb_s) * _of_hosts(size, cluster), requests)


def _page_cache_ms(step: Step, cluster: Cluster) -> np.ndarray:
    """Requests of all ranks of a host, whose cores serve them together."""
    rate = _disk_of(cluster).cached_reads_per_s
    assert rate is not None, "else no step is of the page cache"
    return MS_PER_S / rate * _of_hosts(np.asarray(step.rows_of_rank, dtype=float), cluster)


def _rewritten_ms(step: Step, cluster: Cluster) -> np.ndarray:
    """Pages of all ranks of a host, as reads from the page cache."""
    rate = _disk_of(cluster).rewritten_gb_s
    assert rate is not None, "else no step is of such pages"
    return transfer_ms(1.0, rate) * _of_hosts(np.asarray(step.bytes_of_rank, dtype=float), cluster)


def _bookkeeping_ms(step: Step, profile: Profile) -> np.ndarray:
    """Times of a rank's own cores, whatever they share."""
    shards, asked, missed = (np.asarray(figures, dtype=float) for figures in (step.shards_of_rank, step.asked_of_rank, step.missed_of_rank))
    return shards * profile.cached_table_us / US_PER_MS + (asked * profile.cached_lookup_ns + missed * profile.cached_miss_ns) / NS_PER_MS


def with_bookkeeping(steps: Steps, cluster: Cluster, profile: Profile) -> Steps:
    """`steps` with what caches cost the cores of CPU ranks. These compute as well, so it is on the compute stream.

    The costs are those of an iteration that got longer while a thread kept a cache (`calibrate/caches.py`). So nothing hides them.
    """
    if cluster.device.kind != "cpu" or not any((profile.cached_table_us, profile.cached_lookup_ns, profile.cached_miss_ns)):
        return steps
    named, with_costs = {step.name: step for step in steps.steps}, []
    for step in steps.steps:
        if step.kind == FETCH and step.asked_of_rank:
            back = named[step.after[0]]
            name = f"{step.name}.{BOOKKEEPING}"
            with_costs.append(replace(step, name=name, store=BOOKKEEPING, phase="forward", bytes_of_rank=(0.0,), after=back.after))
        with_costs.append(step)
    return replace(steps, steps=tuple(with_costs))


def _disk_of(cluster: Cluster) -> Disk:
    if cluster.disk is None:
        raise UserError(
            "no figures for the hosts' disks, where rows of tables are", where="cluster.disk", given="null", remedy=REMEDY.format("disk")
        )
    return cluster.disk


def _of_hosts(figures: np.ndarray, cluster: Cluster) -> np.ndarray:
    """For each rank the sum over its host's."""
    if len(figures) == 1:
        return figures * cluster.ranks_per_host
    return np.repeat(figures.reshape(cluster.hosts, cluster.ranks_per_host).sum(axis=1), cluster.ranks_per_host)


def in_the_open(
    step: Step, ready: np.ndarray, overhead: float, streams: dict[str, np.ndarray], cluster: Cluster, profile: Profile
) -> Placed:
    """Rows of this batch. Nothing computes while they move."""
    move = _moved(step, np.maximum(ready, streams["compute"]), overhead, streams, cluster, profile)
    streams["compute"] = move.end
    return move


def next_rows(
    steps: Sequence[Step],
    there: Mapping[str, np.ndarray],
    placed: Mapping[str, Placed],
    streams: dict[str, np.ndarray],
    overhead: float,
    cluster: Cluster,
    profile: Profile,
) -> dict[str, Placed]:
    """Rows of the next batch, one step after another. `there`: from when on its ids may be, by their exchange.

    On CPUs our executors send these ids between the forward and the backward pass (executor/input_dist_prefetch.py), and rows begin then.
    """
    moves: dict[str, Placed] = {}
    begins = np.zeros_like(streams[COPY])
    if cluster.device.kind == "cpu":
        begins = np.max([begins, *(one.end for one in placed.values() if one.step.phase == "forward")], axis=0)
    for step in steps:
        ready = [there[name] for name in step.after if name in there]
        ready += [moves[name].end for name in step.after if name in moves]
        ready += [placed[name].end for name in step.after if name in placed and name not in there and placed[name].stream != COPY]
        moves[step.name] = _moved(step, np.max([begins, *ready], axis=0), overhead, streams, cluster, profile)
    return moves


def _moved(step: Step, ready: np.ndarray, overhead: float, streams: dict[str, np.ndarray], cluster: Cluster, profile: Profile) -> Placed:
    """When its link and, for a disk's, the disk are free. A GPU's link carries what a disk reads and writes too."""
    both = step.store == DISK_CACHED and cluster.device.kind != "cpu"
    stream = DISK if step.store in ON_DISK else COPY
    start = np.max([ready, streams[stream], *([streams[COPY]] if both else [])], axis=0) + overhead
    end = start + moved_ms(step, cluster, profile)
    streams[stream] = end
    if both:
        streams[COPY] = start + link_ms(step, cluster, profile)
    return Placed(step, stream, start, end, np.full(len(end), True), np.zeros(len(end)))


def behind_kernels(placed: Collection[Placed], cluster: Cluster, profile: Profile) -> dict[str, Placed]:
    """What the link carries beside kernels that use it too. It is done when the link rests. It is nothing where it meets no such kernel.

    Kernels go first. The moment at which a link rests is the latest of: a beginning, and all that begins with it or later.
    """
    kernels = [one for one in placed if one.step.kind in MOVES and not is_brought(one.step)]
    beside = [one for one in placed if one.stream in (COPY, DISK) and (of_next_batch(one.step, profile) or one.step.kind not in MOVES)]
    if cluster.device.kind == "cpu" or not any(_meet(one, kernel) for one in beside for kernel in kernels):
        return {}
    begins = np.array([one.start for one in (*kernels, *beside)])
    took = np.array([np.broadcast_to(_of_link_ms(one, cluster, profile), one.start.shape) for one in (*kernels, *beside)])
    rests = np.max([at + np.where(begins >= at, took, 0.0).sum(axis=0) for at in begins], axis=0)
    last = beside[-1]
    return {last.step.name: replace(last, end=np.maximum(last.end, rests))}


def _of_link_ms(one: Placed, cluster: Cluster, profile: Profile) -> np.ndarray:
    if one.step.store == DISK_HOST_CACHED:
        return np.zeros_like(one.start)
    return link_ms(one.step, cluster, profile) if one.step.kind in MOVES else one.end - one.start


def _meet(one: Placed, other: Placed) -> bool:
    return bool(((one.start < other.end) & (other.start < one.end)).any())
