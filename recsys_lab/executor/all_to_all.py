"""The all-to-all of looked-up columns: `forward_dist` to the ranks of their samples, `backward_dist` of their gradients.

Both encode what they send and only issue the collective. Callers wait, and get it decoded.

Shapes: R ranks, B samples of one rank, C columns of all ranks, O of this rank's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from recsys_lab.executor.formats import Codec


@dataclass(frozen=True)
class PendingColumns:
    """`parts`, whose columns lie side by side, encoded by `codec`. They are complete once the collectives `works` are."""

    works: list[Any]
    parts: list[torch.Tensor]
    codec: Codec

    def wait(self) -> list[torch.Tensor]:
        """The parts as they travelled."""
        for work in self.works:
            work.wait()
        return self.parts

    def decoded(self) -> list[torch.Tensor]:
        """Waits, then returns each part in FP32."""
        return [self.codec.decode(part) for part in self.wait()]

    def joined(self) -> torch.Tensor:
        """Waits, then returns all columns as one matrix in FP32."""
        parts = self.decoded()
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

    def forward_dist(self, looked_up: torch.Tensor, codec: Codec) -> PendingColumns:
        """[R * B, O], rank after rank -> parts that make [B, C]."""
        samples, sent = len(looked_up) // self.receivers, codec.encode(looked_up)
        sizes = self._sizes(samples, codec)
        output = sent.new_empty(sum(sizes))
        parts = [part.view(samples, -1) for part in output.split(sizes) if len(part)] or [output.view(samples, 0)]
        return self._issue(output, sent.reshape(-1), sizes, self._even(samples, codec), parts, codec)

    def backward_dist(self, grads: torch.Tensor, codec: Codec) -> PendingColumns:
        """[B, C] -> [R * B, O]."""
        samples = len(grads)
        sent = torch.cat([codec.encode(part).reshape(-1) for part in grads.split(self.columns, dim=1)])
        output = sent.new_empty(samples * self.receivers, codec.width(self.own))
        return self._issue(output.view(-1), sent, self._even(samples, codec), self._sizes(samples, codec), [output], codec)

    def _issue(
        self, output: torch.Tensor, sent: torch.Tensor, output_splits: list[int], input_splits: list[int], parts: list, codec: Codec
    ) -> PendingColumns:
        works = []
        if any(self.columns):
            works.append(dist.all_to_all_single(output, sent, output_splits, input_splits, group=self.group, async_op=True))
        return PendingColumns(works, parts, codec)

    def _sizes(self, samples: int, codec: Codec) -> list[int]:
        """Elements of each rank's columns."""
        return [samples * codec.width(columns) for columns in self.columns]

    def _even(self, samples: int, codec: Codec) -> list[int]:
        """Elements of this rank's columns for each rank's samples."""
        return [samples * codec.width(self.own)] * len(self.columns)
