"""What an executor may be told besides the plan. Lowering and simulation read the same options."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ExecutorOptions:
    """The keys of `sharder.executor`.

    exchange: of whole tables' pooled rows: all_to_all, scatter_list or fused_scatter.
    overlap: False: that exchange and the all-reduce of dense gradients block.
    communication_cores: of those that a rank may use, for gloo's threads alone; 0: any thread on any core.
    pipeline: the next batch's ids travel while this batch computes.
    dense_bucket_mib: DistributedDataParallel's buckets.
    """

    exchange: str = "all_to_all"
    overlap: bool = True
    communication_cores: int = 0
    pipeline: bool = False
    dense_bucket_mib: int = 25
