"""The rows of sequences go back to their places. Shapes: D columns, N ids of all tiers, n of one."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def to_places(places: Sequence[torch.Tensor], rows: Sequence[torch.Tensor]) -> torch.Tensor:
    """[N, D] with `rows[k]` [n, D] at `places[k]` [n]. Together the places are 0 to N - 1, each once."""
    return _ToPlaces.apply(len(places), *places, *rows)


class _ToPlaces(torch.autograd.Function):
    """One copy each way, and the same bits every time: no two rows go to one place."""

    @staticmethod
    def forward(ctx, parts: int, *both: torch.Tensor) -> torch.Tensor:
        places, rows = both[:parts], both[parts:]
        ctx.save_for_backward(*places)
        merged = rows[0].new_empty(sum(len(part) for part in places), rows[0].shape[1])
        for place, part in zip(places, rows):
            merged.index_copy_(0, place, part)
        return merged

    @staticmethod
    def backward(ctx, grad: torch.Tensor):
        places = ctx.saved_tensors
        return (None, *(None for _ in places), *(grad.index_select(0, place) for place in places))
