"""What a collective costs on a cluster, by algorithm. It is a start, latency x steps, and bytes on the slowest level of links.

    all_to_all                    a message to each other rank, near and far side by side
    scatter, gather               the same from or to one rank, beside those of other roots (`rooted.py`)
    reduce_scatter, all_gather    a ring. Each rank of a host drives its own over its own cross-host link
    all_reduce                    the fastest of ring, tree and, where a cluster's switches add up (NVLS, SHARP), in the network
    broadcast                     a tree

Intra-host and cross-host bytes move at the same time. Bytes are those that a rank puts in (`recsys_lab.plan.steps`). Links above leaf
switches carry a part of what hosts send (`Cluster.leaf_oversubscription`). A ring passes them once each way, an all-to-all with all. On CPU
devices all-reduces are rings, as gloo's are, and a reduce-scatter is priced as the all-reduce that gloo makes of it, with its copies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate

import numpy as np

from recsys_lab.cluster import Cluster
from recsys_lab.plan.steps import Step
from recsys_lab.simulate.protocols import FILLED_STEPS, Protocol, Shape, all_to_all_start_us, messages, protocols
from recsys_lab.simulate.rooted import ROOTED, rounds_of
from recsys_lab.units import US_PER_MS, transfer_ms


@dataclass(frozen=True, order=True)
class Cost:
    """ms of a collective: `ms` in all. Its bytes would fill the links for `wire_ms`; the rest is latency. Others may use the links then,
    and also what it leaves of their rate (`spare_ms`).

    `spans`: of an exchange in pieces, from when to when each is under way, as shares of `ms`.
    """

    ms: float
    wire_ms: float
    spans: tuple[tuple[float, float], ...] = ((0.0, 1.0),)
    spare_ms: float = 0.0

    @property
    def messages_ms(self) -> float:
        """While no bytes move: to start, to send and receive its messages, and to copy what it brings."""
        return self.ms - self.wire_ms - self.spare_ms


@lru_cache(maxsize=4096)
def _shape(group: tuple[int, ...], ranks_per_host: int) -> Shape:
    on_host = np.bincount(np.asarray(group) // ranks_per_host)
    return Shape(len(group), int((on_host > 0).sum()), int(on_host.max()))


def shape_of(group: tuple[int, ...], cluster: Cluster) -> Shape:
    return _shape(group, cluster.ranks_per_host)


def collective_ms(step: Step, cluster: Cluster) -> float:
    """Of the slowest group, with its slowest rank."""
    return max(groups_cost(step, cluster)).ms


def groups_cost(step: Step, cluster: Cluster) -> list[Cost]:
    """Of each group: the rank that puts in or takes out most sets its pace."""
    if step.kind in ROOTED:
        return exchange_cost([step], cluster)
    if len(step.bytes_of_rank) == 1 and len(step.received_of_rank) <= 1:
        biggest = max(*step.bytes_of_rank, *step.received_of_rank, 0.0)
        by_shape = {shape: group_cost(step.kind, shape, biggest, cluster) for shape in {shape_of(g, cluster) for g in step.groups}}
        return [by_shape[shape_of(group, cluster)] for group in step.groups]
    busiest = np.zeros(cluster.world_size)
    for figures in (step.bytes_of_rank, step.received_of_rank):
        if figures:
            busiest = np.maximum(busiest, np.asarray(figures, dtype=float))
    return [group_cost(step.kind, shape_of(g, cluster), float(busiest[list(g)].max()), cluster) for g in step.groups]


def exchange_cost(pieces: Sequence[Step], cluster: Cluster) -> list[Cost]:
    """Of each group: scatters or gathers that are one exchange."""
    return [_exchange_cost(pieces, group, cluster) if len(group) > 1 else Cost(0.0, 0.0) for group in pieces[0].groups]


def _exchange_cost(pieces: Sequence[Step], group: tuple[int, ...], cluster: Cluster) -> Cost:
    start_us = _start_us(shape_of(group, cluster), cluster) + all_to_all_start_us(cluster)
    rounds = rounds_of(pieces, group, cluster)
    ends_ms = list(accumulate(one.ms for one in rounds))
    ms = ends_ms[-1] or 1.0  # links without latency carry nothing in no time
    of_piece = [[number for number, one in enumerate(rounds) if piece in one.pieces] for piece in range(len(pieces))]
    spans = tuple(((ends_ms[own[0]] - rounds[own[0]].ms) / ms, ends_ms[own[-1]] / ms) for own in of_piece)
    return Cost(len(pieces) * start_us / US_PER_MS + ends_ms[-1], sum(one.wire_ms for one in rounds), spans)


def group_ms(kind: str, shape: Shape, size_bytes: float, cluster: Cluster) -> float:
    """Of one group, whose ranks put in `size_bytes` each."""
    return group_cost(kind, shape, size_bytes, cluster).ms


def group_cost(kind: str, shape: Shape, size_bytes: float, cluster: Cluster) -> Cost:
    """The fastest that the cluster's library can do."""
    if shape.size == 1:
        return Cost(0.0, 0.0)
    start_ms = _start_us(shape, cluster) / US_PER_MS
    if kind == "all_to_all":
        costs = [_all_to_all(shape, size_bytes, cluster)]
    elif kind == "broadcast":
        costs = [_broadcast(shape, size_bytes, protocol, cluster) for protocol in protocols(cluster)]
    elif kind == "all_gather":
        costs = [_ring(shape, size_bytes * shape.size, 1, protocol, cluster) for protocol in protocols(cluster)]
    elif kind == "reduce_scatter" and cluster.device.kind != "cpu":
        costs = [_ring(shape, size_bytes, 1, protocol, cluster) for protocol in protocols(cluster)]
    else:
        costs = [_ring(shape, size_bytes, 2, protocol, cluster) for protocol in protocols(cluster)]
        if cluster.device.kind == "cuda":
            costs += [_tree(shape, size_bytes, protocol, cluster) for protocol in protocols(cluster)]
        if cluster.intra_host.in_network_gb_s and shape.local > 1:
            costs.append(_in_network(shape, size_bytes, protocols(cluster)[-1], cluster))
    best = min(costs)
    copied = copied_bytes(kind, shape.size, size_bytes, cluster)
    copying_ms = transfer_ms(2 * copied, cluster.device.memory_bandwidth_gb_s)
    return replace(best, ms=start_ms + best.ms + copying_ms)


def copied_bytes(kind: str, size: int, size_bytes: float, cluster: Cluster) -> float:
    """Of a collective of `size` ranks that put in `size_bytes` each: what gloo copies on each rank. Nothing of NCCL's.

    gloo's reduce-scatter is an all-reduce of a copy of what is put in. Its all-gather fills one piece, and is copied out of it.
    """
    if cluster.device.kind != "cpu":
        return 0.0
    return {"reduce_scatter": size_bytes, "all_gather": size * size_bytes}.get(kind, 0.0)


def _start_us(shape: Shape, cluster: Cluster) -> float:
    near = cluster.intra_host.start_us if shape.local > 1 else 0.0
    return max(near, cluster.cross_host.start_us if shape.hosts > 1 else 0.0)


def _cost(latency_us: float, *levels: tuple[float, float]) -> Cost:
    """Of levels of links that carry bytes at once: how long each does, and what share of it that takes."""
    moving_ms, wire_ms = max(ms for ms, _ in levels), max(ms * share for ms, share in levels)
    return Cost(latency_us / US_PER_MS + moving_ms, wire_ms, spare_ms=moving_ms - wire_ms)


def _all_to_all(shape: Shape, size_bytes: float, cluster: Cluster) -> Cost:
    """One message to each other rank. A rank's bytes are split evenly over the ranks of the group."""
    part = size_bytes / shape.size
    near, far = shape.local - 1, shape.size - shape.local
    near_messages, far_messages = messages(shape, cluster)
    messages_us = near_messages * cluster.intra_host.each_message_us + far_messages * cluster.cross_host.each_message_us
    near_gb_s = cluster.intra_host.among(shape.local).bandwidth_gb_s
    intra = transfer_ms(near * part, near_gb_s)
    far_gb_s = cluster.cross_host.exchange_gb_s(far)
    cross = transfer_ms(far * part, far_gb_s)
    above = cross * cluster.share_across_leaves(shape.hosts) * cluster.leaf_oversubscription
    intra_share = cluster.intra_host.taken_by(near_gb_s)
    cross_share = cluster.cross_host.taken_by(far_gb_s)
    start_us = all_to_all_start_us(cluster) + (cluster.cross_host.exchange_us if shape.hosts > 1 else cluster.intra_host.exchange_us)
    return _cost(start_us + messages_us, (intra, intra_share), (cross, cross_share), (above, 1.0))


Levels = tuple[tuple[float, float], tuple[float, float]]


def _links(shape: Shape, intra_bytes: float, intra_gb_s: float, cross_bytes: float, share: float, cluster: Cluster) -> Levels:
    """Both levels at once, each at `share` of its bandwidth, with what the protocol wastes of it. Returns ms, and the share taken."""
    intra = transfer_ms(intra_bytes, intra_gb_s * share) if shape.local > 1 else 0.0
    cross = transfer_ms(cross_bytes, cluster.cross_host.around_gb_s * share) if shape.hosts > 1 else 0.0
    return (intra, cluster.intra_host.taken_by(intra_gb_s)), (cross, cluster.cross_host.taken_by(cluster.cross_host.around_gb_s))


def _around(shape: Shape, size_bytes: float, protocol: Protocol, cluster: Cluster) -> Levels:
    """Every rank of a host drives its own ring or tree over its own cross-host link. So a link carries 1 / `local` of the bytes."""
    near_gb_s = cluster.intra_host.among(shape.local).around_gb_s
    return _links(shape, size_bytes, near_gb_s, size_bytes / shape.local, protocol.share, cluster)


def _ring(shape: Shape, full_bytes: float, passes: int, protocol: Protocol, cluster: Cluster) -> Cost:
    """`passes` trips round a ring (1 reduce-scatter or all-gather, 2 all-reduce) of a full buffer."""
    moved = passes * full_bytes * (shape.size - 1) / shape.size
    steps = passes * (shape.size - 1)
    far = min(passes * shape.hosts, steps) if shape.hosts > 1 else 0
    near_us, far_us = cluster.intra_host.latency_us + protocol.near_us, cluster.cross_host.latency_us + protocol.far_us
    filled = moved + protocol.fill_bytes * steps / FILLED_STEPS
    return _cost(protocol.ring_us + (steps - far) * near_us + far * far_us, *_around(shape, filled, protocol, cluster))


def _climb_us(shape: Shape, protocol: Protocol, cluster: Cluster, near_steps: int | None = None) -> float:
    """From the leaves of a tree to its root: within hosts, then across them."""
    near = math.ceil(math.log2(shape.local)) if near_steps is None else near_steps
    far = math.ceil(math.log2(shape.hosts))
    return near * (cluster.intra_host.latency_us + protocol.near_us) + far * (cluster.cross_host.latency_us + protocol.tree_far_us)


def _tree(shape: Shape, size_bytes: float, protocol: Protocol, cluster: Cluster) -> Cost:
    """All-reduce up a tree and down again: few steps, every link carries the buffer both ways."""
    latency_us = protocol.tree_us + 2 * _climb_us(shape, protocol, cluster)
    return _cost(latency_us, *_around(shape, 2 * size_bytes + protocol.fill_bytes, protocol, cluster))


def _in_network(shape: Shape, size_bytes: float, protocol: Protocol, cluster: Cluster) -> Cost:
    """All-reduce by the switch within each host, and up and down a tree across hosts. Its bus bandwidth counts bytes as a ring does."""
    moved = 2 * size_bytes * (shape.size - 1) / shape.size + protocol.fill_bytes
    cross = moved / shape.local
    if cluster.cross_host.in_network_gb_s and shape.hosts > 1:
        cross *= cluster.cross_host.around_gb_s / cluster.cross_host.in_network_gb_s
    near_gb_s = cluster.intra_host.in_network_gb_s or cluster.intra_host.around_gb_s
    latency_us = protocol.tree_us + 2 * _climb_us(shape, protocol, cluster, near_steps=1)
    return _cost(latency_us, *_links(shape, moved, near_gb_s, cross, protocol.share, cluster))


def _broadcast(shape: Shape, size_bytes: float, protocol: Protocol, cluster: Cluster) -> Cost:
    latency_us = protocol.tree_us + _climb_us(shape, protocol, cluster)
    return _cost(latency_us, *_around(shape, size_bytes + protocol.fill_bytes / 2, protocol, cluster))
