"""FP32 weights in two parts (Split-SGD-BF16; Kalamkar et al. 2020, section VII): a BF16 number and the bits that it lacks.

| part | of an FP32 number's 32 bits | tensor |
|---|---|---|
| high | the upper 16, cut off and not rounded: a BF16 number, so the model reads it as it is | bfloat16 |
| low | the lower 16 | int16 |
| low, 8 bits | the upper 8 of those; the last 8 are lost at every update (the paper's negative result) | uint8 |

`join` is exact with 16 low bits, whatever the number: denormals, infinities, NaNs. A NaN whose upper half is an infinity's looks like
one to the model, and is a NaN again once joined. These are the definitions that every faster implementation is held to.
"""

from __future__ import annotations

import torch

#: The tensors that hold low bits, and how many of an FP32 number's last bits are left out.
LOST_BITS = {torch.int16: 0, torch.uint8: 8}


def split(weight: torch.Tensor, low_dtype: torch.dtype = torch.int16) -> tuple[torch.Tensor, torch.Tensor]:
    """FP32 weights as high and low bits.

    Args:
        weight: FP32 of any shape.
        low_dtype: int16 for all low bits, uint8 for the upper 8 of them.

    Returns:
        (high bfloat16, low), each of that shape.
    """
    bits = weight.contiguous().view(torch.int32)
    high = bits.bitwise_right_shift(16).to(torch.int16).view(torch.bfloat16)
    return high, _low(bits, low_dtype)


def join(high: torch.Tensor, low: torch.Tensor) -> torch.Tensor:
    """High and low bits as FP32 weights.

    Args:
        high: bfloat16.
        low: int16 or uint8, of that shape.

    Returns:
        FP32 of that shape.
    """
    lost, mask = LOST_BITS[low.dtype], (1 << (16 - LOST_BITS[low.dtype])) - 1
    upper = high.contiguous().view(torch.int16).to(torch.int32).bitwise_left_shift_(16)
    lower = low.to(torch.int32).bitwise_and_(mask)
    if lost:
        lower.bitwise_left_shift_(lost)
    return upper.bitwise_or_(lower).view(torch.float32)


def _low(bits: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    lost = LOST_BITS[dtype]
    return bits.to(dtype) if not lost else bits.bitwise_right_shift(lost).bitwise_and_(0xFF).to(dtype)
