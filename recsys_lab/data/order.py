"""The order of an epoch: a pseudo-random bijection of [0, N), computed where it is asked for and never stored.

A Feistel network over 2k bits permutes [0, 4**k). Results outside [0, N) are permuted again until they fall inside (cycle walking, Black
and Rogaway 2002). As 4**k < 4N, that takes fewer than four rounds on average.
"""

from __future__ import annotations

import numpy as np

from recsys_lab.data import hashing

FEISTEL_ROUNDS = 6


class ShuffledOrder:
    """A permutation of [0, `rows`), the same for the same `seed` and `epoch`."""

    def __init__(self, rows: int, seed: int, epoch: int):
        self.rows = rows
        self._half_bits = np.uint64(max(1, ((rows - 1).bit_length() + 1) // 2))
        self._mask = np.uint64((1 << int(self._half_bits)) - 1)
        self._round_keys = [hashing.key("order", seed, epoch, r) for r in range(FEISTEL_ROUNDS)]

    def at(self, positions: np.ndarray) -> np.ndarray:
        """The row numbers (int64 [B]) at these positions (int64 [B], each in [0, rows))."""
        out = self._permute(positions.astype(np.uint64))
        outside = np.flatnonzero(out >= self.rows)
        while outside.size:
            out[outside] = self._permute(out[outside])
            outside = outside[out[outside] >= self.rows]
        return out.astype(np.int64)

    def _permute(self, x: np.ndarray) -> np.ndarray:
        left, right = x >> self._half_bits, x & self._mask
        for round_key in self._round_keys:
            left, right = right, left ^ (hashing.bits(round_key, right) & self._mask)
        return (left << self._half_bits) | right


class FileOrder:
    """Rows as they come."""

    def at(self, positions: np.ndarray) -> np.ndarray:
        return positions
