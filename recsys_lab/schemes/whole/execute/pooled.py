"""An exchange of pooled rows in place of TorchRec's: under way from the look-up until somebody reads its rows, and back again.

Two autograd functions, as in TorchRec: `_Start` issues and `_Finish` waits; in the backward pass `_Finish` issues and `_Start` waits. What
is computed between them overlaps. Blocking, each waits for what it issues.
"""

from __future__ import annotations

import torch
from torch import nn
from torchrec.distributed.types import Awaitable

from recsys_lab.executor.all_to_all import UnderWay
from recsys_lab.executor.execution import Part, Request
from recsys_lab.executor.formats import WireFormats
from recsys_lab.executor.times import Timed
from recsys_lab.executor.torchrec_parts import ShardedBags
from recsys_lab.plan.scheme import ALL_TO_ALL, scheme_of
from recsys_lab.schemes.whole.execute.ways import Way, way_of
from recsys_lab.schemes.whole.placement import TABLE_WISE


def exchange_by(embeddings: Part, request: Request) -> None:
    """Has `embeddings` exchange its tables' pooled rows as the request says, if all lie whole on a rank. all_to_all with overlap is
    TorchRec's.
    """
    if not isinstance(embeddings, ShardedBags) or TABLE_WISE not in embeddings._sharding_types:
        return
    if not all(scheme_of(placement).any_exchange for _, placement in request.placed):
        return
    at = embeddings._sharding_types.index(TABLE_WISE)
    group = embeddings._env.process_group
    assert group is not None
    if request.exchange != ALL_TO_ALL or not request.overlap:
        held = embeddings._embedding_shardings[at]._grouped_embedding_configs_per_rank
        tables = [[t.num_features() * t.local_cols for g in of_rank for t in g.embedding_tables] for of_rank in held]
        embeddings._output_dists[at] = PooledExchange(way_of(request.exchange, group, tables), request.overlap, request.formats)
    embeddings._output_dists[at] = Timed(embeddings._output_dists[at])


class PooledExchange(nn.Module):
    """[R * B, columns of this rank's tables] -> [B, columns of all tables], rank after rank; all ranks have B samples each.

    Gradients are divided by R on their way back: behind the exchange they are of the mean over the ranks' losses.
    """

    def __init__(self, way: Way, overlap: bool, formats: WireFormats):
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
