"""Whole tables and column shards form a TorchRec collection.

Its exchange of pooled rows may be replaced by that of the CPU DLRM paper (Kalamkar et al. 2020, sections IV-B and IV-C).

    scatter_list    a scatter a table, and a gather of its gradient
    fused_scatter   a scatter a rank, of all its tables' columns at once
    all_to_all      one call

An exchange is under way from the look-up until somebody reads its rows, and back again. Two autograd functions, as in TorchRec: `_Start`
issues and `_Finish` waits. In the backward pass `_Finish` issues and `_Start` waits. What is computed between them overlaps. Blocking, each
waits for what it issues. Each way to exchange has a call there (`spread`) and back (`collect`), and leaves the waiting to others.

Shapes: R ranks, B samples of one rank, C columns of all tables, O of this rank's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torchrec.distributed.types import Awaitable

from recsys_lab.executor.all_to_all import AllToAll, UnderWay
from recsys_lab.executor.collection import ShardedBags, run
from recsys_lab.executor.execution import Execution, Part, Request
from recsys_lab.executor.formats import WireFormats
from recsys_lab.executor.times import Timed
from recsys_lab.plan.scheme import ALL_TO_ALL, scheme_of
from recsys_lab.schemes.whole.placement import TABLE_WISE


@dataclass(frozen=True)
class Scatters:
    """A scatter of each piece from the rank that looks it up, its root. A gather brings its gradient back there.

    `pieces`: (root, columns), in the order of a sample's pooled row.
    """

    group: dist.ProcessGroup
    pieces: Sequence[tuple[int, int]]

    def spread(self, looked_up: torch.Tensor) -> UnderWay:
        """[R * B, O], rank after rank -> parts that make [B, C]."""
        rank, ranks = self.group.rank(), self.group.size()
        widths = [width for root, width in self.pieces if root == rank]
        own = iter(looked_up.split(widths, dim=1) if widths else ())
        works, parts = [], []
        for root, width in self.pieces:
            parts.append(looked_up.new_empty(len(looked_up) // ranks, width))
            chunks = list(next(own).contiguous().chunk(ranks)) if root == rank else None
            works.append(dist.scatter(parts[-1], chunks, group=self.group, group_src=root, async_op=True))
        return UnderWay(works, parts)

    def collect(self, grads: torch.Tensor) -> UnderWay:
        """[B, C] -> parts that make [R * B, O]."""
        rank, ranks = self.group.rank(), self.group.size()
        works, parts = [], []
        for (root, width), part in zip(self.pieces, grads.split([width for _, width in self.pieces], dim=1)):
            chunks = None
            if root == rank:
                parts.append(grads.new_empty(len(grads) * ranks, width))
                chunks = list(parts[-1].chunk(ranks))
            works.append(dist.gather(part.contiguous(), chunks, group=self.group, group_dst=root, async_op=True))
        return UnderWay(works, parts or [grads.new_empty(len(grads) * ranks, 0)])


def exchange_by(embeddings: Part, request: Request) -> None:
    """Has `embeddings` exchange its tables' pooled rows as the request says, if all lie whole on a rank.

    TorchRec's own is all_to_all with overlap.
    """
    if not isinstance(embeddings, ShardedBags) or TABLE_WISE not in embeddings._sharding_types:
        return
    if not all(scheme_of(placement).any_exchange for _, placement in request.placed):
        return
    at = embeddings._sharding_types.index(TABLE_WISE)
    group = embeddings._env.process_group
    assert group is not None
    if request.exchange != ALL_TO_ALL or not request.overlap:
        configs_of_rank = embeddings._embedding_shardings[at]._grouped_embedding_configs_per_rank
        tables = [[t.num_features() * t.local_cols for g in of_rank for t in g.embedding_tables] for of_rank in configs_of_rank]
        columns = [sum(own) for own in tables]
        pieces = [[width] for width in columns] if request.exchange == "fused_scatter" else tables
        scatters = [(rank, width) for rank, own in enumerate(pieces) for width in own if width]
        way = AllToAll(group, tuple(columns)) if request.exchange == ALL_TO_ALL else Scatters(group, scatters)
        embeddings._output_dists[at] = PooledExchange(way, request.overlap, request.formats)
    embeddings._output_dists[at] = Timed(embeddings._output_dists[at])


class PooledExchange(nn.Module):
    """[R * B, columns of this rank's tables] -> [B, columns of all tables], rank after rank. All ranks have B samples each.

    Gradients are divided by R in the backward pass. Behind the exchange they are of the mean over the ranks' losses.
    """

    def __init__(self, way: AllToAll | Scatters, overlap: bool, formats: WireFormats):
        super().__init__()
        self.way, self.overlap, self.formats = way, overlap, formats

    def forward(self, looked_up: torch.Tensor, context: object = None) -> Awaitable[torch.Tensor]:
        return _Flight(self, looked_up)


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


EXECUTION = Execution(run, finish=exchange_by)
