"""Reads weights that lie in other files than those of a checkpoint of ours: a tensor is in blocks, each with a way to read part of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from recsys_lab.train.checkpoint import Reader, _Saved


@dataclass(frozen=True)
class Block:
    """`read(cut)` gives the part `cut` (a slice a dimension) of a block of `shape` that stands at `offset` in its tensor."""

    offset: tuple[int, ...]
    shape: tuple[int, ...]
    read: Callable[[tuple[slice, ...]], torch.Tensor]


class BlockReader(Reader):
    """A `Reader` of tensors in blocks, by name."""

    def __init__(self, folder: Path, blocks: Mapping[str, Sequence[Block]]):
        self.folder = folder
        self._saved = {key: [_Saved(_File(one.read), key, one.offset, one.shape, None, None) for one in of] for key, of in blocks.items()}
        self._updated: dict[str, list[_Saved]] = {}


@dataclass(frozen=True)
class _File:
    """A block as the one tensor of a safetensors file."""

    read: Callable[[tuple[slice, ...]], torch.Tensor]

    def get_slice(self, name: str) -> _File:
        return self

    def get_tensor(self, name: str) -> torch.Tensor:
        return self.read(())

    def __getitem__(self, cut: tuple[slice, ...]) -> torch.Tensor:
        return self.read(cut)
