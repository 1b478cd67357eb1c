"""First values of a table's weights. They depend on seed, table and position only, so any shard can make its own part.

Uniform in [-b, b) with b = sqrt(1 / rows), TorchRec's choice. Each value is 24 bits of SplitMix64 (Steele, Lea and Flood, "Fast splittable
pseudorandom number generators", 2014) at a counter. The counter goes row by row, two columns to a 64-bit draw.
C++ and numpy give the same bits.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import torch

from recsys_lab import kernels
from recsys_lab.kernels import native
from recsys_lab.tables.spec import Table

_GAMMA = 0x9E3779B97F4A7C15
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_BLOCK_DRAWS = 1 << 15  # 256 kB a block: stays in the second-level cache


@dataclass(frozen=True)
class FirstValues:
    """All that the first values of a table's rows depend on, `share` of them: plain figures, so a file can say it."""

    table: str
    rows: int
    dim: int
    seed: int
    share: float = 1.0

    def of(self, rows: np.ndarray, col_start: int, col_stop: int) -> torch.Tensor:
        """Those `rows` (int64 [n]) x columns [col_start, col_stop), float32."""
        values = initial_rows(Table(self.table, self.rows, self.dim, (self.table,)), rows, col_start, col_stop, self.seed)
        return values if self.share == 1.0 else values.mul_(self.share)


def initial_weight(table: Table, row_start: int, row_stop: int, col_start: int, col_stop: int, seed: int) -> torch.Tensor:
    """Rows [row_start, row_stop) x columns [col_start, col_stop) of `table`, float32, as they are before training.

    The same values whatever the shard they are made in.
    """
    assert 0 <= row_start <= row_stop <= table.rows and 0 <= col_start <= col_stop <= table.dim, (table, row_start, row_stop)
    out = torch.empty((row_stop - row_start, col_stop - col_start))
    for start in range(row_start, row_stop, _BLOCK_DRAWS):
        stop = min(start + _BLOCK_DRAWS, row_stop)
        out[start - row_start : stop - row_start] = initial_rows(table, np.arange(start, stop), col_start, col_stop, seed)
    return out


def initial_rows(table: Table, rows: np.ndarray, col_start: int, col_stop: int, seed: int) -> torch.Tensor:
    """Those `rows` (int64 [n], in any order) x columns [col_start, col_stop) of `table`, float32 [n, cols]."""
    assert 0 <= col_start <= col_stop <= table.dim, (table, col_start, col_stop)
    assert len(rows) == 0 or (rows.min() >= 0 and rows.max() < table.rows), (table, rows)
    first, last = col_start // 2, (col_stop + 1) // 2  # draws: pairs of columns
    draws_per_row = (table.dim + 1) // 2
    bound = np.float32(table.rows**-0.5)
    scale = bound * np.float32(2**-23)
    key = _table_key(table.name, seed)
    inside = slice(col_start - 2 * first, col_stop - 2 * first)
    if kernels.available():
        values = torch.empty(len(rows), 2 * (last - first))
        where = torch.from_numpy(np.ascontiguousarray(rows, dtype=np.int64))
        native.first_rows(where, int(key), draws_per_row, slice(first, last), float(scale), float(bound), values)
        return values[:, inside].contiguous()
    out = np.empty((len(rows), 2 * (last - first)), dtype=np.float32)
    columns = np.arange(first, last, dtype=np.uint64) * np.uint64(_GAMMA)
    step = max(1, _BLOCK_DRAWS // max(1, last - first))
    for start in range(0, len(rows), step):
        counters = rows[start : start + step].astype(np.uint64) * np.uint64(draws_per_row * _GAMMA % 2**64) + key
        bits = _mix(counters[:, None] + columns).astype("<u8", copy=False).view("<u4")
        bits >>= np.uint32(8)
        block = out[start : start + step]
        np.multiply(bits, scale, out=block, casting="unsafe", dtype=np.float32)
        block -= bound
    return torch.from_numpy(out)[:, inside].contiguous()


def _table_key(name: str, seed: int) -> np.uint64:
    return np.uint64(int.from_bytes(hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest(), "little"))


def _mix(z: np.ndarray) -> np.ndarray:
    """SplitMix64's finaliser, in place on uint64."""
    shifted = z >> np.uint64(30)
    z ^= shifted
    z *= _MIX_1
    np.right_shift(z, np.uint64(27), out=shifted)
    z ^= shifted
    z *= _MIX_2
    np.right_shift(z, np.uint64(31), out=shifted)
    z ^= shifted
    return z
