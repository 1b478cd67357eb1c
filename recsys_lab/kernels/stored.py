"""Weights as they are stored between steps, in any format of `recsys_lab.tables.spec`.

They are those of tables and of the dense arch alike. Hi/lo split ones are Split-SGD-BF16 (Kalamkar et al. 2020, section VII).

| format | `model`: what forward and backward read | `rest`: what the optimizer needs besides |
|---|---|---|
| fp32, fp16, bf16 | the weights | nothing |
| bf16_master | the master rounded to BF16 | the FP32 master |
| split_bf16 | the upper 16 bits of each FP32 weight | the lower 16 |
| split_bf16_8 | the same | 8 of the lower 16 |

Whatever the format, weights are read and written as FP32: joined when read, taken apart when written. Only what is touched is ever
FP32, so that a table needs no second copy of itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import torch

from recsys_lab.kernels.halves import join, split
from recsys_lab.kernels.memory import empty_in_huge_pages

MODEL_DTYPE = {
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "bf16_master": torch.bfloat16,
    "split_bf16": torch.bfloat16,
    "split_bf16_8": torch.bfloat16,
}
REST_DTYPE = {"bf16_master": torch.float32, "split_bf16": torch.int16, "split_bf16_8": torch.uint8}
#: Rows by index, or consecutive ones; or rows and columns.
Where: TypeAlias = torch.Tensor | slice | tuple[torch.Tensor | slice, ...]


@dataclass(frozen=True)
class StoredWeights:
    """`model` and `rest` have one shape; `rest` is None where `model` is all there is."""

    format: str
    model: torch.Tensor
    rest: torch.Tensor | None

    @staticmethod
    def empty(format: str, shape: tuple[int, ...], device: torch.device) -> StoredWeights:
        model = empty_in_huge_pages(shape, MODEL_DTYPE[format], device)
        rest = empty_in_huge_pages(shape, REST_DTYPE[format], device) if format in REST_DTYPE else None
        return StoredWeights(format, model, rest)

    @property
    def shape(self) -> torch.Size:
        return self.model.shape

    @property
    def nbytes(self) -> int:
        return self.model.nbytes + (0 if self.rest is None else self.rest.nbytes)

    def __getitem__(self, where: slice) -> StoredWeights:
        """A view of consecutive rows."""
        return StoredWeights(self.format, self.model[where], None if self.rest is None else self.rest[where])

    def view_as(self, other: torch.Tensor) -> StoredWeights:
        return StoredWeights(self.format, self.model.view_as(other), None if self.rest is None else self.rest.view_as(other))

    def read(self, where: Where = ()) -> torch.Tensor:
        """Those weights in FP32. They may share memory with the stored ones where these are FP32 and `where` has no index."""
        if self.rest is None:
            return _taken(self.model, where).float()
        if self.format == "bf16_master":
            return _taken(self.rest, where)
        return join(_taken(self.model, where), _taken(self.rest, where))

    def write(self, values: torch.Tensor, where: Where = ()) -> None:
        """Set those weights, each once, to FP32 `values` on the same device."""
        if self.rest is None:
            _put(self.model, where, values)
        elif self.format == "bf16_master":
            _put(self.rest, where, values)
            _put(self.model, where, values)
        else:
            high, low = split(values, self.rest.dtype)
            _put(self.model, where, high)
            _put(self.rest, where, low)


def _taken(tensor: torch.Tensor, where: Where) -> torch.Tensor:
    return tensor.index_select(0, where) if isinstance(where, torch.Tensor) else tensor[where]


def _put(tensor: torch.Tensor, where: Where, values: torch.Tensor) -> None:
    if isinstance(where, torch.Tensor):
        tensor.index_copy_(0, where, values.to(tensor.dtype))
    else:
        tensor[where] = values.to(tensor.dtype)
