"""What TorchRec's planner copies deeply and hashes, as cheaply as it can be. Those copies were three quarters of a plan for 1,024 ranks.

Storages and times of ranks and shards are replaced, never changed, so copies share them.
"""

from __future__ import annotations

from typing import Any

from torchrec.distributed.planner import Topology
from torchrec.distributed.planner.partitioners import GreedyPerfPartitioner, ShardingOptionGroup
from torchrec.distributed.planner.types import DeviceHardware, Perf, Shard, ShardingOption


class Greedy(GreedyPerfPartitioner):
    """TorchRec's default. For each table that it places on one host it copies all ranks of that host."""

    @classmethod
    def _cohost_partition(cls, sharding_option_group: ShardingOptionGroup, _host_level_devices: list[list[DeviceHardware]]) -> None:
        super()._cohost_partition(sharding_option_group, [_Host(devices) for devices in _host_level_devices])


class _Host(list[DeviceHardware]):
    """The ranks of a host."""

    def __deepcopy__(self, memo: Any) -> list[DeviceHardware]:
        return [DeviceHardware(device.rank, device.storage, device.perf) for device in self]


class Shards(list[Shard]):
    """The shards of an option. The best plan so far is a copy of its options."""

    def __deepcopy__(self, memo: Any) -> Shards:
        return Shards(Shard(shard.size, shard.offset, shard.storage, shard.perf, shard.rank) for shard in self)


class Option(ShardingOption):
    """One of a search, known by itself. TorchRec knows a proposal by its options, and an option by every shard of it."""

    __hash__ = object.__hash__


class _NoTime:
    """The time of a rank that has no shard yet."""

    total = 0.0

    def __add__(self, other: Perf) -> Perf:
        return other

    def __deepcopy__(self, memo: Any) -> _NoTime:
        return self


def with_idle_ranks(topology: Topology) -> Topology:
    """`topology`, whose ranks share one object for the time of a rank that has nothing yet. Each search begins with copies of it."""
    idle: Any = _NoTime()
    for device in topology.devices:
        device.perf = idle
    return topology
