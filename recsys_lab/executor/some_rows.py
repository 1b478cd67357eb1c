"""Some rows of a shard's weights or state, as incremental checkpoints write them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from recsys_lab.kernels.stored import StoredWeights


@dataclass(frozen=True, eq=False)
class SomeRows:
    """Of `content` the `rows`, int64 on its device. They are what they are when they are read."""

    content: torch.Tensor | StoredWeights
    rows: torch.Tensor

    @property
    def shape(self) -> torch.Size:
        return torch.Size((len(self.rows), *self.content.shape[1:]))

    @property
    def dtype(self) -> torch.dtype:
        """Of what checkpoints hold."""
        if isinstance(self.content, torch.Tensor):
            return self.content.dtype
        return self.content.model.dtype if self.content.rest is None else torch.float32

    def dim(self) -> int:
        return len(self.shape)

    def read(self, where: slice = slice(None)) -> torch.Tensor:
        """Consecutive ones of these rows."""
        rows = self.rows[where]
        return self.content.index_select(0, rows) if isinstance(self.content, torch.Tensor) else self.content.read(rows)
