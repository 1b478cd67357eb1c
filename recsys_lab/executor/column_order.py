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

from recsys_lab import kernels
from recsys_lab.kernels import native


@dataclass(frozen=True)
class ColumnOrder:
    """`came`: by part the features whose columns it has; `dims`: how many columns each feature has, in the order that is wanted."""

    came: Sequence[Sequence[str]]
    dims: dict[str, int]

    @cached_property
    def blocks(self) -> torch.Tensor:
        """int64 [F, 3]: for each feature wanted, its part, its first column there, and how many it has."""
        starts = [accumulate((self.dims[feature] for feature in part), initial=0) for part in self.came]
        place = {f: (part, at) for part, features in enumerate(self.came) for f, at in zip(features, starts[part])}
        return torch.tensor([(*place[feature], width) for feature, width in self.dims.items()])

    @cached_property
    def in_order(self) -> bool:
        """Whether the parts have the features as they are wanted."""
        return [feature for part in self.came for feature in part] == list(self.dims)

    def together(self, parts: Sequence[torch.Tensor]) -> KeyedTensor:
        """Parts [B, C] -> the features' columns in order, with their names."""
        keys, widths = list(self.dims), list(self.dims.values())
        if self.in_order:
            return KeyedTensor(keys, widths, parts[0] if len(parts) == 1 else torch.cat(list(parts), dim=1))
        if parts[0].is_cpu and len({part.dtype for part in parts}) == 1 and kernels.available():
            return KeyedTensor(keys, widths, _Together.apply(self.blocks, *parts))
        blocks = [parts[part][:, column : column + width] for part, column, width in self.blocks.tolist()]
        return KeyedTensor(keys, widths, torch.cat(blocks, dim=1))


class _Together(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, blocks: torch.Tensor, *parts: torch.Tensor) -> torch.Tensor:
        ctx.blocks, ctx.widths = blocks, [part.shape[1] for part in parts]
        whole = parts[0].new_empty(len(parts[0]), sum(ctx.widths))
        native.columns(whole, blocks, [part.contiguous() for part in parts])
        return whole

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        parts = [grad.new_empty(len(grad), width) for width in ctx.widths]
        native.columns(grad.contiguous(), ctx.blocks, parts, back=True)
        return None, *parts
