"""Steps c, d and f of SPTT: the peer permute of rows, the exchange inside a site, the exchange between peers.

Each exchange takes, in its backward pass, the mean over its group of what comes back. So behind step f gradients are of the mean over the
peers' losses, and behind step d of the mean over all ranks'.

Shapes: B samples a rank, S sites, M ranks of a site, C columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist

from recsys_lab.executor.formats import WireFormats


def peer_order(rows: torch.Tensor, sites: int, ranks: int) -> torch.Tensor:
    """Step c. [S * M * B, C] in the order of the ranks -> [M * S * B, C] in peer order."""
    if sites == 1 or ranks == 1:
        return rows
    return rows.view(sites, ranks, len(rows) // (sites * ranks), -1).transpose(0, 1).reshape(rows.shape) if rows.numel() else rows


@dataclass(frozen=True)
class Inside:
    """What the ranks of a site exchange. `whole[m]`: columns of whole rows that place m looks up; `parts`: columns of row blocks that every
    place looks up its part of; `counts`: how many of their bags are to be divided by their length.
    """

    group: dist.ProcessGroup
    place: int
    whole: tuple[int, ...]
    parts: int
    counts: int
    formats: WireFormats


def inside_site(inside: Inside, rows: torch.Tensor, counts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Step d. `rows` [M * P, C of this rank] and `counts` [M * P, counts] in peer order, where P = S * B are the samples of one place.

    -> for the samples of this rank's place: whole rows [P, sum of all places' columns] by an all-to-all, the sums of parts [P, parts] and
    of counts [P, counts] by a reduce-scatter. Both are under way at the same time, forward and backward.
    """
    return _Inside.apply(inside, rows, counts)


class _Inside(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inside: Inside, rows: torch.Tensor, counts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        places, own = len(inside.whole), inside.whole[inside.place]
        samples = rows.shape[0] // places
        ctx.inside, ctx.samples = inside, samples
        codec = inside.formats.forward
        found = rows.new_empty(samples * sum(inside.whole), dtype=codec.dtype)
        summed = rows.new_empty(samples, inside.parts + inside.counts, dtype=codec.dtype)
        under_way = []
        if len(found):
            taken = [samples * columns for columns in inside.whole]
            sent = codec.encode(rows[:, :own].contiguous().view(-1))
            under_way.append(dist.all_to_all_single(found, sent, taken, [samples * own] * places, group=inside.group, async_op=True))
        if inside.parts:
            parts = codec.encode(torch.cat([rows[:, own:], counts], dim=1))
            under_way.append(dist.reduce_scatter_tensor(summed, parts, group=inside.group, async_op=True))
        for work in under_way:
            work.wait()
        found, summed = codec.decode(found), codec.decode(summed)
        by_place = [part.view(samples, -1) for part in found.split([samples * columns for columns in inside.whole]) if len(part)]
        whole = torch.cat(by_place, dim=1) if by_place else rows.new_empty(samples, 0)
        parts, lengths = summed.split([inside.parts, inside.counts], dim=1)
        ctx.mark_non_differentiable(lengths)
        return whole, parts, lengths

    @staticmethod
    def backward(ctx, grad_whole: torch.Tensor, grad_parts: torch.Tensor, _: torch.Tensor):
        inside, samples = ctx.inside, ctx.samples
        places, own = len(inside.whole), inside.whole[inside.place]
        codec = inside.formats.backward
        whole = grad_parts.new_empty(places * samples, own, dtype=codec.dtype)
        parts = grad_parts.new_empty(places * samples, inside.parts, dtype=codec.dtype)
        under_way = []
        if sum(inside.whole):
            sent = codec.encode(torch.cat([part.reshape(-1) for part in (grad_whole / places).split(list(inside.whole), dim=1)]))
            returned = [samples * columns for columns in inside.whole]
            taken = [samples * own] * places
            under_way.append(dist.all_to_all_single(whole.view(-1), sent, taken, returned, group=inside.group, async_op=True))
        if inside.parts:
            own_parts = codec.encode((grad_parts / places).contiguous())
            under_way.append(dist.all_gather_into_tensor(parts, own_parts, group=inside.group, async_op=True))
        for work in under_way:
            work.wait()
        return None, torch.cat([codec.decode(whole), codec.decode(parts)], dim=1), None


def between_peers(group: dist.ProcessGroup, rows: torch.Tensor, taken: Sequence[int], formats: WireFormats) -> list[torch.Tensor]:
    """Step f. `rows` [S * B, O of this site], peer after peer -> from each site s, for this rank's own samples, [B, taken[s]]."""
    samples = rows.shape[0] // len(taken)
    flat = _BetweenPeers.apply(group, rows, [samples * columns for columns in taken], formats)
    return [part.view(samples, -1) for part in flat.split([samples * columns for columns in taken])]


class _BetweenPeers(torch.autograd.Function):
    @staticmethod
    def forward(ctx, group: dist.ProcessGroup, rows: torch.Tensor, taken: list[int], formats: WireFormats) -> torch.Tensor:
        ctx.group, ctx.taken, ctx.shape, ctx.codec = group, taken, rows.shape, formats.backward
        found = rows.new_empty(sum(taken), dtype=formats.forward.dtype)
        sent = formats.forward.encode(rows.contiguous().view(-1))
        dist.all_to_all_single(found, sent, taken, [rows.numel() // len(taken)] * len(taken), group=group)
        return formats.forward.decode(found)

    @staticmethod
    def backward(ctx, grad: torch.Tensor):
        peers = len(ctx.taken)
        returned = grad.new_empty(ctx.shape, dtype=ctx.codec.dtype)
        own = [returned.numel() // peers] * peers
        sent = ctx.codec.encode((grad / peers).contiguous())
        dist.all_to_all_single(returned.view(-1), sent, own, ctx.taken, group=ctx.group)
        return None, ctx.codec.decode(returned), None, None
