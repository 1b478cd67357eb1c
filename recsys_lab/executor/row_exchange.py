"""The exchange of pooled rows: to the ranks of their samples in the forward pass, of their gradients in the backward pass.

Two autograd functions share one exchange, as in TorchRec. In the forward pass `_Start` issues it and `_Finish` waits. In the backward pass
`_Finish` issues it and `_Start` waits. What is computed in between overlaps. Without overlap each waits for what it issues.

Shapes: R ranks, B samples of one rank, C columns of all ranks, O of this rank's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
import torch.distributed as dist
from torch import nn
from torchrec.distributed.types import Awaitable, NoWait

from recsys_lab.executor.all_to_all import PendingColumns
from recsys_lab.executor.formats import Codec, WireFormats


class PooledDist(Protocol):
    """How rows travel in a group: `AllToAll`, `ReduceScatter` or a scheme's own. All ranks have B samples each."""

    @property
    def group(self) -> dist.ProcessGroup: ...

    def forward_dist(self, looked_up: torch.Tensor, codec: Codec) -> PendingColumns:
        """[R * B, O], rank after rank -> parts that make [B, C]."""

    def backward_dist(self, grads: torch.Tensor, codec: Codec) -> PendingColumns:
        """[B, C] -> parts that make [R * B, O]."""


@dataclass(frozen=True)
class ReduceScatter:
    """Each rank of `group` holds some rows of every table, so O = C. Parts of a bag are added up."""

    group: dist.ProcessGroup

    def forward_dist(self, looked_up: torch.Tensor, codec: Codec) -> PendingColumns:
        """[R * B, C], rank after rank -> [B, C]."""
        sent = codec.of_sums.encode(looked_up)
        output = sent.new_empty(len(sent) // self.group.size(), sent.shape[1])
        return PendingColumns([dist.reduce_scatter_tensor(output, sent, group=self.group, async_op=True)], [output], codec.of_sums)

    def backward_dist(self, grads: torch.Tensor, codec: Codec) -> PendingColumns:
        """[B, C] -> [R * B, C]."""
        sent = codec.of_sums.encode(grads)
        output = sent.new_empty(len(sent) * self.group.size(), sent.shape[1])
        return PendingColumns([dist.all_gather_into_tensor(output, sent, group=self.group, async_op=True)], [output], codec.of_sums)


class PooledExchange(nn.Module):
    """[R * B, columns of this rank's tables] -> [B, columns of all tables], rank after rank. All ranks have B samples each.

    Gradients are divided by R in the backward pass. Before the exchange they are of each rank's loss, after it of the mean loss.
    """

    def __init__(self, pooled_dist: PooledDist, formats: WireFormats, overlap: bool = True):
        super().__init__()
        self.pooled_dist, self.formats, self.overlap = pooled_dist, formats, overlap

    def forward(self, looked_up: torch.Tensor, context: object = None) -> Awaitable[torch.Tensor]:
        return _PendingRows(self, looked_up)


class PooledExchanges(nn.Module):
    """One exchange after another. `callbacks`: what is done with the rows when they have arrived."""

    def __init__(self, stages: Sequence[PooledExchange], callbacks: Sequence[Callable[[torch.Tensor], torch.Tensor]]):
        super().__init__()
        self.stages, self.callbacks = nn.ModuleList(stages), list(callbacks)

    def forward(self, looked_up: torch.Tensor, context: object = None) -> Awaitable[torch.Tensor]:
        rows: Awaitable[torch.Tensor] = NoWait(looked_up)
        for stage in self.stages:
            rows = stage(rows.wait())
        rows.callbacks.extend(self.callbacks)
        return rows


class _PendingRows(Awaitable[torch.Tensor]):
    """The exchange of one batch: of its rows, later of their gradients."""

    def __init__(self, exchange: PooledExchange, looked_up: torch.Tensor):
        super().__init__()
        self.exchange = exchange
        self._pending: PendingColumns | None = None
        self._started = _Start.apply(self, looked_up)

    def _wait_impl(self) -> torch.Tensor:
        started = self._started
        del self._started  # it refers to this object
        return _Finish.apply(self, started)

    def issue(self, pending: PendingColumns) -> None:
        self._pending = pending if self.exchange.overlap else replace(pending, works=[], parts=pending.wait())

    def arrived(self) -> torch.Tensor:
        pending, self._pending = self._pending, None
        assert pending is not None
        return pending.joined()


class _Start(torch.autograd.Function):
    @staticmethod
    def forward(ctx, pending: _PendingRows, looked_up: torch.Tensor) -> torch.Tensor:
        ctx.pending = pending
        exchange = pending.exchange
        pending.issue(exchange.pooled_dist.forward_dist(looked_up.contiguous(), exchange.formats.forward))
        return looked_up.new_zeros(1)

    @staticmethod
    def backward(ctx, _: torch.Tensor):
        exchange = ctx.pending.exchange
        return None, ctx.pending.arrived().div_(exchange.pooled_dist.group.size())


class _Finish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, pending: _PendingRows, started: torch.Tensor) -> torch.Tensor:
        ctx.pending, ctx.started = pending, started
        return pending.arrived()

    @staticmethod
    def backward(ctx, grads: torch.Tensor):
        exchange = ctx.pending.exchange
        ctx.pending.issue(exchange.pooled_dist.backward_dist(grads.contiguous(), exchange.formats.backward))
        return None, torch.zeros_like(ctx.started)
