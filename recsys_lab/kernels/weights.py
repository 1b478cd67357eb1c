"""SGD over weights in any format, a vector at a time. It does what torch.optim.SGD does, in one pass that makes no FP32 copy."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import torch

from recsys_lab.kernels.build import library
from recsys_lab.kernels.native import FORMAT

#: Elements below which one thread is quicker than waking others.
FEW_ELEMENTS = 1 << 15
_p, _int, _f32 = ctypes.c_void_p, ctypes.c_int, ctypes.c_float


@functools.cache
def _function() -> Any:
    found = library().sgd_step
    found.argtypes = (_p, _p, _int, _p, _int, ctypes.c_int64, _f32, _f32, _f32, _p, _int)
    found.restype = None
    return found


def sgd_step(
    weight: torch.Tensor,
    rest: torch.Tensor | None,
    grad: torch.Tensor,
    *,
    lr: float,
    weight_decay: float = 0.0,
    momentum: float = 0.0,
    velocity: torch.Tensor | None = None,
) -> None:
    """One step of SGD in place, on a CPU with `recsys_lab.kernels.available()`.

    Bit for bit torch.optim.SGD on the FP32 weights. With g the gradient, w the weight in FP32, and fma rounding once:

        g = fma(weight_decay, w, g);  v = momentum * v + g;  w = fma(-lr, v, w)

    All tensors have one shape and are contiguous.

    Args:
        weight, rest: the two parts of weights in one of the formats of `recsys_lab.kernels.stored`.
        grad: FP32 or BF16.
        lr: learning rate.
        weight_decay: times the weight, added to its gradient.
        momentum: of `velocity`.
        velocity: FP32, torch's momentum buffer; needed with `momentum`.
    """
    parts = [weight, grad, *(part for part in (rest, velocity) if part is not None)]
    assert all(part.shape == weight.shape and part.is_contiguous() and part.device.type == "cpu" for part in parts), "one shape, contiguous"
    assert grad.dtype in (torch.float32, torch.bfloat16) and (velocity is None or velocity.dtype == torch.float32)
    _function()(
        weight.data_ptr(),
        None if rest is None else rest.data_ptr(),
        FORMAT[weight.dtype, None if rest is None else rest.dtype],
        grad.data_ptr(),
        grad.dtype == torch.bfloat16,
        weight.numel(),
        lr,
        weight_decay,
        momentum,
        None if velocity is None else velocity.data_ptr(),
        torch.get_num_threads() if weight.numel() > FEW_ELEMENTS else 1,
    )
