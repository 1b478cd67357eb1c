"""What lies between the matrix products of a dense part, in one pass each: dots of all pairs of vectors, and the way back through a ReLU.

Tensors are FP32 or BF16 on a CPU. Sums are FP32's, in an order that does not depend on the threads; each function's definition in torch
is in its docstring, and serves where `recsys_lab.kernels.available()` is False.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from recsys_lab.kernels.build import library

FORMATS = (torch.float32, torch.bfloat16)
_p, _i64, _int = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int


@functools.cache
def _functions() -> ctypes.CDLL:
    found = library()
    vectors = (ctypes.POINTER(_p), ctypes.POINTER(_i64), _i64, _i64, _i64, _int)
    for name, arguments in {
        "pair_dots": (*vectors, _p, _i64, _int),
        "pair_dots_backward": (*vectors, _p, _i64, _p, _int),
        "relu_backward": (_p, _p, _i64, _i64, _int, _p, _p, _int),
        "relu_backward_turned": (_p, _p, _i64, _i64, _p, _p, _p, _int),
    }.items():
        function = getattr(found, name)
        function.argtypes, function.restype = arguments, None
    return found


def pair_dots(vectors: Sequence[Tensor]) -> Tensor:
    """F vectors, each [B, D] of one format -> [B, F (F - 1) / 2]: the dots of all pairs, the strict upper triangle row by row.

    As `torch.stack([(a * b).sum(1) for a, b in combinations(vectors, 2)], 1)`.
    """
    given, kept = _given(vectors)
    count, samples = len(kept), len(kept[0])
    out = kept[0].new_empty(samples, count * (count - 1) // 2)
    _functions().pair_dots(*given, out.data_ptr(), out.stride(0), torch.get_num_threads())
    return out


def pair_dots_backward(vectors: Sequence[Tensor], grad: Tensor) -> Tensor:
    """The gradients of `vectors` [B, F, D], from that of `pair_dots` [B, F (F - 1) / 2]."""
    given, kept = _given(vectors)
    grad = grad if grad.stride(1) == 1 else grad.contiguous()
    out = kept[0].new_empty(len(kept[0]), len(kept), kept[0].shape[1])
    _functions().pair_dots_backward(*given, grad.data_ptr(), grad.stride(0), out.data_ptr(), torch.get_num_threads())
    return out


def relu_backward(grad: Tensor, made: Tensor) -> tuple[Tensor, Tensor]:
    """grad and made [B, O], what the ReLU gave -> (`grad * (made > 0)` [B, O], its `sum(0)` [O])."""
    grad, made = grad.contiguous(), made.contiguous()
    out, sums = torch.empty_like(grad), grad.new_empty(grad.shape[1])
    addresses = (grad.data_ptr(), made.data_ptr()), (out.data_ptr(), sums.data_ptr())
    _functions().relu_backward(*addresses[0], *grad.shape, grad.dtype == torch.bfloat16, *addresses[1], torch.get_num_threads())
    return out, sums


def relu_backward_turned(grad: Tensor, made: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """`relu_backward` in FP32, and between its results the gradient's transpose [O, B], laid out as such: (gradient, turned, sums)."""
    grad, made = grad.contiguous(), made.contiguous()
    assert grad.dtype == made.dtype == torch.float32
    if grad.shape[0] % 16 or grad.shape[1] % 16:
        out, sums = relu_backward(grad, made)
        return out, out.t().contiguous(), sums
    out, turned, sums = torch.empty_like(grad), grad.new_empty(grad.shape[::-1]), grad.new_empty(grad.shape[1])
    addresses = (grad.data_ptr(), made.data_ptr()), (out.data_ptr(), turned.data_ptr(), sums.data_ptr())
    _functions().relu_backward_turned(*addresses[0], *grad.shape, *addresses[1], torch.get_num_threads())
    return out, turned, sums


def _given(vectors: Sequence[Tensor]) -> tuple[tuple, list[Tensor]]:
    """The first arguments of the C++ functions, and the tensors that must live as long as they are used."""
    kept = [v if v.stride(1) == 1 else v.contiguous() for v in vectors]
    (samples, dim), count = kept[0].shape, len(kept)
    assert all(v.shape == (samples, dim) and v.dtype == kept[0].dtype and v.dtype in FORMATS for v in kept)
    addresses, steps = (_p * count)(*(v.data_ptr() for v in kept)), (_i64 * count)(*(v.stride(0) for v in kept))
    return (addresses, steps, count, dim, samples, kept[0].dtype == torch.bfloat16), kept
