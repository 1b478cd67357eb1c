"""What an executor hands to the trainer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils import get_total_norm

from recsys_lab.executor.dense_weights import DenseWeights
from recsys_lab.executor.execution import LocalModules, Watch
from recsys_lab.executor.input_dist_prefetch import InputDistPrefetch
from recsys_lab.executor.some_rows import SomeRows
from recsys_lab.executor.sparse_optim import SparseOptimizer
from recsys_lab.executor.store.row_field import RowField
from recsys_lab.executor.table_batch import HeldShard, TableBatch
from recsys_lab.kernels.stored import StoredWeights
from recsys_lab.plan import ShardingPlan
from recsys_lab.tables.remap import Remap


@dataclass(frozen=True)
class TableShard:
    """What this rank holds of a table. Weights and state are the live ones.

    `rows` int64: the table's row for each one of the shard, where FlexShard's remapping renumbers them; else None. `writes`: whether this
    rank saves it; of replicas one does. `state` [rows, cols], or [rows] where the optimizer keeps one element a row of this shard.

    `updated` bool [rows]: whether a step has updated it since `ShardedModel.track_updates`; None: that is not tracked.
    """

    held: HeldShard
    is_column_shard: bool
    weights: StoredWeights | RowField | SomeRows
    state: Mapping[str, torch.Tensor | RowField | SomeRows]
    rows: np.ndarray | None = None
    writes: bool = True
    updated: torch.Tensor | None = None

    def updated_rows(self) -> TableShard:
        """Those alone, where they are tracked. Else the shard."""
        if self.updated is None or isinstance(self.weights, RowField | SomeRows):
            return self
        rows = self.updated.nonzero().squeeze(1)
        at = rows.cpu().numpy()
        ids = at + self.held.row_start if self.rows is None else self.rows[at]
        state = {name: SomeRows(tensor, rows) for name, tensor in self.state.items() if isinstance(tensor, torch.Tensor)}
        return replace(self, weights=SomeRows(self.weights, rows), state=state, rows=ids)


@dataclass(frozen=True)
class ShardedModel:
    """What the trainer drives.

    One step: `sparse_optimizer.zero_grad()`, forward, `loss.backward()`, `sparse_optimizer.step()`, the dense optimizer's step.
    Gradients are those of the mean over the ranks of each rank's loss.

    Attributes:
        module: `module(dense, sparse) -> logits [B]`. Its parameters are the dense arch, under DistributedDataParallel, and no table.
        sparse_optimizer: of the tables.
        plan: where the tables lie.
        tables_path: of the tables in the unsharded model.
        remaps: by name, of the tables that are sharded by row.
        watch: counts look-ups of tables that are placed row by row.
        local_modules: parts of the model that only a group of ranks has.
        stored_dense: the weights behind all of those parameters, where they are not plain FP32.
        input_dist_prefetch: through which the next batch's ids may leave early.
    """

    module: nn.Module
    sparse_optimizer: SparseOptimizer
    plan: ShardingPlan
    tables_path: str
    remaps: Mapping[str, Remap] = field(default_factory=dict)
    watch: Watch = Watch()
    local_modules: LocalModules | None = None
    stored_dense: DenseWeights | None = None
    input_dist_prefetch: InputDistPrefetch | None = None

    def dense_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Named as in the unsharded model: those that all ranks have, then those that only a group of ranks has."""
        yield from self.module.named_parameters()
        if self.local_modules is not None:
            yield from self.local_modules.own.named_parameters(prefix=self.local_modules.prefix)

    def dense_weights(self) -> Iterator[tuple[str, torch.Tensor | StoredWeights]]:
        """Of the same parameters, by the same names, all that is stored. The live ones."""
        stored = self.stored_dense
        yield from ((name, parameter.data if stored is None else stored[name]) for name, parameter in self.dense_parameters())

    def buffers(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The dense arch's buffers, named as in the unsharded model."""
        yield from ((name, buffer) for name, buffer in self.module.named_buffers() if not name.startswith(self.tables_path + "."))
        if self.local_modules is not None:
            yield from self.local_modules.own.named_buffers(prefix=self.local_modules.prefix)

    def writes_dense(self, name: str) -> bool:
        """Whether this rank saves that parameter or buffer of the dense arch: of all that have it one does."""
        if self.local_modules is not None and name.startswith(self.local_modules.prefix + "."):
            return self.local_modules.writes
        return dist.get_rank() == 0

    def dense_gradient_norm(self) -> torch.Tensor:
        """Of all dense parameters of the model, the same on every rank. Collective where there are `local_modules`."""
        norm = _norm(self.module.parameters())
        if self.local_modules is None:
            return norm
        of_groups = _norm(self.local_modules.own.parameters()).square() / self.local_modules.ranks
        dist.all_reduce(of_groups)  # the ranks of a group have the same
        return (norm.square() + of_groups).sqrt()

    def table_shards(self) -> list[TableShard]:
        """Every shard with rows that this rank holds, replicas included.

        To save: those that it `writes`. To load: copy into them, on every rank.
        """
        optimizer = self.sparse_optimizer
        for batch in optimizer.batches:
            if batch.managed is not None:
                batch.managed.settle()
        return [
            TableShard(
                shard,
                shard.width < self.plan.by_table[shard.table][0].dim,
                batch.weights[batch.part(shard)] if batch.cached is None else RowField(batch.cached),
                {name: _state(batch, shard, name, state) for name, state in states.items()},
                rows=self.remaps[shard.table].to_id(np.arange(shard.row_start, shard.row_stop)) if shard.table in self.remaps else None,
                writes=self._writes(shard),
                updated=None if batch.updated is None else batch.updated[batch.part(shard)],
            )
            for batch, states in zip(optimizer.batches, optimizer.states)
            for shard in batch.shards
            if shard.rows
        ]

    def track_updates(self) -> None:
        """From now on, which rows of tables are updated; where that can be told (`TableBatch.track_updates`)."""
        for batch in self.sparse_optimizer.batches:
            batch.track_updates()

    def stores(self) -> dict[str, dict[str, int]]:
        """Hits and misses (distinct rows of a batch) and bytes moved since the start, by table with a cache, of this rank's shards."""
        counters: dict[str, dict[str, int]] = {}
        for batch in self.sparse_optimizer.batches:
            if batch.cached is not None and batch.rows_in_all:
                counts, sums = batch.cached.counts(), counters.setdefault(batch.shards[0].table, {})
                sums.update({name: count + sums.get(name, 0) for name, count in counts.items()})
        return counters

    def _writes(self, shard: HeldShard) -> bool:
        extent = (shard.row_start, shard.row_stop, shard.col_start)
        holders = [s.ranks for s in self.plan.by_table[shard.table][1].shards if (s.row_start, s.row_stop, s.col_start) == extent]
        return any(ranks[0] == dist.get_rank() for ranks in holders)


def _state(batch: TableBatch, shard: HeldShard, name: str, state: torch.Tensor) -> torch.Tensor | RowField:
    return state[batch.part(shard)] if batch.cached is None else RowField(batch.cached, name)


def _norm(parameters: Iterable[nn.Parameter]) -> torch.Tensor:
    """In FP32, whatever format the gradients are in."""
    return get_total_norm([parameter.grad.float() for parameter in parameters if parameter.grad is not None])
