"""The TorchRec executor: a model and a plan become TorchRec's DistributedModelParallel on the current process group."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
import torch.distributed as dist
from torch import nn
from torchrec.distributed.model_parallel import DefaultDataParallelWrapper, DistributedModelParallel
from torchrec.distributed.types import ShardingEnv
from torchrec.modules.embedding_modules import EmbeddingBagCollection

from recsys_lab.distributed.embedding_bags import AnySharder, ShardedBags
from recsys_lab.distributed.sparse_optim import SparseOptimizer, SparseOptimizerConfig
from recsys_lab.distributed.torchrec_plan import to_torchrec
from recsys_lab.errors import UserError
from recsys_lab.models.click_model import ClickModel
from recsys_lab.models.initial import initialise_dense
from recsys_lab.models.table_weights import initial_weight
from recsys_lab.plan import Placement, Shard, ShardingPlan
from recsys_lab.precision import Precision
from recsys_lab.quiet import quiet_torchrec
from recsys_lab.tables import Table

#: (table, row_start, row_stop, col_start, col_stop, seed) -> weights [rows, cols]
Initial = Callable[[Table, int, int, int, int, int], torch.Tensor]


@dataclass(frozen=True)
class TableShard:
    """Rows [row_start, row_stop) x columns [col_start, col_stop) of a table on this rank. The tensors are the live ones.

    `state` [rows, cols], or [rows] where the optimizer keeps one element a row of this shard.
    """

    table: str
    row_start: int
    row_stop: int
    col_start: int
    col_stop: int
    is_column_shard: bool
    weight: torch.Tensor
    state: dict[str, torch.Tensor]


@dataclass(frozen=True)
class ShardedModel:
    """What the trainer drives. `module(dense, sparse) -> logits [B]`; its parameters are the dense part, under
    DistributedDataParallel, and no table.

    One step: `sparse_optimizer.zero_grad()`, forward, `loss.backward()`, `sparse_optimizer.step()`, the dense optimizer's step.
    Gradients are those of the mean over the ranks of each rank's loss.
    """

    module: nn.Module
    sparse_optimizer: SparseOptimizer
    plan: ShardingPlan

    def dense_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Named as in the unsharded model."""
        yield from self.module.named_parameters()

    def buffers(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The dense part's buffers, named as in the unsharded model."""
        yield from self.module.named_buffers()

    def table_shards(self) -> list[TableShard]:
        """Every shard with rows that this rank holds, replicas included.

        To save: those of which it `is_writer`. To load: copy into them, on every rank.
        """
        optimizer = self.sparse_optimizer
        return [
            TableShard(
                shard.table,
                shard.row_start,
                shard.row_stop,
                shard.col_start,
                shard.col_stop,
                shard.col_stop - shard.col_start < self.plan.by_table[shard.table][0].dim,
                batch.view(batch.weight, shard),
                {name: batch.view(state, shard) for name, state in states.items()},
            )
            for batch, states in zip(optimizer.batches, optimizer.states)
            for shard in batch.shards
            if shard.rows
        ]

    def is_writer(self, table: str, offset: tuple[int, ...]) -> bool:
        """Whether this rank saves its shard of `table` at (row_start, col_start), or (row_start,): of replicas the first rank does."""
        return any(
            shard.ranks[0] == dist.get_rank() and (shard.row_start, shard.col_start)[: len(offset)] == tuple(offset)
            for shard in self.plan.by_table[table][1].shards
        )


def shard(
    model: ClickModel,
    plan: ShardingPlan,
    device: torch.device,
    optimizer: tuple[str, float, float, float],
    precision: Precision,
    seed: int,
    initial: Initial = initial_weight,
    *,
    dense_bucket_mib: int = 25,
) -> ShardedModel:
    """Shard `model`'s tables by `plan`, and put the rest under DistributedDataParallel.

    `model` comes from the meta device or from CPU; what weights its tables may have are ignored: every rank makes its own shards by
    `initial` from `seed`. `optimizer` is the tables': (name, learning rate, eps, weight decay). Must be called on every rank of the
    default process group. `dense_bucket_mib`: DistributedDataParallel's buckets. On one rank nothing is exchanged, and there is no
    DistributedDataParallel.
    """
    _check(plan)
    _check_formats(precision)
    if alone := plan.world_size == 1:
        plan = _on_one_rank(plan)
    quiet_torchrec()
    path = _tables_of(model)
    if any(p.is_meta for name, p in model.named_parameters() if not name.startswith(path + ".")):
        initialise_dense(model, seed, device)
    model.get_submodule(path).to("meta")
    wrapped = DistributedModelParallel(
        model,
        env=ShardingEnv.from_process_group(dist.group.WORLD),
        device=device,
        plan=to_torchrec(plan, path, device.type),
        sharders=[AnySharder()],
        init_data_parallel=not alone,
        data_parallel_wrapper=DefaultDataParallelWrapper(bucket_cap_mb=dense_bucket_mib, static_graph=False),
    )
    bags = wrapped.module.get_submodule(path)
    assert isinstance(bags, ShardedBags)
    for batch in bags.batches:
        batch.fill(lambda name, r0, r1, c0, c1: initial(plan.by_table[name][0], r0, r1, c0, c1, seed))
    return ShardedModel(wrapped, SparseOptimizer(bags.batches, SparseOptimizerConfig(*optimizer), device), plan)


def _tables_of(model: nn.Module) -> str:
    """The path of the model's one EmbeddingBagCollection."""
    paths = [path for path, module in model.named_modules() if isinstance(module, EmbeddingBagCollection)]
    assert len(paths) == 1, f"a model has one EmbeddingBagCollection; this one has them at {paths}"
    return paths[0]


def _check_formats(precision: Precision) -> None:
    for part in ("forward_comm", "backward_comm", "dense_comm"):
        if getattr(precision, part) != "fp32":
            given = getattr(precision, part)
            raise UserError("this executor sends FP32 only", where=f"precision.{part}", given=given, allowed="fp32")


def _on_one_rank(plan: ShardingPlan) -> ShardingPlan:
    """Every table whole, as if replicated: nothing is exchanged. TorchRec would sort ids into one bucket and send them to itself."""
    return replace(plan, placements=tuple(Placement(t.name, "data_parallel", (Shard((0,), 0, t.rows, 0, t.dim),)) for t in plan.tables))


def _check(plan: ShardingPlan) -> None:
    """The plan is for the ranks that run, and TorchRec counts hosts as the plan does."""
    if plan.world_size != dist.get_world_size():
        raise UserError("the plan is for another number of ranks", where="launcher", given=dist.get_world_size(), allowed=plan.world_size)
    local = os.environ.setdefault("LOCAL_WORLD_SIZE", str(plan.ranks_per_host))
    if int(local) != plan.ranks_per_host:
        raise UserError(
            "the plan is for another number of ranks per host", where="LOCAL_WORLD_SIZE", given=local, allowed=plan.ranks_per_host
        )
    for table, placement in plan.by_table.values():
        if placement.scheme == "grid_shard" and table.pooling == "mean":
            raise UserError(
                "TorchRec computes mean pooling wrongly under grid_shard", where=f"table {table.name}", remedy="use table_row_wise"
            )
