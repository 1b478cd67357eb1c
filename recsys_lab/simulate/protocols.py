"""What a library of collectives adds to the links.

It says how a collective starts, what a step costs in each protocol, and the share of a link that it loses.

NCCL's latencies are the constants of its own tuning model (its LL, LL128 and Simple protocols; ring and tree). The shares of a link and the
fill of Simple's pipeline are fitted. The points are published all-reduces of 8 A100 and 8 H200, 1 MB to 8 GB. A link's `latency_us` is a
step of LL; the others add to it. Gloo and oneCCL have one protocol, whose figures are those of the links alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from recsys_lab.cluster import Cluster


@dataclass(frozen=True)
class Shape:
    """A group of `size` ranks: on `hosts` hosts, `local` of them on the host that has most."""

    size: int
    hosts: int
    local: int


@dataclass(frozen=True)
class Protocol:
    """`near_us`, `far_us`: what a step adds to the latency of a link within, across hosts. `fill_bytes`: sent before a pipeline is full."""

    name: str
    ring_us: float
    tree_us: float
    near_us: float
    far_us: float
    tree_far_us: float
    share: float
    fill_bytes: float

    def later(self, times: float) -> Protocol:
        """So many times each latency."""
        names = ("ring_us", "tree_us", "near_us", "far_us", "tree_far_us")
        return replace(self, **{name: times * getattr(self, name) for name in names})


LL = Protocol("LL", 6.6, 6.8, 0.0, 0.0, 2.3, 0.25, 0.0)
LL128 = Protocol("LL128", 14.0, 14.0, 1.3, 1.3, 5.8, 0.55, 0.0)
SIMPLE = Protocol("Simple", 8.4, 8.4, 2.8, 11.3, 11.3, 1.0, 24e6)
NCCL = (LL, LL128, SIMPLE)
PLAIN = Protocol("plain", 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0)
#: A ring's fill grows with its steps; `fill_bytes` is that of an all-reduce of 8 ranks.
FILLED_STEPS = 14
#: NCCL's all-to-all is a group of sends and receives: what starting one costs (64 H800, 8 MB: 296 to 338 us in all).
ALL_TO_ALL_US = 25.0
#: Of torch's process group of gloo: so many collectives of a group at once. NCCL's follow one another on a stream.
GLOO_THREADS = 2


def protocols(cluster: Cluster) -> tuple[Protocol, ...]:
    """Those that the cluster's library chooses from: it takes the fastest."""
    if cluster.device.kind != "cuda":
        return (PLAIN,)
    return NCCL if cluster.library_latency == 1.0 else tuple(one.later(cluster.library_latency) for one in NCCL)


def all_to_all_start_us(cluster: Cluster) -> float:
    return ALL_TO_ALL_US * cluster.library_latency if cluster.device.kind == "cuda" else 0.0


def at_once(cluster: Cluster) -> int:
    """Collectives of one group that a rank works on at the same time."""
    return 1 if cluster.device.kind == "cuda" else GLOO_THREADS


def messages(shape: Shape, cluster: Cluster) -> tuple[int, int]:
    """That an all-to-all bears the latency of one after another, within and across hosts.

    NCCL's are under way together within a host, and gathered there for each other host (PXN). Gloo and oneCCL send to each rank.
    """
    if cluster.device.kind == "cuda":
        return int(shape.local > 1), shape.hosts - 1
    return shape.local - 1, shape.size - shape.local
