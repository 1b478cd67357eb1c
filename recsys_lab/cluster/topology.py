"""Hosts x ranks per host, one device a rank, and two kinds of link. Rank r lives on host r // ranks_per_host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from recsys_lab.errors import UserError


@dataclass(frozen=True)
class Device:
    """What one rank computes on. `peak_tflops` maps a number format (fp32, tf32, bf16, fp16) to dense TFLOP/s."""

    name: str
    kind: str  # cuda | cpu
    memory_gb: float
    memory_bandwidth_gb_s: float
    peak_tflops: dict[str, float]
    source: str


@dataclass(frozen=True)
class Link:
    """What one rank can send, one way, on this kind of link, and what a message costs before its first byte."""

    name: str
    bandwidth_gb_s: float
    latency_us: float
    source: str


@dataclass(frozen=True)
class Cluster:
    """H hosts of `ranks_per_host` ranks. `intra_host` and `cross_host` are per rank; every figure has a source."""

    name: str
    hosts: int
    ranks_per_host: int
    device: Device
    intra_host: Link
    cross_host: Link
    reserved_memory_share: float = 0.15  # for activations, buffers and the framework; TorchRec's planner keeps back as much
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name, kind in (("device", Device), ("intra_host", Link), ("cross_host", Link)):
            if isinstance(given := getattr(self, name), Mapping):  # as a YAML has it
                object.__setattr__(self, name, kind(**given))
        for name, value in (("hosts", self.hosts), ("ranks_per_host", self.ranks_per_host)):
            if value < 1:
                raise UserError("a cluster needs at least one", where=f"cluster.{name}", given=value, allowed="1 or more")

    @property
    def world_size(self) -> int:
        return self.hosts * self.ranks_per_host

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
