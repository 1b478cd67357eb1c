"""What a batch looks up, for every kernel: ids, and the bags that they are pooled into."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Lookups:
    """N ids of F features with B samples each, of tables with D columns.

    Pooled look-ups have `offsets`. Without them id i has row source[i] of the gradient [*, D] or, without `source`, row i.

    Attributes:
        ids: [N], int32 or int64.
        offsets: [F * B + 1], int64. Bag f * B + b is columns [f * D, (f + 1) * D) of row b of a matrix [B, F * D]; so is its gradient.
        features: F; 1 where nothing is pooled.
        first_rows: [F], int64, added to the ids of a feature. Tables that lie one above the other are so read by their own ids.
        source: [N], int32 or int64: the gradient's row of each id.
        weights: [N], FP32: a factor of each id.
        mode: sum, or mean, which divides a bag by its number of ids.
    """

    ids: torch.Tensor
    offsets: torch.Tensor | None = None
    features: int = 1
    first_rows: torch.Tensor | None = None
    source: torch.Tensor | None = None
    weights: torch.Tensor | None = None
    mode: str = "sum"

    def __post_init__(self) -> None:
        assert self.ids.dim() == 1 and self.ids.dtype in (torch.int32, torch.int64), "ids are a vector of int32 or int64"
        assert self.mode in ("sum", "mean"), self.mode
        if self.offsets is None:
            assert self.mode == "sum" and self.first_rows is None and self.features == 1, "only bags have a mean, features and first rows"
        else:
            assert self.source is None, "of bags, offsets say where a gradient comes from"
            assert self.offsets.dtype == torch.int64 and (self.offsets.numel() - 1) % self.features == 0, "offsets are [F * B + 1], int64"
        assert self.weights is None or (self.weights.dtype == torch.float32 and len(self.weights) == len(self.ids)), (
            "weights are [N], float32"
        )

    @property
    def samples(self) -> int:
        return 0 if self.offsets is None else (self.offsets.numel() - 1) // self.features

    def lengths(self) -> torch.Tensor:
        """Of the bags, [F * B]."""
        assert self.offsets is not None
        return self.offsets.diff()

    def rows(self) -> torch.Tensor:
        """Row of the table that each id means, [N], in the ids' own format."""
        if self.first_rows is None or self.offsets is None:
            return self.ids
        of_feature = self.offsets[:: self.samples].diff() if self.samples else self.offsets.new_zeros(self.features)
        return self.ids + torch.repeat_interleave(self.first_rows, of_feature, output_size=len(self.ids)).to(self.ids.dtype)

    def gradient_rows(self) -> torch.Tensor | None:
        """For each id its row of the gradient, a pooled gradient seen as [B * F, D]; None: its own."""
        if self.offsets is None:
            return self.source
        of_bag = torch.arange(self.samples * self.features, device=self.ids.device).view(self.samples, self.features).t().reshape(-1)
        return torch.repeat_interleave(of_bag, self.lengths(), output_size=len(self.ids))
