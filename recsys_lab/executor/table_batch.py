"""The shards that a rank holds, looked up and updated together. Plain PyTorch, the same on CPU and GPU.

Shards of equal width lie one above the other in one matrix. One `embedding_bag` (of sequences, one `embedding`) looks all of them up, and
one pass updates them (recsys_lab.kernels). The backward pass writes no gradient of the weights. It keeps the ids and the gradient of the
output. The optimizer goes from these to each touched row. So nothing as large as a table is ever made, and a row that is not in the batch
cannot move. Only of rows that several ranks hold alike is there a whole gradient, which they average (`replicas`).

Shapes: B samples, F features, D width of a shard, R rows of all shards together, N ids, U distinct ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import torch
import torch.distributed as dist

from recsys_lab import kernels
from recsys_lab.executor.replicas import ReplicaGradients, ReplicaGroup
from recsys_lab.executor.store.cached_rows import Held
from recsys_lab.executor.store.managed import ManagedRows
from recsys_lab.executor.store.three_levels import rows_of
from recsys_lab.kernels import Lookups
from recsys_lab.kernels.stored import StoredWeights
from recsys_lab.kernels.torch_embedding import summed
from recsys_lab.plan.store import Store

#: Rows are filled in pieces of about this many elements, which stay in the processor's cache. No part of a table is made twice.
FILL_ELEMENTS = 1 << 17


@dataclass(frozen=True)
class HeldShard:
    """Rows [row_start, row_stop) x columns [col_start, col_stop) of a table, held by this rank. `offset`: in its batch, which sets it."""

    table: str
    row_start: int
    row_stop: int
    col_start: int
    col_stop: int
    features: int  # how many features of the batch read it
    format: str = "fp32"  # how its weights are stored
    mode: str = "sum"  # sum, mean or none
    offset: int = 0
    store: Store | None = None  # with a cache in front of its rows; None: all are in memory

    @property
    def rows(self) -> int:
        return self.row_stop - self.row_start

    @property
    def width(self) -> int:
        return self.col_stop - self.col_start


@dataclass
class Touched:
    """What one backward pass leaves for the optimizer: look-ups and the gradient of what they gave, FP32 or BF16. `distinct`: they are
    of different rows, in rising order, and the gradient of each is summed already. `held`: the rows' slots, where there is a store.
    """

    lookups: Lookups
    grad: torch.Tensor  # [B, F * D] of pooled rows, [N, D] of a sequence's
    distinct: bool = False
    held: Held | None = None


class TableBatch:
    """Shards of one width, one format and one mode, in the order of the features that read them.

    There is at least one. A shard with a store is alone. On a CPU what is laid out like the weights then has a row for each slot of its
    cache (`cached`). On a GPU FBGEMM's kernels look up and update it (`managed`), and its weights are there once the optimizer is known.

    `replicas` hold the same shards (data parallelism); None: this rank alone does. `copies`: ranks that hold them too and average weights,
    not gradients. `out_dtype`: of looked-up rows, which are summed in FP32 and rounded once; BF16 where nothing but a model in BF16 reads
    them. `updated`: of each row, whether a step has updated it since `track_updates`; None: that is not tracked.
    """

    def __init__(self, shards: Iterable[HeldShard], device: torch.device, replicas: ReplicaGroup | None = None):
        self.shards: list[HeldShard] = []
        rows = 0
        for shard in shards:
            self.shards.append(replace(shard, offset=rows))
            rows += shard.rows
        self.mode, width, self.rows_in_all = self.shards[0].mode, self.shards[0].width, rows
        only, store = self.shards[0], self.shards[0].store
        assert store is None or (len(self.shards) == 1 and replicas is None), "a shard with a store is alone, and nobody holds it too"
        of_cpu = store if device.type == "cpu" else None
        self.managed = None if of_cpu or not store or not rows else ManagedRows(store, rows, width, only.format, only.mode, device)
        slots = of_cpu.cached_rows(rows) if of_cpu else 0 if self.managed else rows
        self.weights = StoredWeights.empty(only.format, (slots, width), device)
        self.cached = rows_of(of_cpu, only.table, only.row_start, rows, self.weights) if of_cpu else None
        self.replicas = None if replicas is None else ReplicaGradients(replicas, rows, width, device)
        self.feature_offsets = torch.tensor([s.offset for s in self.shards for _ in range(s.features)], dtype=torch.int64, device=device)
        self.copies: dist.ProcessGroup | None = None
        self.touched: list[Touched] = []
        self.updated: torch.Tensor | None = None
        self.out_dtype = torch.float32
        # Its gradient is never read: it makes autograd call our backward, also on a rank without a single id.
        self._anchor = torch.zeros((), device=device, requires_grad=True)

    @property
    def rows(self) -> int:
        """In memory."""
        return self.weights.shape[0]

    @property
    def width(self) -> int:
        return self.weights.shape[1]

    def part(self, shard: HeldShard) -> slice:
        """The rows of `shard` in whatever is laid out like the weights."""
        return slice(shard.offset, shard.offset + shard.rows)

    def fill(self, initial: Callable[[str, int, int, int, int], torch.Tensor]) -> None:
        """Set the weights from `initial(table, row_start, row_stop, col_start, col_stop)`, a piece of rows at a time."""
        for shard in self.shards:
            rows = max(1, FILL_ELEMENTS // self.width)
            for start in range(shard.row_start, shard.row_stop, rows):
                stop = min(start + rows, shard.row_stop)
                begin = shard.offset + start - shard.row_start
                values = initial(shard.table, start, stop, shard.col_start, shard.col_stop)
                self.weights.write(values.to(self.weights.model.device), slice(begin, begin + stop - start))

    def look_up(self, ids: torch.Tensor, offsets: torch.Tensor, batch_size: int, held: Held | None = None) -> torch.Tensor:
        """Rows for `ids` [N], feature by feature, and `offsets` [F * B + 1]: pooled [B, F * D], or [N, D] under mode none.

        `held`: those rows of a shard with a store, where they have been fetched.
        """
        if self.cached is not None:
            held = held or self.cached.take(ids)
            ids = held.slots
        return _LookUp.apply(self._anchor, self, ids, offsets, batch_size, held)

    def gradients(self) -> Iterator[Touched]:
        """What all backward passes since the last call leave. No row is in two of them.

        Collective where there are replicas, and then in several chunks.
        """
        if self.replicas is not None:
            yield from (Touched(Lookups(rows), grads, distinct=True) for rows, grads in self.replicas.chunks())
            return
        touched, self.touched = self.touched, []
        if touched:
            yield touched[0] if len(touched) == 1 else self._added_up(touched)
            for one in touched:
                if one.held is not None:
                    one.held.done(moved=True)

    def forget(self) -> None:
        """Drop the gradients since the last step. Waits for what is under way."""
        self.touched = []
        if self.replicas is not None:
            self.replicas.drop()

    def track_updates(self) -> None:
        """From now on. Rows in slots of a cache, and copies that average all their weights, are not tracked."""
        if self.cached is None and self.copies is None:
            self.updated = torch.zeros(self.rows, dtype=torch.bool, device=self.weights.model.device)

    def note_updated(self, lookups: Lookups) -> None:
        """A step updates the rows of `lookups`."""
        if self.updated is None:
            return
        if lookups.first_rows is None or self.updated.device.type != "cpu":
            _set(self.updated, lookups.rows())
            return
        assert lookups.offsets is not None
        ends = lookups.offsets[:: lookups.samples].tolist() if lookups.samples else [0] * (lookups.features + 1)
        for first_row, begin, stop in zip(lookups.first_rows.tolist(), ends, ends[1:]):
            _set(self.updated[first_row:], lookups.ids[begin:stop])

    def touch(self, touched: Touched) -> None:
        """What a backward pass leaves. Where there are replicas, its average over them starts now."""
        if self.replicas is None:
            self.touched.append(touched)
        elif self.replicas.adds_up:
            self.replicas.add(touched.lookups, touched.grad)
        else:
            self.replicas.start(*self.summed(touched))

    def summed(self, touched: Touched) -> tuple[torch.Tensor, torch.Tensor]:
        """Distinct rows [U] in rising order. For each the sum of its gradients in FP32 [U, D], in the order of its ids."""
        if touched.distinct:
            return touched.lookups.ids, touched.grad
        lookups = touched.lookups
        if self.rows < 2**31:
            lookups = replace(lookups, ids=lookups.ids.int())  # sorts in half the time
        return summed(lookups, touched.grad, self.width)

    def _added_up(self, touched: list[Touched]) -> Touched:
        """Gradients of several backward passes (accumulation) as one."""
        rows, grads = (torch.cat(parts) for parts in zip(*(self.summed(one) for one in touched)))
        return Touched(Lookups(rows), grads)


class _LookUp(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx, anchor: torch.Tensor, batch: TableBatch, ids: torch.Tensor, offsets: torch.Tensor, batch_size: int, held: Held | None
    ) -> torch.Tensor:
        features, offsets, weight = len(batch.feature_offsets), offsets.to(torch.int64), batch.weights.model
        ctx.batch, ctx.held = batch, held
        if batch.managed is not None:
            ctx.lookups = Lookups(ids) if batch.mode == "none" else Lookups(ids, offsets, features, mode=batch.mode)
            return batch.managed.look_up(ctx.lookups).to(batch.out_dtype)
        if batch.mode != "none":
            ctx.lookups = Lookups(ids, offsets, features, batch.feature_offsets, mode=batch.mode)
            return kernels.bags(weight, ctx.lookups, batch.out_dtype)
        of_feature = offsets[::batch_size] if batch_size else offsets.new_zeros(features + 1)
        base = torch.repeat_interleave(batch.feature_offsets, of_feature.diff(), output_size=ids.numel())
        ctx.lookups = Lookups(base.add_(ids))
        return kernels.rows(weight, ctx.lookups.ids, batch.out_dtype)

    @staticmethod
    def backward(ctx, grad: torch.Tensor):
        ctx.batch.touch(Touched(ctx.lookups, grad, held=ctx.held))
        return None, None, None, None, None, None


def _set(bits: torch.Tensor, rows: torch.Tensor) -> None:
    """NumPy does it several times as fast as torch on a CPU."""
    if bits.device.type == "cpu":
        bits.numpy()[rows.numpy()] = True
    else:
        bits[rows.long()] = True
