"""Looked-up columns to the ranks whose samples want them (`spread`) and their gradients back (`collect`), in one call. It is issued here.
The waiting is left to others.

Shapes: R ranks, B samples of one rank, C columns of all ranks, O of this rank's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist


@dataclass(frozen=True)
class UnderWay:
    """`works` to wait for, and then `parts`, whose columns lie side by side."""

    works: list[Any]
    parts: list[torch.Tensor]

    def wait(self) -> list[torch.Tensor]:
        for work in self.works:
            work.wait()
        return self.parts

    def joined(self) -> torch.Tensor:
        """Once everything has arrived."""
        parts = self.wait()
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


@dataclass(frozen=True)
class AllToAll:
    """`columns`: how many each rank of `group` looks up. Where none does, nothing is issued."""

    group: dist.ProcessGroup
    columns: tuple[int, ...]

    @property
    def own(self) -> int:
        """O."""
        return self.columns[self.group.rank()]

    def spread(self, looked_up: torch.Tensor) -> UnderWay:
        """[R * B, O], rank after rank -> parts that make [B, C]."""
        samples = len(looked_up) // len(self.columns)
        taken = looked_up.new_empty(samples * sum(self.columns))
        parts = [part.view(samples, -1) for part in taken.split(self._sizes(samples)) if len(part)]
        return self._issue(taken, looked_up.reshape(-1), self._sizes(samples), self._even(samples), parts or [taken.view(samples, 0)])

    def collect(self, grads: torch.Tensor) -> UnderWay:
        """[B, C] -> [R * B, O]."""
        samples = len(grads)
        sent = torch.cat([part.reshape(-1) for part in grads.split(self.columns, dim=1)])
        taken = grads.new_empty(samples * len(self.columns), self.own)
        return self._issue(taken.view(-1), sent, self._even(samples), self._sizes(samples), [taken])

    def _issue(self, taken: torch.Tensor, sent: torch.Tensor, take: list[int], send: list[int], parts: list[torch.Tensor]) -> UnderWay:
        if not any(self.columns):
            return UnderWay([], parts)
        return UnderWay([dist.all_to_all_single(taken, sent, take, send, group=self.group, async_op=True)], parts)

    def _sizes(self, samples: int) -> list[int]:
        """Elements of each rank's columns."""
        return [samples * columns for columns in self.columns]

    def _even(self, samples: int) -> list[int]:
        """Elements of this rank's columns for each rank's samples."""
        return [samples * self.own] * len(self.columns)
