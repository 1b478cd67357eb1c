"""The shards that a rank holds, looked up and updated together. Plain PyTorch, the same on CPU and GPU.

Shards of equal width lie one above the other in one matrix, so that a look-up is one `embedding_bag` (or, of sequences, one
`embedding`) for all of them and an update one sort. The backward pass writes no gradient of the weights: it keeps the ids and the
gradient of what was looked up, and the optimizer turns them into the summed gradient of each touched row. So nothing as large as
a table is ever made, and a row that is not in the batch cannot move. Only of rows that several ranks hold alike is there a whole
gradient, which they average (`replicas`).

Shapes: B samples, F features, D width of a shard, R rows of all shards together, N ids, U distinct ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from recsys_lab.distributed.replicas import ReplicaGradients

#: Rows are filled in pieces of about this many elements, so that a big table is never made twice.
FILL_ELEMENTS = 1 << 24


@dataclass(frozen=True)
class HeldShard:
    """Rows [row_start, row_stop) x columns [col_start, col_stop) of a table, held by this rank at `offset` in its batch."""

    table: str
    row_start: int
    row_stop: int
    col_start: int
    col_stop: int
    features: int  # how many features of the batch read it
    offset: int

    @property
    def rows(self) -> int:
        return self.row_stop - self.row_start


@dataclass
class Touched:
    """What one backward pass leaves for the optimizer. `ids` number the rows of the batch's matrix."""

    ids: torch.Tensor  # [N]
    source: torch.Tensor | None  # [N]: the row of `grad` that each id takes its gradient from; None: its own, as in a sequence
    grad: torch.Tensor  # [B * F, D] of pooled rows, [N, D] of a sequence's


class TableBatch:
    """Shards of one width, one number format and one pooling (`mode` sum, mean or none), in the order of the features that read them.

    `replicas` is the process group that holds the same shards (data parallelism), or None.
    """

    def __init__(
        self,
        shards: list[HeldShard],
        width: int,
        dtype: torch.dtype,
        mode: str,
        device: torch.device,
        replicas: torch.distributed.ProcessGroup | None = None,
    ):
        self.shards, self.mode = shards, mode
        self.weight = torch.empty(sum(s.rows for s in shards), width, dtype=dtype, device=device)
        self.replicas = None if replicas is None else ReplicaGradients(replicas, len(self.weight), width, device)
        self.feature_offsets = torch.tensor([s.offset for s in shards for _ in range(s.features)], dtype=torch.int64, device=device)
        self.touched: list[Touched] = []
        # Its gradient is never read: it makes autograd call our backward, also on a rank without a single id.
        self._anchor = torch.zeros((), device=device, requires_grad=True)

    def view(self, tensor: torch.Tensor, shard: HeldShard) -> torch.Tensor:
        """The rows of `shard` in a matrix or vector laid out like the weights."""
        return tensor[shard.offset : shard.offset + shard.rows]

    def fill(self, initial: Callable[[str, int, int, int, int], torch.Tensor]) -> None:
        """Set the weights from `initial(table, row_start, row_stop, col_start, col_stop)`, a piece of rows at a time."""
        for shard in self.shards:
            rows = max(1, FILL_ELEMENTS // self.weight.shape[1])
            for start in range(shard.row_start, shard.row_stop, rows):
                stop = min(start + rows, shard.row_stop)
                begin = shard.offset + start - shard.row_start
                self.weight[begin : begin + stop - start] = initial(shard.table, start, stop, shard.col_start, shard.col_stop)

    def look_up(self, ids: torch.Tensor, offsets: torch.Tensor, batch_size: int) -> torch.Tensor:
        """Rows in FP32 for `ids` [N], feature by feature, and `offsets` [F * B + 1]: pooled [B, F * D], or [N, D] under mode none."""
        return _LookUp.apply(self._anchor, self, ids, offsets, batch_size)

    def gradients(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Distinct rows [U] in rising order and their summed gradients [U, D], in FP32, of all backward passes since the last call.

        Collective where there are replicas, and then in several chunks.
        """
        if self.replicas is not None:
            yield from self.replicas.chunks()
            return
        touched, self.touched = self.touched, []
        parts = [_sum_rows(t) for t in touched]
        if parts:
            yield parts[0] if len(parts) == 1 else _merge(parts)

    def forget(self) -> None:
        """Drop the gradients since the last step; waits for what is under way."""
        self.touched = []
        if self.replicas is not None:
            self.replicas.drop()

    def touch(self, touched: Touched) -> None:
        """What a backward pass leaves. Where there are replicas, its average over them starts now."""
        if self.replicas is None:
            self.touched.append(touched)
        else:
            self.replicas.start(*_sum_rows(touched))


class _LookUp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor: torch.Tensor, batch: TableBatch, ids: torch.Tensor, offsets: torch.Tensor, batch_size: int) -> torch.Tensor:
        features, width = len(batch.feature_offsets), batch.weight.shape[1]
        offsets = offsets.to(torch.int64)
        of_feature = offsets[::batch_size] if batch_size else offsets.new_zeros(features + 1)
        base = torch.repeat_interleave(batch.feature_offsets, of_feature.diff(), output_size=ids.numel())
        ids = base.add_(ids)
        starts = offsets[:-1]
        ctx.batch, ctx.shape = batch, (features, batch_size, width)
        ctx.save_for_backward(ids, starts)
        if batch.mode == "none":
            return F.embedding(ids, batch.weight).float()
        pooled = F.embedding_bag(ids, batch.weight, starts, mode=batch.mode).float()
        return pooled.view(features, batch_size, width).transpose(0, 1).reshape(batch_size, features * width)

    @staticmethod
    def backward(ctx, grad: torch.Tensor):
        features, batch_size, width = ctx.shape
        ids, starts = ctx.saved_tensors
        if ctx.batch.weight.shape[0] < 2**31:
            ids = ids.int()  # sorts in half the time
        if ctx.batch.mode == "none":
            ctx.batch.touch(Touched(ids, None, grad.float()))
            return None, None, None, None, None
        pooled = grad.float().reshape(batch_size * features, width)
        lengths = torch.diff(starts, append=starts.new_full((1,), ids.numel()))
        # Bags are numbered feature by feature, rows of the gradient sample by sample.
        rows = torch.arange(batch_size * features, device=ids.device).view(batch_size, features).t().reshape(-1)
        if ctx.batch.mode == "mean":
            pooled = pooled / lengths.view(features, batch_size).t().reshape(-1, 1).clamp(min=1)
        ctx.batch.touch(Touched(ids, torch.repeat_interleave(rows, lengths, output_size=ids.numel()), pooled))
        return None, None, None, None, None


def _sum_rows(touched: Touched) -> tuple[torch.Tensor, torch.Tensor]:
    """Distinct ids in rising order, and for each the sum of the gradients that it takes.

    The order of a sum is that of `ids`, so the result is the same bits every time.
    """
    ids, order = touched.ids.sort(stable=True)
    begins = torch.ones_like(ids, dtype=torch.bool)
    torch.ne(ids[1:], ids[:-1], out=begins[1:])
    begins = begins.nonzero().squeeze(1)
    source = order if touched.source is None else touched.source.index_select(0, order)
    return ids[begins].long(), F.embedding_bag(source, touched.grad, begins, mode="sum")


def _merge(parts: list[tuple[torch.Tensor, torch.Tensor]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients of several backward passes (accumulation) as one."""
    rows, grads = torch.cat([rows for rows, _ in parts]), torch.cat([grads for _, grads in parts])
    return _sum_rows(Touched(rows, None, grads))
