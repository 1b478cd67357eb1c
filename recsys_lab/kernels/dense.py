"""The work between the matrix products of a dense arch, in one pass each.

It is the dots of all pairs of vectors, and the backward passes of a ReLU and of a layer with one output. One product is ours as well:
that by weights in BF16, where the processor has tiles.

Tensors are FP32 or BF16 on a CPU. Sums are FP32's, in an order that does not depend on the threads. Each function's docstring defines it in
torch. That definition runs where `recsys_lab.kernels.available()` is False.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from recsys_lab.kernels.build import library
from recsys_lab.kernels.choice import available
from recsys_lab.kernels.cpu.nontemporal_stores import nontemporal_stores

FORMATS = (torch.float32, torch.bfloat16)
_p, _i64, _int = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int


class _Vectors(ctypes.Structure):
    """Mirrors csrc/dots_bf16.h."""

    _fields_ = [
        *(("at", ctypes.POINTER(_p)), ("steps", ctypes.POINTER(_i64))),
        *((name, _i64) for name in ("count", "dim", "samples")),
        *((name, ctypes.c_int32) for name in ("bf16", "lead", "tiles", "past")),
    ]


@functools.cache
def _functions() -> ctypes.CDLL:
    kernels = library()
    for name, arguments in {
        "pair_dots": (ctypes.POINTER(_Vectors), _p, _i64, _int),
        "pair_dots_backward": (ctypes.POINTER(_Vectors), _p, _i64, ctypes.POINTER(_p), ctypes.POINTER(_i64), _int),
        "relu_backward": (_p, _p, _i64, _i64, _int, _p, _p, _int),
        "relu_backward_widened": (_p, _p, _i64, _i64, _p, _p, _int),
        "relu_backward_turned": (_p, _p, _i64, _i64, _int, _p, _p, _p, _int),
        "to_one_backward": (_p, _p, _p, _i64, _i64, _int, _p, _p, _int),
        "product_by_weights": (_p, _i64, _p, _i64, _i64, _i64, _i64, _p, _int),
    }.items():
        function = getattr(kernels, name)
        function.argtypes, function.restype = arguments, None
    return kernels


def pair_dots(parts: Sequence[Tensor], *, lead: bool = False) -> Tensor:
    """Dot products of all pairs of F vectors, the strict upper triangle row by row.

    As `torch.stack([(a * b).sum(1) for a, b in combinations(vectors, 2)], 1)` of the F vectors, after `torch.cat` with the first.

    Args:
        parts: vectors in parts, each [B, any number, D] of one format, F in all.
        lead: whether the first vector itself comes before its dots.

    Returns:
        [B, F (F - 1) / 2]; with `lead` [B, D + F (F - 1) / 2].
    """
    kept = [_whole(part) for part in parts]
    vectors = _vectors(kept, lead)
    out = kept[0].new_empty(vectors.samples, vectors.count * (vectors.count - 1) // 2 + (vectors.dim if lead else 0))
    _functions().pair_dots(vectors, out.data_ptr(), out.stride(0), torch.get_num_threads())
    return out


def pair_dots_backward(parts: Sequence[Tensor], grad: Tensor, *, lead: bool = False) -> tuple[Tensor, ...]:
    """The backward pass of `pair_dots`.

    Args:
        parts, lead: those of `pair_dots`.
        grad: of its result.

    Returns:
        The gradients of `parts`, in their shapes.
    """
    kept = [_whole(part) for part in parts]
    vectors, grads = _vectors(kept, lead), tuple(part.new_empty(part.shape) for part in kept)
    vectors.past = not vectors.bf16 and nontemporal_stores(grads, vectors.dim)
    grad = grad if grad.stride(1) == 1 else grad.contiguous()
    _functions().pair_dots_backward(vectors, grad.data_ptr(), grad.stride(0), *_addresses(grads), torch.get_num_threads())
    return grads


def relu_backward(grad: Tensor, output: Tensor, *, in_place: bool = False) -> tuple[Tensor, Tensor]:
    """The backward pass of a ReLU and of the bias before it.

    Args:
        grad: [B, O], of the ReLU's output.
        output: [B, O], the ReLU's output.
        in_place: whether the first result is `grad`, if that is contiguous.

    Returns:
        (`grad * (output > 0)` [B, O], its `sum(0)` [O]).
    """
    grad, output = grad.contiguous(), output.contiguous()
    out, sums = grad if in_place else torch.empty_like(grad), grad.new_empty(grad.shape[1])
    addresses = (grad.data_ptr(), output.data_ptr()), (out.data_ptr(), sums.data_ptr())
    _functions().relu_backward(*addresses[0], *grad.shape, grad.dtype == torch.bfloat16, *addresses[1], torch.get_num_threads())
    return out, sums


def relu_backward_widened(grad: Tensor, output: Tensor) -> tuple[Tensor, Tensor]:
    """`relu_backward` in BF16, with the gradient in FP32.

    Args:
        grad, output: those of `relu_backward`.

    Returns:
        (gradient [B, O] in FP32, sums [O] in BF16).
    """
    grad, output = grad.contiguous(), output.contiguous()
    assert grad.dtype == output.dtype == torch.bfloat16
    out, sums = torch.empty_like(grad, dtype=torch.float32), grad.new_empty(grad.shape[1])
    _functions().relu_backward_widened(
        grad.data_ptr(), output.data_ptr(), *grad.shape, out.data_ptr(), sums.data_ptr(), torch.get_num_threads()
    )
    return out, sums


def relu_backward_transposed(grad: Tensor, output: Tensor, *, in_place: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """`relu_backward`, with the gradient's transpose.

    Args:
        grad, output, in_place: those of `relu_backward`.

    Returns:
        (gradient [B, O], its transpose [O, B], laid out as such, sums [O]).
    """
    grad, output = grad.contiguous(), output.contiguous()
    bf16 = grad.dtype == torch.bfloat16
    assert grad.dtype == output.dtype and grad.dtype in FORMATS, (grad.dtype, output.dtype)
    if not bf16 and (grad.shape[0] % 16 or grad.shape[1] % 16):
        out, sums = relu_backward(grad, output, in_place=in_place)
        return out, out.t().contiguous(), sums
    out = grad if in_place else torch.empty_like(grad)
    transposed, sums = grad.new_empty(grad.shape[::-1]), grad.new_empty(grad.shape[1])
    addresses = (grad.data_ptr(), output.data_ptr()), (out.data_ptr(), transposed.data_ptr(), sums.data_ptr())
    _functions().relu_backward_turned(*addresses[0], *grad.shape, bf16, *addresses[1], torch.get_num_threads())
    return out, transposed, sums


def to_one_backward(grad: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The backward pass of a layer with one output.

    Args:
        grad: [B, 1], of its output.
        x: [B, I], its input.
        weight: [1, I], all of one format.

    Returns:
        (`grad * weight` [B, I], `grad.t() @ x` [1, I]).
    """
    grad, x, weight = grad.contiguous(), x.contiguous(), weight.contiguous()
    of_x, of_weight = torch.empty_like(x), torch.empty_like(weight)
    inputs, outputs = (t.data_ptr() for t in (x, grad, weight)), (of_x.data_ptr(), of_weight.data_ptr())
    _functions().to_one_backward(*inputs, *x.shape, grad.dtype == torch.bfloat16, *outputs, torch.get_num_threads())
    return of_x, of_weight


@functools.cache
def has_tiles() -> bool:
    """Whether our kernels multiply BF16 matrices in tiles here: the processor has them (AMX), and the system lets this process use them."""
    return available() and bool(library().tiles_allowed())


def product_by_weights(grad: Tensor, x: Tensor) -> Tensor:
    """`grad.t() @ x` in BF16, by tiles. Neither operand is transposed in memory before.

    Args:
        grad: [B, O], of a layer's output. B is at least 1.
        x: [B, I], the layer's input.

    Returns:
        [O, I], summed in FP32 and rounded once.
    """
    assert has_tiles() and grad.dtype == x.dtype == torch.bfloat16, (grad.dtype, x.dtype)
    grad, x = (t if t.stride(1) == 1 else t.contiguous() for t in (grad, x))
    out = grad.new_empty(grad.shape[1], x.shape[1])
    operands = (grad.data_ptr(), grad.stride(0), x.data_ptr(), x.stride(0))
    _functions().product_by_weights(*operands, len(grad), *out.shape, out.data_ptr(), torch.get_num_threads())
    return out


def _whole(part: Tensor) -> Tensor:
    return part if part.stride(2) == 1 else part.contiguous()


def _vectors(parts: Sequence[Tensor], lead: bool) -> _Vectors:
    samples, _, dim = parts[0].shape
    kinds = {(part.shape[0], part.shape[2], part.dtype) for part in parts}
    assert kinds in ({(samples, dim, dtype)} for dtype in FORMATS), kinds
    bf16, count = parts[0].dtype == torch.bfloat16, sum(part.shape[1] for part in parts)
    return _Vectors(*_addresses(parts), count, dim, samples, bf16, lead, bf16 and has_tiles())


def _addresses(parts: Sequence[Tensor]) -> tuple[ctypes.Array, ctypes.Array]:
    """Where each vector of `parts` begins, and how many elements lie from one sample's to the next's."""
    addresses = [part.data_ptr() + at * part.stride(1) * part.element_size() for part in parts for at in range(part.shape[1])]
    steps = [part.stride(0) for part in parts for _ in range(part.shape[1])]
    return (_p * len(addresses))(*addresses), (_i64 * len(steps))(*steps)
