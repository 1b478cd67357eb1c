"""Hosts x ranks per host, one device a rank, and two kinds of link. Rank r lives on host r // ranks_per_host."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from recsys_lab.base.calibrated import is_calibrated
from recsys_lab.base.ranges import CountFromZero, Factor, Hosts, NotNegative, OneOf, Positive, RanksPerHost, ShareBelowOne, ShareOfPeak
from recsys_lab.base.schema import check_fields
from recsys_lab.cluster.failures import Failures
from recsys_lab.cluster.memory import Disk, Host
from recsys_lab.cluster.price import ListPrice, Price
from recsys_lab.errors import UserError

KINDS = ("cuda", "cpu")
#: Ranks that can be planned for and priced: every step has a time on each of them.
MOST_RANKS = 2**16
NUMBER_FORMATS = ("fp32", "tf32", "bf16", "fp16")


@dataclass(frozen=True)
class Device:
    """What one rank computes on. Its cluster checks it.

    Attributes:
        name: as `list_price.device` names it.
        kind: cuda or cpu.
        memory_gb: GB (1e9 bytes).
        memory_bandwidth_gb_s: GB/s.
        peak_tflops: dense TFLOP/s, by number format.
        source: where the figures are from.
        cache_mb: last-level cache, where hot rows stay; None: not known, and no hit is counted.
        host_link_gb_s: GB/s from the host's memory; a GPU needs it to be simulated, a CPU's input is in its own memory.
    """

    name: str
    kind: Annotated[str, OneOf(KINDS)]
    memory_gb: Positive
    memory_bandwidth_gb_s: Positive
    peak_tflops: dict[Annotated[str, OneOf(NUMBER_FORMATS)], Positive]
    source: str
    cache_mb: Positive | None = None
    host_link_gb_s: Positive | None = None


@dataclass(frozen=True)
class Link:
    """What one rank can send, one way, on this kind of link, as collectives reach it. Its cluster checks it.

    Attributes:
        name: for people.
        bandwidth_gb_s: GB/s in an all-to-all.
        latency_us: of a step of the smallest messages.
        source: where the figures are from.
        ring_gb_s: bus bandwidth of a ring, of one rank within a host and of one rank's own link across hosts; None: as in an all-to-all.
        in_network_gb_s: of an all-reduce that the switches make (NVLS, SHARP); None: they make none.
        message_us: cost of each message of an all-to-all; None: `latency_us`.
        start_us: cost of each collective that uses the link.
        shared: the ranks of a host share one link; a rank that sends alone has all of it.
        line_gb_s: rate of the link itself, where collectives leave some of it to others; None: a collective takes all.
        exchange_us: cost of starting an all-to-all, beside `start_us`.
        fall_per_doubling: share of its bandwidth that an all-to-all loses with each doubling of the ranks on other hosts that a rank
            sends to, on a lossy or oversubscribed network; 0: flows do not disturb each other.
        peers: a rank has a link of its own to each of so many others, and `bandwidth_gb_s` and `ring_gb_s` are all of them; a group of
            fewer ranks uses fewer links. 0: a switch, or one link for all.
        spread: standard deviation of the logarithm of its bandwidths, over systems that have such links: what `decide` does not know.
    """

    name: str
    bandwidth_gb_s: Positive
    latency_us: NotNegative
    source: str
    ring_gb_s: Positive | None = None
    in_network_gb_s: Positive | None = None
    message_us: NotNegative | None = None
    start_us: NotNegative = 0.0
    shared: bool = False
    line_gb_s: Positive | None = None
    exchange_us: NotNegative = 0.0
    fall_per_doubling: ShareBelowOne = 0.0
    peers: CountFromZero = 0
    spread: ShareOfPeak = 0.15

    def faster(self, times: float) -> Link:
        """So many times the bytes a second, in every kind of collective, at the same latency."""
        names = ("bandwidth_gb_s", "ring_gb_s", "in_network_gb_s", "line_gb_s")
        return replace(self, **{name: gb_s * times for name in names if (gb_s := getattr(self, name)) is not None})

    def later(self, times: float) -> Link:
        """So many times each latency, at the same bandwidth."""
        names = ("latency_us", "message_us", "start_us", "exchange_us")
        return replace(self, **{name: us * times for name in names if (us := getattr(self, name)) is not None})

    def among(self, ranks: int) -> Link:
        """As a group of so many ranks has it: each uses its links to the others."""
        return self.faster(min((ranks - 1) / self.peers, 1.0)) if self.peers and ranks > 1 else self

    def exchange_gb_s(self, peers: int) -> float:
        """Of an all-to-all in which a rank sends to so many over this link."""
        return self.bandwidth_gb_s * (1 - self.fall_per_doubling) ** math.log2(max(peers, 1))

    @property
    def around_gb_s(self) -> float:
        """Of a ring."""
        return self.bandwidth_gb_s if self.ring_gb_s is None else self.ring_gb_s

    def taken_by(self, gb_s: float) -> float:
        """The share of the link that a collective takes which moves its bytes at `gb_s`."""
        return 1.0 if self.line_gb_s is None else min(gb_s / self.line_gb_s, 1.0)

    @property
    def each_message_us(self) -> float:
        return self.latency_us if self.message_us is None else self.message_us


@dataclass(frozen=True)
class Cluster:
    """H hosts of R ranks, one device each. Every figure has a source.

    Attributes:
        name: for records.
        hosts: H.
        ranks_per_host: R; rank r is on host r // R.
        device: that of each rank.
        intra_host, cross_host: links of one rank, within a host and across hosts.
        reserved_memory_share: for activations, buffers and the framework; TorchRec's planner keeps back as much.
        notes: what a reader should know of the figures.
        hosts_per_leaf: hosts behind one leaf switch; 0: all hosts reach each other at full speed.
        leaf_oversubscription: a leaf's links upwards carry 1 / this of what its hosts can send.
        library_latency: times the latencies that NCCL's tuning model adds to those of the links (`simulate/protocols.py`).
        price_per_device_hour: dollars; None: as `list_price` has it. There are no costs where both are None.
        list_price: a public price; no part of a config's identity.
        failures: how often a device stops a training; no part of a config's identity. None: not known, and none are counted.
        host, disk: of one host, for tables with a store; a plan that needs them refuses None.

    Raises:
        UserError: for a figure out of its range, or too many ranks.
    """

    name: str
    hosts: Hosts
    ranks_per_host: RanksPerHost
    device: Device
    intra_host: Link
    cross_host: Link
    reserved_memory_share: ShareBelowOne = 0.15
    notes: list[str] = field(default_factory=list)
    hosts_per_leaf: CountFromZero = 0
    leaf_oversubscription: Factor = 1.0
    library_latency: Positive = 1.0
    price_per_device_hour: Positive | None = None
    list_price: ListPrice | None = None
    host: Host | None = None
    disk: Disk | None = None
    failures: Failures | None = None

    def __post_init__(self) -> None:
        parts: dict[str, type] = {"device": Device, "intra_host": Link, "cross_host": Link, "list_price": ListPrice}
        parts |= {"host": Host, "disk": Disk, "failures": Failures}
        for name, kind in parts.items():
            if isinstance(figures := getattr(self, name), Mapping):  # as a YAML has it
                object.__setattr__(self, name, kind(**figures))
        check_fields(self, "cluster")
        if self.hosts * self.ranks_per_host > MOST_RANKS:
            given = f"{self.hosts:,} hosts of {self.ranks_per_host:,} ranks"
            raise UserError("too many ranks to plan for", where="cluster.hosts", given=given, allowed=f"{MOST_RANKS:,} ranks in all")

    @property
    def world_size(self) -> int:
        return self.hosts * self.ranks_per_host

    @property
    def near(self) -> Link:
        """The link within a host, as all ranks of a host have it."""
        return self.intra_host.among(self.ranks_per_host)

    @property
    def calibrated(self) -> bool:
        return is_calibrated(self.device.source)

    @property
    def price(self) -> Price | None:
        """Of a device-hour: the one that is given, else the list price if it is of this device; None: costs are not told."""
        if self.price_per_device_hour is not None:
            return Price(self.price_per_device_hour)
        listed = self.list_price
        if listed is None or listed.device not in (None, self.device.name):
            return None
        return Price.of_list(listed, self.world_size)

    @property
    def usable_memory_bytes(self) -> int:
        """What a plan may fill of one rank's memory."""
        return int(self.device.memory_gb * 1e9 * (1 - self.reserved_memory_share))

    def host_of(self, rank: int) -> int:
        return rank // self.ranks_per_host

    def local_rank(self, rank: int) -> int:
        return rank % self.ranks_per_host

    def ranks_of_host(self, host: int) -> tuple[int, ...]:
        return tuple(range(host * self.ranks_per_host, (host + 1) * self.ranks_per_host))

    def peers(self, rank: int) -> tuple[int, ...]:
        """The ranks with the same local rank, one a host, in host order."""
        return tuple(range(self.local_rank(rank), self.world_size, self.ranks_per_host))

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(range(self.world_size))

    def share_across_leaves(self, hosts: int) -> float:
        """A rank sends evenly to `hosts` consecutive hosts but its own. This is the share that passes the links above the leaves."""
        if not self.hosts_per_leaf or hosts <= self.hosts_per_leaf:
            return 0.0
        return (hosts - self.hosts_per_leaf) / (hosts - 1)

    def reshaped(self, hosts: int, ranks_per_host: int) -> Cluster:
        """The same devices and links in another number."""
        return replace(self, hosts=hosts, ranks_per_host=ranks_per_host)


def ranks_text(ranks: Any) -> str:
    """`0-63`, `0-56:8` (every eighth), or `0,3,5`: a group of ranks as people read it."""
    ranks = tuple(ranks)
    if len(ranks) == 1:
        return str(ranks[0])
    steps = {b - a for a, b in zip(ranks, ranks[1:])}
    if len(steps) == 1 and (step := steps.pop()) > 0:
        return f"{ranks[0]}-{ranks[-1]}" + (f":{step}" if step > 1 else "")
    return ",".join(map(str, ranks))


def ranks_words(ranks: Any) -> str:
    """`rank 3` or `ranks 0-63`."""
    return f"rank{'s' if len(ranks) > 1 else ''} {ranks_text(ranks)}"
