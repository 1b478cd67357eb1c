"""Steps c, d and f of SPTT: the peer permute of rows, the exchange inside a site, the exchange between peers.

Each exchange takes, in its backward pass, the mean over its group of what comes back. So behind step f gradients are of the mean over the
peers' losses. Behind step d they are of the mean over all ranks' losses.

Shapes: B samples a rank, S sites, M ranks of a site, P samples of a rank's peers, C columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist

from recsys_lab.executor.all_to_all import AllToAll
from recsys_lab.executor.formats import Codec, WireFormats
from recsys_lab.schemes.towers.layout import Layout


def peer_order(rows: torch.Tensor, sites: int, ranks: int) -> torch.Tensor:
    """Step c. [S * M * B, C] in the order of the ranks -> [M * S * B, C] in peer order."""
    if sites == 1 or ranks == 1:
        return rows
    return rows.view(sites, ranks, len(rows) // (sites * ranks), -1).transpose(0, 1).reshape(rows.shape) if rows.numel() else rows


@dataclass(frozen=True)
class Inside:
    """What the ranks of a site exchange: columns of `whole` rows that each place looks up; `parts`: columns of row blocks that every place
    looks up its part of; `counts`: how many of their bags are to be divided by their length.
    """

    whole: AllToAll
    parts: int
    counts: int
    formats: WireFormats


class InsideSite(torch.autograd.Function):
    """Step d. `rows` [M * P, C of this rank] and `counts` [M * P, counts] are in peer order. P are the samples of one place.

    -> for the samples of this rank's place: whole rows [P, sum of all places' columns] by an all-to-all. The sums of parts [P, parts] and
    of counts [P, counts] come by a reduce-scatter. Both are under way at the same time, forward and backward.
    """

    @staticmethod
    def forward(ctx, inside: Inside, rows: torch.Tensor, counts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        ctx.inside, whole, codec = inside, inside.whole, inside.formats.forward
        pending, of_sums = whole.forward_dist(rows[:, : whole.own].contiguous(), codec), codec.of_sums
        summed = rows.new_empty(len(rows) // len(whole.columns), inside.parts + inside.counts, dtype=of_sums.dtype)
        if inside.parts:
            parts = of_sums.encode(torch.cat([rows[:, whole.own :], counts], dim=1))
            pending.works.append(dist.reduce_scatter_tensor(summed, parts, group=whole.group, async_op=True))
        arrived = pending.joined()
        parts, lengths = of_sums.decode(summed).split([inside.parts, inside.counts], dim=1)
        ctx.mark_non_differentiable(lengths)
        return arrived, parts, lengths

    @staticmethod
    def backward(ctx, grad_whole: torch.Tensor, grad_parts: torch.Tensor, _: torch.Tensor):
        inside, whole, codec = ctx.inside, ctx.inside.whole, ctx.inside.formats.backward
        ranks = len(whole.columns)
        pending, of_sums = whole.backward_dist(grad_whole / ranks, codec), codec.of_sums
        parts = grad_parts.new_empty(ranks * len(grad_parts), inside.parts, dtype=of_sums.dtype)
        if inside.parts:
            own_parts = of_sums.encode((grad_parts / ranks).contiguous())
            pending.works.append(dist.all_gather_into_tensor(parts, own_parts, group=whole.group, async_op=True))
        return None, torch.cat([pending.joined(), of_sums.decode(parts)], dim=1), None


@dataclass(frozen=True)
class Peers(AllToAll):
    """What the ranks of one of `Sites.exchanges` exchange. `columns`: of those that serve this rank, one of each site; 0 of the others.

    `serves`: which of them this rank serves. `width`: O of its site. `sharing`: for each site how many ranks' samples one of its ranks
    works on, and so over how many losses gradients there are the mean.
    """

    serves: tuple[bool, ...]
    width: int
    sharing: tuple[int, ...]

    @property
    def own(self) -> int:
        return self.width

    @property
    def receivers(self) -> int:
        return sum(self.serves)

    def _even(self, samples: int, codec: Codec) -> list[int]:
        return [samples * codec.width(self.width) * serves for serves in self.serves]


def peers_of(layout: Layout, group: dist.ProcessGroup, outputs: Sequence[int]) -> Peers:
    """`outputs`: columns that each site hands on."""
    sites, members = layout.sites, layout.sites.exchange_of(layout.rank)
    served = {rank: set(sites.peers_at(sites.site_of_rank(rank), sites.place_of_rank(rank))) for rank in members}
    columns = tuple(outputs[sites.site_of_rank(rank)] * (layout.rank in served[rank]) for rank in members)
    serves = tuple(rank in served[layout.rank] for rank in members)
    return Peers(group, columns, serves, outputs[layout.site], tuple(map(sites.peers_of, range(sites.count))))


class BetweenPeers(torch.autograd.Function):
    """Step f. `rows` [P, O of this site], peer after peer -> from each site, for this rank's own samples, [B, O of that site]."""

    @staticmethod
    def forward(ctx, peers: Peers, rows: torch.Tensor, formats: WireFormats) -> tuple[torch.Tensor, ...]:
        ctx.peers, ctx.codec = peers, formats.backward
        return tuple(peers.forward_dist(rows.contiguous(), formats.forward).decoded())

    @staticmethod
    def backward(ctx, *grads: torch.Tensor):
        sharing = ctx.peers.sharing
        if len(set(sharing)) == 1:
            joined = torch.cat(grads, dim=1).div_(sharing[0])
        else:
            joined = torch.cat([grad / ranks for grad, ranks in zip(grads, sharing, strict=True)], dim=1)
        return None, ctx.peers.backward_dist(joined, ctx.codec).joined(), None
