"""The calls of each way to exchange, there (`spread`) and back (`collect`). Each issues its collectives and leaves the waiting to others.

Shapes: R ranks, B samples of one rank, C columns of all tables, O of this rank's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.distributed as dist

from recsys_lab.schemes.whole.execute.pieces import Pieces


@dataclass(frozen=True)
class UnderWay:
    """`works` to wait for, and then `parts`, whose columns lie side by side."""

    works: list[Any]
    parts: list[torch.Tensor]

    def wait(self) -> None:
        for work in self.works:
            work.wait()


class Way(Protocol):
    """One way to exchange."""

    def spread(self, looked_up: torch.Tensor) -> UnderWay:
        """[R * B, O], rank after rank -> parts that make [B, C]."""

    def collect(self, grads: torch.Tensor) -> UnderWay:
        """[B, C] -> parts that make [R * B, O]."""


@dataclass(frozen=True)
class Scatters:
    """A scatter of each piece from its root, and a gather of its gradient there."""

    group: dist.ProcessGroup
    pieces: Pieces

    def spread(self, looked_up: torch.Tensor) -> UnderWay:
        rank, ranks = self.group.rank(), self.group.size()
        own = iter(looked_up.split(self.pieces.of(rank), dim=1)) if looked_up.shape[1] else iter(())
        works, parts = [], []
        for root, width in zip(self.pieces.roots, self.pieces.widths):
            taken = looked_up.new_empty(len(looked_up) // ranks, width)
            given = list(next(own).contiguous().chunk(ranks)) if root == rank else None
            works.append(dist.scatter(taken, given, group=self.group, group_src=root, async_op=True))
            parts.append(taken)
        return UnderWay(works, parts)

    def collect(self, grads: torch.Tensor) -> UnderWay:
        rank, ranks = self.group.rank(), self.group.size()
        works, parts = [], []
        for root, part in zip(self.pieces.roots, grads.split(self.pieces.widths, dim=1)):
            taken = None
            if root == rank:
                parts.append(grads.new_empty(len(grads) * ranks, part.shape[1]))
                taken = list(parts[-1].chunk(ranks))
            works.append(dist.gather(part.contiguous(), taken, group=self.group, group_dst=root, async_op=True))
        return UnderWay(works, parts or [grads.new_empty(len(grads) * ranks, 0)])


@dataclass(frozen=True)
class AllToAll:
    """All pieces in one call."""

    group: dist.ProcessGroup
    pieces: Pieces

    def spread(self, looked_up: torch.Tensor) -> UnderWay:
        samples, columns = len(looked_up) // self.group.size(), self._columns
        taken = looked_up.new_empty(samples * sum(columns))
        works = [self._exchange(taken, looked_up.reshape(-1), [samples * c for c in columns], self._even(looked_up.numel()))]
        return UnderWay(works, [part.view(samples, -1) for part in taken.split([samples * c for c in columns]) if len(part)])

    def collect(self, grads: torch.Tensor) -> UnderWay:
        samples, columns = len(grads), self._columns
        sent = torch.cat([part.reshape(-1) for part in grads.split(columns, dim=1)])
        taken = grads.new_empty(samples * self.group.size(), columns[self.group.rank()])
        return UnderWay([self._exchange(taken.view(-1), sent, self._even(taken.numel()), [samples * c for c in columns])], [taken])

    def _exchange(self, taken: torch.Tensor, given: torch.Tensor, to_take: list[int], to_give: list[int]) -> Any:
        return dist.all_to_all_single(taken, given, to_take, to_give, group=self.group, async_op=True)

    @property
    def _columns(self) -> list[int]:
        return [sum(self.pieces.of(rank)) for rank in range(self.group.size())]

    def _even(self, elements: int) -> list[int]:
        return [elements // self.group.size()] * self.group.size()


def way_of(exchange: str, group: dist.ProcessGroup, pieces: Pieces) -> Way:
    """`exchange`: all_to_all, scatter_list or fused_scatter. `pieces`: one a table."""
    if exchange == "all_to_all":
        return AllToAll(group, pieces)
    return Scatters(group, pieces if exchange == "scatter_list" else pieces.fused)
