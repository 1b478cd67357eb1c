"""TorchRec's sharding types. Our schemes have their names."""

from torchrec.distributed.types import ShardingType

SCHEMES = tuple(kind.value for kind in ShardingType)
