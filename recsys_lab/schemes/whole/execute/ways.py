"""The calls of each way to exchange the columns of whole tables, there (`spread`) and back (`collect`). Each issues its collectives and
leaves the waiting to others.

Shapes: R ranks, B samples of one rank, C columns of all tables, O of this rank's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
import torch.distributed as dist

from recsys_lab.executor.all_to_all import AllToAll, UnderWay
from recsys_lab.plan.scheme import ALL_TO_ALL


@dataclass(frozen=True)
class Scatters:
    """A scatter of each piece from the rank that looks it up, its root, and a gather of its gradient there.

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
            sent = list(next(own).contiguous().chunk(ranks)) if root == rank else None
            works.append(dist.scatter(parts[-1], sent, group=self.group, group_src=root, async_op=True))
        return UnderWay(works, parts)

    def collect(self, grads: torch.Tensor) -> UnderWay:
        """[B, C] -> parts that make [R * B, O]."""
        rank, ranks = self.group.rank(), self.group.size()
        works, parts = [], []
        for (root, width), part in zip(self.pieces, grads.split([width for _, width in self.pieces], dim=1)):
            taken = None
            if root == rank:
                parts.append(grads.new_empty(len(grads) * ranks, width))
                taken = list(parts[-1].chunk(ranks))
            works.append(dist.gather(part.contiguous(), taken, group=self.group, group_dst=root, async_op=True))
        return UnderWay(works, parts or [grads.new_empty(len(grads) * ranks, 0)])


Way: TypeAlias = AllToAll | Scatters


def way_of(exchange: str, group: dist.ProcessGroup, tables: Sequence[Sequence[int]]) -> Way:
    """`exchange`: all_to_all, scatter_list or fused_scatter. `tables`: by rank, the columns of each of its tables."""
    columns = [sum(own) for own in tables]
    if exchange == ALL_TO_ALL:
        return AllToAll(group, tuple(columns))
    pieces = enumerate(columns) if exchange == "fused_scatter" else ((rank, width) for rank, own in enumerate(tables) for width in own)
    return Scatters(group, [(rank, width) for rank, width in pieces if width])
