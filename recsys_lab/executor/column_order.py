"""Pooled rows of several exchanges side by side, in the order in which the model reads its features: one copy, and one back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import torch
from torch.autograd.function import once_differentiable
from torchrec.sparse.jagged_tensor import KeyedTensor

#: Columns of one feature: of which part, from which column on, and how many.
Block = tuple[int, int, int]


@dataclass(frozen=True)
class ColumnOrder:
    """`features_of_parts`: by part, the features whose columns it has. `dims`: columns by feature, in the model's order."""

    features_of_parts: Sequence[Sequence[str]]
    dims: dict[str, int]

    @cached_property
    def blocks(self) -> list[Block]:
        """In the model's order."""
        block_of: dict[str, Block] = {}
        for part, features in enumerate(self.features_of_parts):
            starts = accumulate((self.dims[feature] for feature in features), initial=0)
            block_of |= {feature: (part, start, self.dims[feature]) for feature, start in zip(features, starts)}
        return [block_of[feature] for feature in self.dims]

    @cached_property
    def in_order(self) -> bool:
        """Whether the parts, one after the other, have the model's order."""
        return [feature for part in self.features_of_parts for feature in part] == list(self.dims)

    def together(self, parts: Sequence[torch.Tensor]) -> KeyedTensor:
        """Parts [B, C] -> the features' columns in order, with their names."""
        if self.in_order:
            columns = parts[0] if len(parts) == 1 else torch.cat(list(parts), dim=1)
        else:
            columns = _InOrder.apply(self.blocks, *parts)
        return KeyedTensor(list(self.dims), list(self.dims.values()), columns)


class _InOrder(torch.autograd.Function):
    """Autograd's own way back from slices would make a whole gradient for each."""

    @staticmethod
    def forward(ctx: Any, blocks: list[Block], *parts: torch.Tensor) -> torch.Tensor:
        ctx.blocks, ctx.parts = blocks, len(parts)
        return torch.cat([parts[part][:, start : start + width] for part, start, width in blocks], dim=1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        columns: list[dict[int, torch.Tensor]] = [{} for _ in range(ctx.parts)]  # by part and first column there
        for (part, start, _), of_feature in zip(ctx.blocks, grad.split([width for _, _, width in ctx.blocks], dim=1)):
            columns[part][start] = of_feature
        return None, *(torch.cat([own[start] for start in sorted(own)], dim=1) if own else grad[:, :0] for own in columns)
