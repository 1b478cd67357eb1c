"""The all-to-all of looked-up columns: `forward_dist` to the ranks of their samples, `backward_dist` of their gradients.

Both only issue the collective. Callers wait.

Shapes: R ranks, B samples of one rank, C columns of all ranks, O of this rank's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist


@dataclass(frozen=True)
class PendingColumns:
    """`parts`, whose columns lie side by side. They are complete once the collectives `works` are."""

    works: list[Any]
    parts: list[torch.Tensor]

    def wait(self) -> list[torch.Tensor]:
        for work in self.works:
            work.wait()
        return self.parts

    def joined(self) -> torch.Tensor:
        """Waits, then returns all columns as one matrix."""
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

    @property
    def receivers(self) -> int:
        """How many ranks this one's columns go to."""
        return len(self.columns)

    def forward_dist(self, looked_up: torch.Tensor) -> PendingColumns:
        """[R * B, O], rank after rank -> parts that make [B, C]."""
        samples = len(looked_up) // self.receivers
        output = looked_up.new_empty(samples * sum(self.columns))
        parts = [part.view(samples, -1) for part in output.split(self._sizes(samples)) if len(part)]
        return self._issue(output, looked_up.reshape(-1), self._sizes(samples), self._even(samples), parts or [output.view(samples, 0)])

    def backward_dist(self, grads: torch.Tensor) -> PendingColumns:
        """[B, C] -> [R * B, O]."""
        samples = len(grads)
        sent = torch.cat([part.reshape(-1) for part in grads.split(self.columns, dim=1)])
        output = grads.new_empty(samples * self.receivers, self.own)
        return self._issue(output.view(-1), sent, self._even(samples), self._sizes(samples), [output])

    def _issue(
        self, output: torch.Tensor, sent: torch.Tensor, output_splits: list[int], input_splits: list[int], parts: list[torch.Tensor]
    ) -> PendingColumns:
        if not any(self.columns):
            return PendingColumns([], parts)
        return PendingColumns([dist.all_to_all_single(output, sent, output_splits, input_splits, group=self.group, async_op=True)], parts)

    def _sizes(self, samples: int) -> list[int]:
        """Elements of each rank's columns."""
        return [samples * columns for columns in self.columns]

    def _even(self, samples: int) -> list[int]:
        """Elements of this rank's columns for each rank's samples."""
        return [samples * self.own] * len(self.columns)
