"""Our exchange of pooled rows in place of TorchRec's: the same collectives, bytes and bits in fewer calls of Python."""

from __future__ import annotations

from torch import nn

from recsys_lab.executor.all_to_all import AllToAll
from recsys_lab.executor.formats import WireFormats
from recsys_lab.executor.row_exchange import PooledExchange, PooledExchanges, ReduceScatter
from recsys_lab.executor.torch_private import pooled_callbacks, pooled_collectives


def in_place_of(exchange: nn.Module, formats: WireFormats) -> nn.Module:
    """Our exchange for TorchRec's. An exchange of a kind that we do not have is returned as it is."""
    collectives = pooled_collectives(exchange)
    if not collectives:
        return exchange
    dists = [ReduceScatter(group) if columns is None else AllToAll(group, tuple(columns)) for group, columns in collectives]
    return PooledExchanges([PooledExchange(one, formats) for one in dists if one.group.size() > 1], pooled_callbacks(exchange))
