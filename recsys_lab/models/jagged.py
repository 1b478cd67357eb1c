"""Sequences of different lengths in one tensor: N rows, sample after sample, and the same padded to a rectangle.

Linear layers work on the N rows, so that nothing is computed for padding. Only attention needs the rectangle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad
from torchrec.sparse.jagged_tensor import JaggedTensor

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

    def groups(self, lengths: Tensor) -> Sequence[tuple[Tensor, Places]]:
        """The sequences apart by length, up to 8, 16, 32 and so on. So few of the squares that attention fills are padding.

        `lengths`: those that `of` had; its own may be on a device that has no values. For each group: which of the N rows are its own,
        int64 [n], and their places. Sequences without rows are short ones.
        """
        lengths, device = lengths.long(), self.sample.device
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

    def rows(self) -> Tensor:
        """int64 [N]: 0, 1, ..."""
        return torch.arange(len(self.sample), device=self.sample.device)

    def is_row(self) -> Tensor:
        """bool [B, T]: False where there is padding."""
        return torch.arange(self.longest, device=self.lengths.device) < self.lengths[:, None]

    def any_rows(self, of: Tensor) -> Tensor:
        """[B, 1] in the format of `of`: 0 where a sequence is empty, else 1."""
        return (self.lengths > 0)[:, None].to(of.dtype)


def in_turn(*lengths: Tensor) -> Tensor:
    """int64 [sum]: rows that lie part after part, as they stand sample after sample.

    `lengths`: int64 [B] of each part. Each sample has its rows of the first part, then those of the second, and so on.
    """
    of_parts = torch.stack(lengths)  # [parts, B]
    starts = torch.cumsum(of_parts.flatten(), 0).view_as(of_parts) - of_parts
    of_samples = of_parts.t().flatten()
    shifts = starts.t().flatten() - (torch.cumsum(of_samples, 0) - of_samples)
    shift = torch.repeat_interleave(shifts, of_samples)
    return shift + torch.arange(len(shift), device=shift.device)


@dataclass(frozen=True)
class PaddedRows:
    """A feature's `rows` [B, T, D], each sequence padded at its end: no shape depends on a value, as an exported program needs it."""

    rows: Tensor
    row_lengths: Tensor  # int64 [B]

    def values(self) -> Tensor:
        """[B * T, D]: rows of padding are rows too."""
        return self.rows.flatten(0, 1)

    def lengths(self) -> Tensor:
        return self.row_lengths


class PaddedPlaces(Places):
    """Of all B * T rows. What becomes of those of padding is never looked at: they come last, where no earlier row looks."""

    def groups(self, lengths: Tensor) -> Sequence[tuple[Tensor, Places]]:
        return [(self.flat, self)]

    def padded(self, rows: Tensor) -> Tensor:
        return rows.unflatten(0, (self.samples, self.longest))

    def packed(self, rectangle: Tensor) -> Tensor:
        return rectangle.flatten(0, 1)

    def last(self, rows: Tensor) -> Tensor:
        at = torch.arange(self.samples, device=rows.device) * self.longest + (self.lengths - 1).clamp(min=0)
        return rows.index_select(0, at) * self.any_rows(rows)


def places_of(sequences: JaggedTensor | PaddedRows) -> Places:
    """Where each of the rows of a feature's sequences belongs."""
    if not isinstance(sequences, PaddedRows):
        return Places.of(sequences.lengths(), sequences.values().device)
    samples, longest = sequences.rows.shape[:2]
    lengths = sequences.row_lengths
    to_end = (lengths[:, None] - 1 - torch.arange(longest, device=lengths.device)).clamp(min=0).flatten()
    flat = torch.arange(samples * longest, device=lengths.device)
    return PaddedPlaces(samples, longest, lengths, flat // longest, to_end, flat)
