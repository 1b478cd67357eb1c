"""TorchRec's search space with the memory that tables take as they are stored.

TorchRec counts what a look-up reads, and the optimizer's state in that format too.
"""

from __future__ import annotations

from torch import nn
from torchrec.distributed.planner import ParameterConstraints, Topology
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.types import ShardingOption, Storage
from torchrec.distributed.types import ModuleSharder

from recsys_lab.plan.workload import STATE_PER_WEIGHT
from recsys_lab.sharders.torchrec.copies import Option
from recsys_lab.sharders.torchrec.estimates import once_per_size
from recsys_lab.sharders.torchrec.types import SCHEMES
from recsys_lab.tables import Table
from recsys_lab.tables.spec import READ_BYTES, STORED_BYTES


class AsStored(EmbeddingEnumerator):
    """Its options for `tables`, each shard with the bytes that TorchRec does not count.

    They are in the order of the tables and of SCHEMES. TorchRec's own order comes out of a set of words, another in each process. It
    decides among options that it deems equal. A plan for 256 H100 took 18 or 24 ms an iteration by that alone.
    """

    def __init__(
        self, topology: Topology, constraints: dict[str, ParameterConstraints], tables: tuple[Table, ...], batch_size: int, optimizer: str
    ) -> None:
        super().__init__(topology, batch_size, constraints, once_per_size(topology, constraints))
        self._uncounted = {table.name: uncounted_bytes(table, optimizer) for table in tables}
        self._on_gpu = topology.compute_device == "cuda"

    def enumerate(self, module: nn.Module, sharders: list[ModuleSharder[nn.Module]]) -> list[ShardingOption]:
        options = super().enumerate(module, sharders)
        places = {name: place for place, name in enumerate(self._uncounted)}
        options.sort(key=lambda option: (places[option.name], SCHEMES.index(option.sharding_type), option.compute_kernel))
        for option in options:
            option.__class__ = Option
            for shard in option.shards:
                uncounted = shard.size[0] * shard.size[1] * self._uncounted[option.name]
                assert shard.storage is not None
                shard.storage += Storage(hbm=uncounted if self._on_gpu else 0, ddr=0 if self._on_gpu else uncounted)
        return options


def uncounted_bytes(table: Table, sparse_optimizer: str) -> int:
    """Of one weight and its state of `sparse_optimizer`."""
    read, stored = READ_BYTES[table.dtype], STORED_BYTES[table.dtype]
    return stored - read + (4 - read) * STATE_PER_WEIGHT[sparse_optimizer]
