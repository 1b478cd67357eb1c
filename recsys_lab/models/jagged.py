"""Sequences of different lengths in one tensor: N rows, sample after sample, and the same padded to a rectangle.

Linear layers work on the N rows, so that nothing is computed for padding. Only attention needs the rectangle.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

_SHORT = 8


@dataclass(frozen=True)
class Places:
    """Where each of N rows belongs. Shapes: B samples, T the longest sequence, at least 1."""

    samples: int
    longest: int
    lengths: Tensor  # int64 [B]
    sample: Tensor  # int64 [N]: of each row
    to_end: Tensor  # int64 [N]: how many rows of its sequence come after it
    flat: Tensor  # int64 [N]: sample * T + place from the start

    @staticmethod
    def of(lengths: Tensor, device: torch.device) -> Places:
        """From the lengths [B] of the sequences, for rows on `device`."""
        lengths = lengths.long()
        samples, longest = len(lengths), max(1, int(lengths.max()))
        sample = torch.repeat_interleave(torch.arange(samples, device=lengths.device), lengths)
        to_end = torch.cumsum(lengths, 0)[sample] - 1 - torch.arange(len(sample), device=lengths.device)
        flat = sample * longest + lengths[sample] - 1 - to_end
        return Places(samples, longest, *(tensor.to(device) for tensor in (lengths, sample, to_end, flat)))

    @staticmethod
    def groups(lengths: Tensor, device: torch.device) -> list[tuple[Tensor, Places]]:
        """The sequences apart by length, up to 8, 16, 32 and so on. So few of the squares that attention fills are padding.

        For each group: which of the N rows are its own, int64 [n], and their places. Sequences without rows are short ones.
        """
        lengths = lengths.long()
        doublings = torch.ceil(torch.log2(lengths.clamp(min=_SHORT).double() / _SHORT)).long()
        of_row = torch.repeat_interleave(doublings, lengths)
        return [
            (torch.nonzero(of_row == doubling).squeeze(1).to(device), Places.of(lengths[doublings == doubling], device))
            for doubling in doublings.unique().tolist()
        ]

    def padded(self, rows: Tensor) -> Tensor:
        """[N, D] -> [B, T, D], zeros after a sequence's end."""
        empty = rows.new_zeros(self.samples * self.longest, rows.shape[1])
        return empty.index_copy(0, self.flat, rows).view(self.samples, self.longest, rows.shape[1])

    def packed(self, rectangle: Tensor) -> Tensor:
        """[B, T, D] -> [N, D]: what `padded` made of it, without the padding."""
        return rectangle.flatten(0, 1).index_select(0, self.flat)

    def last(self, rows: Tensor) -> Tensor:
        """[N, D] -> [B, D]: each sequence's last row, zeros where it is empty."""
        at = torch.where(self.lengths > 0, torch.cumsum(self.lengths, 0) - 1, len(rows))
        return pad(rows, (0, 0, 0, 1)).index_select(0, at)

    def is_row(self) -> Tensor:
        """bool [B, T]: False where there is padding."""
        return torch.arange(self.longest, device=self.lengths.device) < self.lengths[:, None]
