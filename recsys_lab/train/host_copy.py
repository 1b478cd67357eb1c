"""A consistent copy of pieces in the host's memory. A thread writes it while training changes what was copied."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterable
from dataclasses import replace

import torch

from recsys_lab.executor.some_rows import SomeRows
from recsys_lab.executor.store.row_field import RowField
from recsys_lab.kernels.memory import empty_in_huge_pages
from recsys_lab.kernels.stored import StoredWeights
from recsys_lab.train.checkpoint import Piece
from recsys_lab.train.tensor_file import Content

ALIGNED_BYTES = 64


def bytes_of(pieces: Iterable[Piece]) -> int:
    """What a copy of `pieces` takes. They are not in files."""
    return sum(_padded(tensor.nbytes // max(1, len(tensor)) * rows) for piece in pieces for tensor, rows in _parts(piece.tensor))


class HostCopy:
    """Copies stand one after another in one buffer. Each copy overwrites the one before."""

    def __init__(self) -> None:
        self._room = torch.empty(0, dtype=torch.uint8)
        self._used = 0

    @property
    def nbytes(self) -> int:
        return self._room.nbytes

    def reserve(self, size: int, device: torch.device) -> None:
        """Makes room for `size` bytes from `device`, and touches every page: the first copy would else wait for them."""
        if size <= self.nbytes:
            return
        self._room = torch.empty(0, dtype=torch.uint8)  # is freed before there is another
        pinned = device.type == "cuda"
        self._room = torch.empty(size, dtype=torch.uint8, pin_memory=True) if pinned else empty_in_huge_pages((size,), torch.uint8)
        ctypes.memset(self._room.data_ptr(), 0, size)  # without Python's lock

    def of(self, pieces: Iterable[Piece], device: torch.device) -> list[Piece]:
        """`pieces` as they are now. There must be room for them."""
        self._used = 0
        copies = [replace(piece, tensor=self._copied(piece.tensor, None)) for piece in pieces]
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return copies

    def _copied(self, content: Content, rows: torch.Tensor | None) -> torch.Tensor | StoredWeights:
        assert not isinstance(content, RowField), "rows in files are not copied"
        if isinstance(content, SomeRows):
            return self._copied(content.content, content.rows)
        if isinstance(content, StoredWeights):
            rest = None if content.rest is None else self._copy(content.rest, rows)
            return StoredWeights(content.format, self._copy(content.model, rows), rest)
        return self._copy(content, rows)

    def _copy(self, tensor: torch.Tensor, rows: torch.Tensor | None) -> torch.Tensor:
        tensor = tensor.detach()
        out = self._place(tensor.shape if rows is None else (len(rows), *tensor.shape[1:]), tensor.dtype)
        if rows is not None and tensor.device.type == "cpu":
            torch.index_select(tensor, 0, rows, out=out)
        elif rows is not None:
            out.copy_(tensor.index_select(0, rows), non_blocking=True)
        elif tensor.device.type == "cpu" and tensor.is_contiguous():
            ctypes.memmove(out.data_ptr(), tensor.data_ptr(), tensor.nbytes)  # keeps what it writes out of the caches
        else:
            out.copy_(tensor, non_blocking=True)
        return out

    def _place(self, shape: Iterable[int], dtype: torch.dtype) -> torch.Tensor:
        shape = tuple(shape)
        begin, size = self._used, math.prod(shape) * dtype.itemsize
        self._used += _padded(size)
        assert self._used <= self.nbytes, "there is room"
        return self._room[begin : begin + size].view(dtype).view(shape)


def _parts(content: Content) -> list[tuple[torch.Tensor, int]]:
    """The tensors behind `content`, and how many of their rows it has."""
    assert not isinstance(content, RowField), "rows in files are not copied"
    if isinstance(content, SomeRows):
        return [(tensor, len(content.rows)) for tensor, _ in _parts(content.content)]
    if isinstance(content, StoredWeights):
        return [(tensor, len(tensor)) for tensor in (content.model, content.rest) if tensor is not None]
    return [(content.view(1) if not content.dim() else content, 1 if not content.dim() else len(content))]


def _padded(size: int) -> int:
    return -(-size // ALIGNED_BYTES) * ALIGNED_BYTES
