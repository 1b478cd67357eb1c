"""Batches and tables for the kernel tests, and equality of bits."""

from __future__ import annotations

import torch

from recsys_lab.kernels import Lookups, split

#: Formats of a table: the type of its weights and of what it keeps beside them.
FORMATS = {
    "fp32": (torch.float32, None),
    "bf16": (torch.bfloat16, None),
    "fp16": (torch.float16, None),
    "split_bf16": (torch.bfloat16, torch.int16),
    "split_bf16_8": (torch.bfloat16, torch.uint8),
    "bf16_master": (torch.bfloat16, torch.float32),
}


def stored(values: torch.Tensor, format: str) -> tuple[torch.Tensor, torch.Tensor | None]:
    weight, low = FORMATS[format]
    if low in (torch.int16, torch.uint8):
        return split(values, low)
    return values.to(weight, copy=True), None if low is None else values.clone()


def batch(
    features: int, samples: int, rows: int, most: int, *, seed: int = 0, skew: float = 1.0, weighted: bool = False, mode: str = "sum",
    dtype: torch.dtype = torch.int64,
) -> Lookups:  # fmt: skip
    """Bags of 0 to `most` ids of tables with `rows` rows each, one above the other; low rows are the likelier, the higher `skew`."""
    random = torch.Generator().manual_seed(seed)
    offsets = torch.randint(0, most + 1, (features * samples + 1,), generator=random)
    offsets[0] = 0
    offsets = offsets.cumsum(0)
    ids = (rows * torch.rand(int(offsets[-1]), generator=random) ** skew).long().clamp(max=rows - 1).to(dtype)
    weights = torch.randn(len(ids), generator=random) if weighted else None
    return Lookups(ids, offsets, features, torch.arange(features) * rows, weights=weights, mode=mode)


def same_bits(left: torch.Tensor | None, right: torch.Tensor | None) -> bool:
    """Equal in every bit; of two NaNs neither payload nor sign counts."""
    if left is None or right is None:
        return left is right
    if not left.dtype.is_floating_point:
        return torch.equal(left, right)
    bits = {4: torch.int32, 2: torch.int16}[left.element_size()]
    return bool(((left.view(bits) == right.view(bits)) | (left.isnan() & right.isnan())).all())


def copies(*tensors: torch.Tensor | None) -> list[torch.Tensor | None]:
    return [None if tensor is None else tensor.clone() for tensor in tensors]
