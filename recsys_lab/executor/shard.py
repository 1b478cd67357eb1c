"""The executor: a model and a plan become a model that trains on the current process group.

This file imports no torch: a config's keys are read from its signature. How it works stands in sharding.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated

from annotated_types import Interval
from pydantic import Strict

from recsys_lab.base.ranges import OneOf
from recsys_lab.base.row_updates import ROW_UPDATES
from recsys_lab.plan.context import SYNCS
from recsys_lab.plan.dense import ALL_REDUCE, DENSE_SYNCS
from recsys_lab.plan.scheme import EXCHANGES

if TYPE_CHECKING:
    import numpy as np
    import torch

    from recsys_lab.executor.sharded_model import ShardedModel
    from recsys_lab.models.click_model import ClickModel
    from recsys_lab.models.first_order import FirstOrder
    from recsys_lab.plan import ShardingPlan
    from recsys_lab.precision import Precision
    from recsys_lab.tables import Table

    #: (table, rows int64 [n], col_start, col_stop, seed) -> weights [n, cols]
    Initial = Callable[[Table, np.ndarray, int, int, int], torch.Tensor]


def shard(
    model: ClickModel,
    plan: ShardingPlan,
    device: torch.device,
    optimizer: tuple[str, float, float, float],
    precision: Precision,
    seed: int,
    initial: Initial | None = None,
    hot_rows: Mapping[str, np.ndarray] | None = None,
    scratch: str = "",
    start: FirstOrder | None = None,
    dedup: bool = False,
    *,
    dense_bucket_mib: Annotated[int, Strict(), Interval(ge=1, le=2**16)] = 25,
    exchange: Annotated[str, OneOf(EXCHANGES)] = "all_to_all",
    overlap: bool = True,
    communication_cores: Annotated[int, Strict(), Interval(ge=0, le=1024)] = 0,
    pipeline: bool = False,
    sync: Annotated[str, OneOf(SYNCS)] = "gradients",
    dense_sync: Annotated[str, OneOf(DENSE_SYNCS)] = ALL_REDUCE,
    row_update: Annotated[str, OneOf(ROW_UPDATES)] = "default",
) -> ShardedModel:
    """Shards a model's tables by a plan, and puts the rest under DistributedDataParallel. Every rank of the default process group calls it.

    On one rank nothing is exchanged, and there is no DistributedDataParallel.

    Args:
        model: from the meta device or from CPU. Weights of its tables are ignored.
        plan: for the ranks of the default process group.
        device: of this rank.
        optimizer: the tables': (name, learning rate, eps, weight decay).
        precision: formats of weights, compute and exchanges.
        seed: of the first weights.
        initial: makes rows from `seed`; every rank makes its own; None: models/table_weights.py does.
        hot_rows: for each table sharded by row, the ids of its hottest rows, as many as are not row-sharded; int64, in falling frequency,
            the same on every rank.
        scratch: the folder for rows of tables with a store on disk; empty: that of temporary files.
        start: what the model gives before it is trained, of a model with a first-order part; None: its weights are drawn. The same on
            every rank.
        dedup: equal ids of a rank's batch travel and are looked up once, where rows of sequences travel.
        dense_bucket_mib: DistributedDataParallel's buckets.
        exchange: of whole tables' pooled rows (recsys_lab.schemes.whole.execute).
        overlap: False: that exchange and the all-reduce of dense gradients block.
        communication_cores: of a rank's cores, for gloo's threads alone; 0: any thread on any core.
        sync: what copies of tables in groups of ranks average: gradients before each update, or FP32 weights and optimizer state after
            it (TorchRec's DMPCollection), which is the training of one process under SGD alone.
        dense_sync: dense gradients are averaged by an all_reduce; or, on CPUs, by a reduce_scatter and an all-gather, one bucket after
            another in a thread of their own.
        row_update: how looked-up rows of tables move: default, or the CPU DLRM paper's algorithms 2 and 3 (reference), 3 with atomic
            additions (atomic), or 4 (race_free). Those are plain SGD on CPUs; atomic is FP32.
        pipeline: the trainer may send the next batch's ids while one computes (`ShardedModel.input_dist_prefetch`).

    Returns:
        The module to call, the tables' optimizer, and this rank's shards.

    Raises:
        UserError: for a plan that cannot run here, `hot_rows` or an `exchange` that do not match it, or cores that are not there.
    """
    from recsys_lab.executor.sharding import sharded
    from recsys_lab.models.table_weights import initial_rows

    return sharded(
        model,
        plan,
        device,
        optimizer,
        precision,
        seed,
        initial or initial_rows,
        hot_rows or {},
        scratch,
        start,
        dedup,
        dense_bucket_mib=dense_bucket_mib,
        exchange=exchange,
        overlap=overlap,
        communication_cores=communication_cores,
        pipeline=pipeline,
        sync=sync,
        dense_sync=dense_sync,
        row_update=row_update,
    )
