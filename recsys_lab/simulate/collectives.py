"""What a collective costs on a cluster: latency x messages + bytes on the slower of the two kinds of link.

Intra-host and cross-host bytes move at the same time. Bytes are those that a rank puts in (`recsys_lab.plan.steps`).
On CPU devices a reduce-scatter is priced as the all-reduce that gloo makes of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from recsys_lab.cluster import Cluster
from recsys_lab.plan.steps import Step
from recsys_lab.units import US_PER_MS, transfer_ms


@dataclass(frozen=True)
class Shape:
    """A group of `size` ranks: on `hosts` hosts, `local` of them on the host that has most."""

    size: int
    hosts: int
    local: int


def shape_of(group: tuple[int, ...], cluster: Cluster) -> Shape:
    on_host = np.bincount(np.asarray(group) // cluster.ranks_per_host)
    return Shape(len(group), int((on_host > 0).sum()), int(on_host.max()))


def collective_ms(step: Step, cluster: Cluster) -> float:
    """Of the slowest group, with its slowest rank."""
    shapes = {shape_of(group, cluster) for group in step.groups}
    biggest = max(max(step.bytes_of_rank), max(step.received_of_rank, default=0.0))
    return max(_group_ms(step.kind, shape, biggest, cluster) for shape in shapes)


def _group_ms(kind: str, shape: Shape, size_bytes: float, cluster: Cluster) -> float:
    if shape.size == 1:
        return 0.0
    if kind == "all_to_all":
        return _all_to_all_ms(shape, size_bytes, cluster)
    if kind == "broadcast":
        return _tree_latency_ms(shape, cluster) + _slower_ms(shape, size_bytes, size_bytes / shape.local, cluster)
    if kind == "all_gather":
        return _ring_ms(shape, size_bytes * shape.size, 1, cluster)
    if kind == "reduce_scatter" and cluster.device.kind != "cpu":
        return _ring_ms(shape, size_bytes, 1, cluster)
    return min(_ring_ms(shape, size_bytes, 2, cluster), _tree_ms(shape, size_bytes, cluster))


def _slower_ms(shape: Shape, intra_bytes: float, cross_bytes: float, cluster: Cluster) -> float:
    intra = transfer_ms(intra_bytes, cluster.intra_host.bandwidth_gb_s) if shape.local > 1 else 0.0
    cross = transfer_ms(cross_bytes, cluster.cross_host.bandwidth_gb_s) if shape.hosts > 1 else 0.0
    return max(intra, cross)


def _all_to_all_ms(shape: Shape, size_bytes: float, cluster: Cluster) -> float:
    """One message to each other rank; a rank's bytes are split evenly over the ranks of the group."""
    part = size_bytes / shape.size
    near, far = shape.local - 1, shape.size - shape.local
    latency_us = near * cluster.intra_host.latency_us + far * cluster.cross_host.latency_us
    return latency_us / US_PER_MS + _slower_ms(shape, near * part, far * part, cluster)


def _ring_ms(shape: Shape, full_bytes: float, passes: int, cluster: Cluster) -> float:
    """`passes` trips round a ring (1 reduce-scatter or all-gather, 2 all-reduce) of a full buffer.

    Each rank of a host drives its own ring over its own cross-host link, so a link carries 1 / `local` of the bytes.
    """
    moved = passes * full_bytes * (shape.size - 1) / shape.size
    messages = passes * (shape.size - 1)
    far = passes * shape.hosts if shape.hosts > 1 else 0
    latency_us = max(messages - far, 0) * cluster.intra_host.latency_us + min(far, messages) * cluster.cross_host.latency_us
    return latency_us / US_PER_MS + _slower_ms(shape, moved, moved / shape.local, cluster)


def _tree_latency_ms(shape: Shape, cluster: Cluster) -> float:
    near = math.ceil(math.log2(shape.local)) * cluster.intra_host.latency_us
    return (near + math.ceil(math.log2(shape.hosts)) * cluster.cross_host.latency_us) / US_PER_MS


def _tree_ms(shape: Shape, size_bytes: float, cluster: Cluster) -> float:
    """All-reduce up a tree and down again: few messages, every link carries the buffer both ways."""
    return 2 * _tree_latency_ms(shape, cluster) + _slower_ms(shape, 2 * size_bytes, 2 * size_bytes / shape.local, cluster)
