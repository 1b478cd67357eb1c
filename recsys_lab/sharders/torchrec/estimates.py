"""TorchRec's estimates, made once for shards that are alike. TorchRec makes them for every shard of a table that is cut over all ranks."""

from __future__ import annotations

from torchrec.distributed.planner import ParameterConstraints, Topology
from torchrec.distributed.planner.constants import DEFAULT_PERF_ESTIMATOR
from torchrec.distributed.planner.estimator.estimator import EmbeddingPerfEstimator, EmbeddingPerfEstimatorFactory
from torchrec.distributed.planner.shard_estimators import EmbeddingStorageEstimator
from torchrec.distributed.planner.types import SharderDataMap, ShardEstimator, ShardingOption

from recsys_lab.sharders.torchrec.copies import Shards


def once_per_size(topology: Topology, constraints: dict[str, ParameterConstraints]) -> list[ShardEstimator]:
    """The estimators that TorchRec's enumerator has by default, that of time as `OncePerSize`."""
    default = EmbeddingPerfEstimatorFactory.create(DEFAULT_PERF_ESTIMATOR, topology=topology, constraints=constraints)
    return [OncePerSize(topology, constraints, config=default.config), EmbeddingStorageEstimator(topology, constraints=constraints)]


class OncePerSize(EmbeddingPerfEstimator):
    """Its default estimate of a shard follows from the option and the shard's size. Half of the time of a plan went into equal ones."""

    def estimate(self, sharding_options: list[ShardingOption], sharder_data_map: SharderDataMap) -> None:
        shards = [option.shards for option in sharding_options]
        for option in sharding_options:
            option.shards = list({tuple(shard.size): shard for shard in reversed(option.shards)}.values())
        super().estimate(sharding_options, sharder_data_map)
        for option, every in zip(sharding_options, shards):
            time_of = {tuple(shard.size): shard.perf for shard in option.shards}
            for shard in every:
                shard.perf = time_of[tuple(shard.size)]
            option.shards = Shards(every)
