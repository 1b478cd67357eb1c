"""Some of a table's rows in memory, the others in a file: the C++ cache as a class. What it does stands in csrc/cache.cpp."""

from __future__ import annotations

import ctypes
import functools
import os
import weakref
from collections.abc import Sequence

import numpy as np
import torch

from recsys_lab.base.store_names import MOST_PLACES, places_of
from recsys_lab.kernels.build import library

#: Names the folder of the files, in place of the one that the caller gives.
SCRATCH = "RECSYS_LAB_SCRATCH"
#: Requests that are with the file system at a time.
IN_FLIGHT = 16
NO_FILE = -1
TRUNCATED = -1
#: Of `RowCache.where`: the row is in the file, or was never written.
IN_FILE, NEVER = -1, -2
COUNTS = ("hits", "misses", "made", "rows_read", "rows_written")
_p, _i64, _int = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int


class TooFewSlots(Exception):
    """The rows of the batches in flight need `needed` slots."""

    def __init__(self, needed: int):
        super().__init__(needed)
        self.needed = needed


class _Part(ctypes.Structure):
    _fields_ = (("base", _p), ("bytes", _i64))


@functools.cache
def _functions() -> ctypes.CDLL:
    kernels = library()
    for name, result, arguments in (
        ("cache_new", _p, (_i64, _i64, _int, _i64)),
        ("cache_free", None, (_p,)),
        ("cache_take", _i64, (_p, _p, _i64, _int, _p, _p)),
        ("cache_move", _int, (_p, _int, _p, _i64, _int)),
        ("cache_list", _i64, (_p, _int, _p)),
        ("cache_release", None, (_p, _p, _i64, _int)),
        ("cache_where", None, (_p, _p, _i64, _p)),
        ("cache_places", None, (_p, _p, _i64, _int, _p)),
        ("cache_wrote", None, (_p, _p, _i64)),
        ("cache_counts", None, (_p, _p)),
        ("transfer_records", _int, (_int, _int, _p, _i64, _p, _i64, _int)),
    ):
        function = getattr(kernels, name)
        function.restype, function.argtypes = result, arguments
    return kernels


class RowCache:
    """Rows [0, `rows`) of a table, at most `slots` of them in memory. `least_read`: LFU, else LRU.

    `file`: a descriptor, of `places_of(rows)` records; NO_FILE: the caller moves rows, as `moves` has them. A row's record has the row's
    part of each of `parts`, contiguous tensors whose first dimension is the slots.
    Of several threads one calls at a time. Only `release` may be called beside others. Methods that move rows raise OSError, and EOFError
    where the file is shorter than it was.
    """

    def __init__(self, rows: int, slots: int, least_read: bool, file: int, parts: Sequence[torch.Tensor]):
        assert rows < MOST_PLACES and slots <= rows, "rows are numbered in 31 bits"
        self.slots, self._file, self._kept = slots, file, list(parts)
        self._bytes = [part.nbytes // slots if slots else 0 for part in parts]
        self._parts = (_Part * len(parts))(*(_Part(part.data_ptr(), size) for part, size in zip(parts, self._bytes)))
        self._cache = _p(_functions().cache_new(rows, slots, least_read, places_of(rows)))
        weakref.finalize(self, _functions().cache_free, self._cache)

    def take(self, ids: torch.Tensor) -> tuple[torch.Tensor, np.ndarray, np.ndarray, np.ndarray]:
        """Takes `ids` [N] into the cache.

        Returns their slots, int32, and the distinct slots, pinned until `release`. Then the rows that were never written, rising, and their
        slots, which the caller fills. Raises TooFewSlots and IndexError, and then has changed nothing.
        """
        ids = ids.contiguous()
        slots, needed = torch.empty(len(ids), dtype=torch.int32), _i64()
        arguments = (ids.data_ptr(), len(ids), ids.dtype == torch.int64, slots.data_ptr(), ctypes.byref(needed))
        bad = _functions().cache_take(self._cache, *arguments)
        if bad >= 0:
            raise IndexError(f"id {int(ids[bad])} at position {bad} is outside of the shard")
        if needed.value > self.slots:
            raise TooFewSlots(needed.value)
        if self._file != NO_FILE:
            _raise(_functions().cache_move(self._cache, self._file, self._parts, len(self._parts), IN_FLIGHT))
        return slots, self._list(0), self._list(1), self._list(2)

    def moves(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Of the last `take`: rows that changed and leave, with their slots, which still hold them, and rows that come, with theirs."""
        made, to, left, left_at, read, read_at = (self._list(which) for which in range(1, 7))
        return left, left_at, np.concatenate([made, read]), np.concatenate([to, read_at])

    def _list(self, which: int) -> np.ndarray:
        at = _p()
        n = _functions().cache_list(self._cache, which, ctypes.byref(at))
        if not n:
            return np.empty(0, np.int64)
        return np.ctypeslib.as_array(ctypes.cast(at, ctypes.POINTER(_i64)), (n,)).copy()

    def release(self, held: np.ndarray, moved: bool) -> None:
        """`moved`: those rows were updated."""
        _functions().cache_release(self._cache, held.ctypes.data, len(held), moved)

    def where(self, rows: np.ndarray) -> np.ndarray:
        """Of each of `rows` (int64) its slot, or IN_FILE or NEVER."""
        rows, out = np.ascontiguousarray(rows), np.empty(len(rows), np.int64)
        _functions().cache_where(self._cache, rows.ctypes.data, len(rows), out.ctypes.data)
        return out

    def record_positions(self, rows: np.ndarray, write: bool = False) -> np.ndarray:
        """Of each of `rows` (int64) that has no slot, which record of the file it is. To `write`, those without one get one."""
        rows, out = np.ascontiguousarray(rows), np.empty(len(rows), np.int64)
        _functions().cache_places(self._cache, rows.ctypes.data, len(rows), write, out.ctypes.data)
        return out

    def wrote(self, slots: np.ndarray) -> None:
        """The rows in these slots (int64) have changed."""
        slots = np.ascontiguousarray(slots)
        _functions().cache_wrote(self._cache, slots.ctypes.data, len(slots))

    def counts(self) -> dict[str, int]:
        """Since the start, distinct rows of each batch: COUNTS."""
        out = np.zeros(len(COUNTS), np.int64)
        _functions().cache_counts(self._cache, out.ctypes.data)
        return dict(zip(COUNTS, out.tolist()))


def read_records(file: int, rows: np.ndarray, records: np.ndarray) -> None:
    """Records `rows` (int64, rising) of the file into `records`, uint8 [n, bytes]. Raises as RowCache."""
    _transfer(file, False, rows, records)


def write_records(file: int, rows: np.ndarray, records: np.ndarray) -> None:
    """The other way."""
    _transfer(file, True, rows, records)


def _transfer(file: int, write: bool, rows: np.ndarray, records: np.ndarray) -> None:
    rows = np.ascontiguousarray(rows)
    assert records.flags.c_contiguous and len(records) == len(rows)
    arguments = (rows.ctypes.data, len(rows), records.ctypes.data, records.shape[1], IN_FLIGHT)
    _raise(_functions().transfer_records(file, write, *arguments))


def _raise(code: int) -> None:
    if code == TRUNCATED:
        raise EOFError("the file ends before a record does")
    if code:
        raise OSError(code, os.strerror(code))
