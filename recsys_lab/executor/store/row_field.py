"""The weights, or one state, of a shard with a store, as checkpoints read and write them. A few rows move at a time, never all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from recsys_lab.executor.store.cached_rows import CachedRows
from recsys_lab.kernels.stored import StoredWeights, Where
from recsys_lab.models.table_weights import FirstValues

PIECE_BYTES = 1 << 24
#: Rows of a shard that are checked at a time for whether they were ever read.
CHECKED_ROWS = 1 << 20


@dataclass(frozen=True, eq=False)
class RowField:
    """`name`: a state's, or empty: the weights, which are read and written as FP32 where they are in two parts.

    `only`: rising, those of the shard's rows that it is of; None: all.
    """

    rows: CachedRows
    name: str = ""
    only: np.ndarray | None = None

    @property
    def shape(self) -> torch.Size:
        like = self.rows.fields[self.name].tensor if self.name else self.rows.weights.model
        return torch.Size((self.rows.rows if self.only is None else len(self.only), *like.shape[1:]))

    @property
    def dtype(self) -> torch.dtype:
        """Of what checkpoints hold."""
        return torch.float32 if self.name or self.rows.weights.rest is not None else self.rows.weights.model.dtype

    @property
    def origin(self) -> FirstValues | None:
        """Of rows that nobody has read. A state's are zeros."""
        return self.rows.origin

    def dim(self) -> int:
        return len(self.shape)

    def known(self) -> np.ndarray:
        """The shard's rows that were ever read or written, rising. A state and its weights have the same."""
        starts = range(0, self.rows.rows, CHECKED_ROWS)
        parts = [np.flatnonzero(self.rows.known(np.arange(start, min(start + CHECKED_ROWS, self.rows.rows)))) + start for start in starts]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def is_first(self, rows: np.ndarray, origin: FirstValues | None) -> np.ndarray:
        """Whether each of the shard's `rows` is as it was first, which is what `origin` says, or zero of a state."""
        same_origin = bool(self.name) or origin == self.origin
        return ~self.rows.known(rows) if same_origin else np.zeros(len(rows), dtype=bool)

    def read(self, where: slice = slice(None)) -> torch.Tensor:
        """Consecutive rows, FP32."""
        return torch.cat([self._read(rows) for rows in self._pieces(self._numbers(where))])

    def _numbers(self, where: slice | torch.Tensor) -> np.ndarray:
        """Of the shard's rows."""
        if isinstance(where, torch.Tensor):
            return where.numpy() if self.only is None else self.only[where.numpy()]
        return np.arange(*where.indices(self.rows.rows)) if self.only is None else self.only[where]

    def _read(self, rows: np.ndarray) -> torch.Tensor:
        records = self.rows.records(rows, with_weights=not self.name)
        return self.rows.fields[self.name].of(records) if self.name else self._weights(records).read()

    def _pieces(self, rows: np.ndarray) -> list[np.ndarray]:
        """`rows` in pieces whose records are PIECE_BYTES; one, if there are none."""
        step = max(1, PIECE_BYTES // self.rows.record_bytes)
        return [rows[start : start + step] for start in range(0, max(1, len(rows)), step)]

    def write(self, values: torch.Tensor, where: Where) -> None:
        """Sets rows, or rows and columns, to FP32 `values`."""
        which, *columns = where if isinstance(where, tuple) else (where,)
        rows, begin = self._numbers(which), 0
        for piece in self._pieces(rows):
            self._write(values[begin : begin + len(piece)], piece, (slice(None), *columns))
            begin += len(piece)

    def _write(self, values: torch.Tensor, rows: np.ndarray, cut: tuple) -> None:
        records = self.rows.records(rows)
        if self.name:
            field = self.rows.fields[self.name]
            now = field.of(records)
            now[cut] = values
            field.put(records, now)
        else:
            weights = self._weights(records)
            weights.write(values, cut)
            self.rows.fields["model"].put(records, weights.model)
            if weights.rest is not None:
                self.rows.fields["rest"].put(records, weights.rest)
        self.rows.replace(rows, records)

    def _weights(self, records: np.ndarray) -> StoredWeights:
        fields = self.rows.fields
        return StoredWeights(
            self.rows.weights.format, fields["model"].of(records), fields["rest"].of(records) if "rest" in fields else None
        )
