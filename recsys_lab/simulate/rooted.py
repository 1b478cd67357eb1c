"""Scatters and gathers. Each moves bytes from, or to, one rank alone, so those of several roots use links side by side.

An exchange in pieces issues all of them and then waits. Gloo's process group has two threads on every rank, which take pieces up in order.
A part of a piece (what one rank sends to another) moves when both have taken the piece up. From then on the kernel moves it, and the
sender's thread takes the next piece. The receiver's thread is held until all of its parts have come. So the exchange goes in rounds. All
parts that can move do so and share the links evenly. When the busiest link has carried its own, threads are free for the next round. Parts
that stay in a host, where others leave it, are there before the round ends and hold nobody up. Of a scatter, every rank but one takes a
part, so scatters go two by two. Of a gather only the root takes parts. So nearly all gathers go at once, if no rank is root of many. NCCL's
collectives follow one another on a stream, and each is a round of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from recsys_lab.cluster import Cluster, Link
from recsys_lab.plan.steps import Step
from recsys_lab.simulate.protocols import at_once
from recsys_lab.units import US_PER_MS, transfer_ms

ROOTED = ("scatter", "gather")
#: (piece, sender, taker), the latter two by their place in the group.
Part = tuple[int, int, int]


@dataclass(frozen=True)
class Round:
    """`latency_us` of the messages of the rank that has most; `wire_ms` of the busiest link. The pieces of which it moves parts."""

    latency_us: float
    wire_ms: float
    pieces: frozenset[int]

    @property
    def ms(self) -> float:
        return self.latency_us / US_PER_MS + self.wire_ms


def exchanges(steps: Iterable[Step]) -> list[tuple[Step, ...]]:
    """`steps` in their order, each alone but for pieces of one exchange.

    Pieces are scatters, or gathers, in a row that wait for the same.
    """
    groups: list[tuple[Step, ...]] = []
    for step in steps:
        last = groups[-1][-1] if groups else None
        if last and last.kind in ROOTED and (last.kind, last.groups, last.after) == (step.kind, step.groups, step.after):
            groups[-1] = (*groups[-1], step)
        else:
            groups.append((step,))
    return groups


def rounds_of(pieces: Sequence[Step], group: Sequence[int], cluster: Cluster) -> list[Round]:
    """Of an exchange of `pieces` in `group`."""
    roots = tuple(_root(piece, group) for piece in pieces)
    parts_bytes = np.array([_full_bytes(piece, group) / len(group) for piece in pieces])
    parts = parts_in_rounds(pieces[0].kind, roots, tuple(map(cluster.host_of, group)), at_once(cluster))
    return [_priced(np.asarray(moved), parts_bytes, np.asarray(group), cluster) for moved in parts]


@lru_cache(maxsize=256)
def parts_in_rounds(kind: str, roots: tuple[int, ...], hosts: tuple[int, ...], threads: int) -> tuple[tuple[Part, ...], ...]:
    """Which parts move in which round. There are scatters or gathers, one for each of `roots`, in a group whose ranks are on `hosts`."""
    size = len(hosts)
    if threads == 1:
        return tuple(tuple(_parts(kind, number, root, size)) for number, root in enumerate(roots))
    up = np.zeros((len(roots), size), dtype=bool)
    following, held, rounds = [0] * size, [0] * size, []
    left = np.array([[len(_parts(kind, number, root, size, rank)) for rank in range(size)] for number, root in enumerate(roots)])

    def let_go(number: int, rank: int) -> None:
        left[number, rank] -= 1
        held[rank] -= not left[number, rank]

    def take_up(rank: int) -> list[Part]:
        """The next piece. The parts that can move now."""
        number, following[rank] = following[rank], following[rank] + 1
        held[rank], up[number, rank] = held[rank] + 1, True
        moving = [part for part in _parts(kind, number, roots[number], size, rank) if up[number, part[1]] and up[number, part[2]]]
        for _, sender, taker in moving:
            let_go(number, sender)
            if comes_at_once(sender, taker):
                let_go(number, taker)
        return moving

    def comes_at_once(sender: int, taker: int) -> bool:
        return hosts[sender] == hosts[taker] and len(set(hosts)) > 1

    while min(following) < len(roots) or any(held):
        moved: list[Part] = []
        while free := [rank for rank in range(size) if held[rank] < threads and following[rank] < len(roots)]:
            for rank in free:
                moved += take_up(rank)
        for number, sender, taker in moved:
            if not comes_at_once(sender, taker):
                let_go(number, taker)
        rounds.append(tuple(moved))
    return tuple(rounds)


def _parts(kind: str, number: int, root: int, size: int, rank: int | None = None) -> list[Part]:
    """Of a piece. Those that `rank` sends or takes."""
    others = [other for other in range(size) if other != root] if rank in (None, root) else [rank]
    return [(number, root, other) if kind == "scatter" else (number, other, root) for other in others if other is not None]


def _priced(moved: np.ndarray, parts_bytes: np.ndarray, group: np.ndarray, cluster: Cluster) -> Round:
    """A round of `moved` [parts, 3], of so many bytes each by piece."""
    near_link, far_link, per_host = cluster.intra_host, cluster.cross_host, cluster.ranks_per_host
    size, ends = parts_bytes[moved[:, 0]], group[moved[:, 1:]]  # [parts], and [parts, 2] ranks: sender, taker
    hosts = ends // per_host
    far = hosts[:, 0] != hosts[:, 1]
    messages_us = np.where(far, far_link.each_message_us, near_link.each_message_us)
    host_gb_s = far_link.bandwidth_gb_s * per_host
    wires = [
        _near_ms(ends[~far], size[~far], near_link),
        transfer_ms(_busiest(hosts[far], size[far]), host_gb_s)
        if far_link.shared
        else transfer_ms(_busiest(ends[far], size[far]), far_link.bandwidth_gb_s),
    ]
    if cluster.hosts_per_leaf:
        leaves = hosts // cluster.hosts_per_leaf
        beyond = leaves[:, 0] != leaves[:, 1]
        above_gb_s = host_gb_s * cluster.hosts_per_leaf / cluster.leaf_oversubscription
        wires.append(transfer_ms(_busiest(leaves[beyond], size[beyond]), above_gb_s))
    return Round(_busiest(ends, messages_us), max(wires), frozenset(map(int, moved[:, 0])))


def _near_ms(ends: np.ndarray, size: np.ndarray, link: Link) -> float:
    """Within hosts. Each rank has one link for all that it sends, or one to each peer."""
    if not link.peers:
        return transfer_ms(_busiest(ends, size), link.bandwidth_gb_s)
    pairs, of_pair = np.unique(ends, axis=0, return_inverse=True)
    busiest = float(np.bincount(of_pair, size, len(pairs)).max()) if len(pairs) else 0.0
    return transfer_ms(busiest, link.bandwidth_gb_s / link.peers)


def _busiest(ends: np.ndarray, figures: np.ndarray) -> float:
    """The sum of `figures` [parts] at the end that has most. A link carries both directions at once. `ends` [parts, 2]."""
    return max((float(np.bincount(side, figures).max()) for side in ends.T if len(side)), default=0.0)


def _root(step: Step, group: Sequence[int]) -> int:
    """Where in `group` the rank is that has all bytes. Where the step does not say, the first."""
    figures = step.bytes_of_rank if step.kind == "scatter" else step.received_of_rank
    return int(np.argmax([figures[rank] for rank in group])) if len(figures) > 1 else 0


def _full_bytes(step: Step, group: Sequence[int]) -> float:
    """What the root has of all ranks together."""
    figures = step.bytes_of_rank if step.kind == "scatter" else step.received_of_rank
    if not figures:  # a gather of which only the parts are known
        return len(group) * step.max_bytes
    return max(figures[rank] for rank in group) if len(figures) > 1 else figures[0]
