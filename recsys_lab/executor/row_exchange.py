"""The pooled rows of a collection's tables on their way to the samples that want them, and their gradients in the backward pass.

An exchange is under way from the look-up until somebody reads its rows, and back again. Two autograd functions, as in TorchRec: `_Start`
issues and `_Finish` waits. In the backward pass `_Finish` issues and `_Start` waits. What is computed between them overlaps. Blocking, each
waits for what it issues. Each way to exchange has a call there (`spread`) and back (`collect`), and leaves the waiting to others.

On CPUs this takes the place of TorchRec's own (`on_cpu`): the same collectives, bytes and bits.

Shapes: R ranks, B samples of one rank, C columns of all tables, O of this rank's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import nn
from torchrec.distributed.sharding.grid_sharding import GridPooledEmbeddingDist
from torchrec.distributed.sharding.rw_sharding import RwPooledEmbeddingDist
from torchrec.distributed.sharding.tw_sharding import TwPooledEmbeddingDist
from torchrec.distributed.sharding.twrw_sharding import TwRwPooledEmbeddingDist
from torchrec.distributed.types import Awaitable, NoWait

from recsys_lab.executor.all_to_all import AllToAll, UnderWay
from recsys_lab.executor.formats import WireFormats


class Way(Protocol):
    """How rows travel in a group. All ranks have B samples each."""

    @property
    def group(self) -> dist.ProcessGroup: ...

    def spread(self, looked_up: torch.Tensor) -> UnderWay:
        """[R * B, O], rank after rank -> parts that make [B, C]."""

    def collect(self, grads: torch.Tensor) -> UnderWay:
        """[B, C] -> parts that make [R * B, O]."""


@dataclass(frozen=True)
class Sums:
    """Each rank of `group` holds some rows of every table, so its columns are all columns. Parts of a bag are added up."""

    group: dist.ProcessGroup

    def spread(self, looked_up: torch.Tensor) -> UnderWay:
        """[R * B, C], rank after rank -> [B, C]."""
        own = looked_up.new_empty(len(looked_up) // self.group.size(), looked_up.shape[1])
        return UnderWay([dist.reduce_scatter_tensor(own, looked_up, group=self.group, async_op=True)], [own])

    def collect(self, grads: torch.Tensor) -> UnderWay:
        """[B, C] -> [R * B, C]."""
        all_of_them = grads.new_empty(len(grads) * self.group.size(), grads.shape[1])
        return UnderWay([dist.all_gather_into_tensor(all_of_them, grads, group=self.group, async_op=True)], [all_of_them])


class PooledExchange(nn.Module):
    """[R * B, columns of this rank's tables] -> [B, columns of all tables], rank after rank. All ranks have B samples each.

    Gradients are divided by R in the backward pass. Behind the exchange they are of the mean over the ranks' losses.
    """

    def __init__(self, way: Way, formats: WireFormats, overlap: bool = True):
        super().__init__()
        self.way, self.formats, self.overlap = way, formats, overlap

    def forward(self, looked_up: torch.Tensor, context: object = None) -> Awaitable[torch.Tensor]:
        return _Flight(self, looked_up)


class InTurn(nn.Module):
    """One exchange after another. `then`: what is done with the rows where they arrive."""

    def __init__(self, stages: Sequence[PooledExchange], then: Sequence[Callable[[torch.Tensor], torch.Tensor]]):
        super().__init__()
        self.stages, self.then = nn.ModuleList(stages), list(then)

    def forward(self, looked_up: torch.Tensor, context: object = None) -> Awaitable[torch.Tensor]:
        waiting: Awaitable[torch.Tensor] = NoWait(looked_up)
        for stage in self.stages:
            waiting = stage(waiting.wait())
        waiting.callbacks.extend(self.then)
        return waiting


def on_cpu(theirs: nn.Module, formats: WireFormats) -> nn.Module:
    """What exchanges as `theirs`, one of TorchRec's exchanges of pooled rows, does."""
    known: Any = theirs
    ways: list[Way]
    match theirs:
        case TwPooledEmbeddingDist():
            ways = [AllToAll(known._pg, tuple(known._dim_sum_per_rank))]
        case RwPooledEmbeddingDist():
            ways = [Sums(known._pg)]
        case TwRwPooledEmbeddingDist() | GridPooledEmbeddingDist():
            ways = [Sums(known._intra_pg), AllToAll(known._cross_pg, tuple(known._dim_sum_per_node))]
        case _:
            return theirs
    stages = [PooledExchange(way, formats) for way in ways if way.group.size() > 1]
    return InTurn(stages, getattr(theirs, "_callbacks", None) or [])


class _Flight(Awaitable[torch.Tensor]):
    """One batch's exchange, there and then back."""

    def __init__(self, exchange: PooledExchange, looked_up: torch.Tensor):
        super().__init__()
        self.exchange, self.under_way = exchange, UnderWay([], [])
        self._started = _Start.apply(self, looked_up)

    def _wait_impl(self) -> torch.Tensor:
        started = self._started
        del self._started  # it leads back to this flight
        return _Finish.apply(self, started)

    def issue(self, under_way: UnderWay) -> None:
        self.under_way = under_way if self.exchange.overlap else UnderWay([], under_way.wait())

    def arrived(self) -> torch.Tensor:
        under_way, self.under_way = self.under_way, UnderWay([], [])
        return under_way.joined()


class _Start(torch.autograd.Function):
    @staticmethod
    def forward(ctx, flight: _Flight, looked_up: torch.Tensor) -> torch.Tensor:
        ctx.flight = flight
        exchange = flight.exchange
        flight.issue(exchange.way.spread(exchange.formats.forward.encode(looked_up.contiguous())))
        return looked_up.new_zeros(1)

    @staticmethod
    def backward(ctx, _: torch.Tensor):
        exchange = ctx.flight.exchange
        grads = exchange.formats.backward.decode(ctx.flight.arrived())
        return None, grads.div_(exchange.way.group.size())


class _Finish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, flight: _Flight, started: torch.Tensor) -> torch.Tensor:
        ctx.flight, ctx.started = flight, started
        return flight.exchange.formats.forward.decode(flight.arrived())

    @staticmethod
    def backward(ctx, grads: torch.Tensor):
        exchange = ctx.flight.exchange
        ctx.flight.issue(exchange.way.collect(exchange.formats.backward.encode(grads.contiguous())))
        return None, torch.zeros_like(ctx.started)
