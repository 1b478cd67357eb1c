"""SGD and Adam over weights in any format, a vector at a time, as torch computes them: one pass that makes no FP32 copy."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from recsys_lab.kernels.build import library
from recsys_lab.kernels.native import FORMAT

#: Elements below which one thread is quicker than waking others.
FEW_ELEMENTS = 1 << 15
_p, _int, _i64, _f32 = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64, ctypes.c_float


class _Gradients(ctypes.Structure):
    """Mirrors csrc/weights.cpp."""

    _fields_ = (
        *(("at", ctypes.POINTER(_p)), ("starts", ctypes.POINTER(_i64)), ("sizes", ctypes.POINTER(_i64))),
        *(("count", _i64), ("bf16", _int)),
    )


@functools.cache
def _functions() -> Any:
    kernels = library()
    vector = (_p, _p, _int, ctypes.POINTER(_Gradients), _f32, _int)
    kernels.sgd_step.argtypes = (*vector, _f32, _f32, _p)
    kernels.adam_step.argtypes = (*vector, _p, _p, _f32, _f32, _f32, _f32, _f32, _f32)
    kernels.sgd_step.restype = kernels.adam_step.restype = None
    return kernels


@dataclass(frozen=True)
class Vector:
    """Weights of a dense arch as one vector [P], in one of the formats of `recsys_lab.kernels.stored`, and where its parameters lie.

    `starts`: of each parameter, in the order of the gradients that a step gets. A parameter has as many elements as its gradient. What lies
    between two parameters does not move.
    """

    weight: torch.Tensor
    rest: torch.Tensor | None
    starts: Sequence[int]

    def _arguments(self, gradients: Sequence[torch.Tensor], weight_decay: float, *states: torch.Tensor) -> tuple:
        """What a step of any optimizer is called with first."""
        for part in (self.weight, *states, *(() if self.rest is None else (self.rest,))):
            assert part.shape == self.weight.shape and part.is_contiguous() and part.is_cpu, "one shape, contiguous"
        formats, count = {gradient.dtype for gradient in gradients}, len(self.starts)
        assert len(gradients) == count and formats <= {torch.float32, torch.bfloat16} and len(formats) <= 1, formats
        assert all(gradient.is_contiguous() for gradient in gradients) and all(state.dtype == torch.float32 for state in states)
        sizes = [gradient.numel() for gradient in gradients]
        assert all(start + size <= len(self.weight) for start, size in zip(self.starts, sizes)), "gradients of these weights"
        pointers = (_p * count)(*(gradient.data_ptr() for gradient in gradients)), (_i64 * count)(*self.starts), (_i64 * count)(*sizes)
        low, low_type = (None, None) if self.rest is None else (self.rest.data_ptr(), self.rest.dtype)
        threads = torch.get_num_threads() if len(self.weight) > FEW_ELEMENTS else 1
        struct = _Gradients(*pointers, count, torch.bfloat16 in formats)
        return self.weight.data_ptr(), low, FORMAT[self.weight.dtype, low_type], struct, weight_decay, threads


def sgd_step(
    vector: Vector,
    gradients: Sequence[torch.Tensor],
    *,
    lr: float,
    weight_decay: float = 0.0,
    momentum: float = 0.0,
    velocity: torch.Tensor | None = None,
) -> None:
    """One step of SGD in place, on a CPU with `recsys_lab.kernels.available()`.

    Bit for bit torch.optim.SGD on the FP32 weights. With g the gradient, w the weight in FP32, and fma rounding once:

        g = fma(weight_decay, w, g);  v = momentum * v + g;  w = fma(-lr, v, w)

    Args:
        vector: the weights.
        gradients: of each parameter, contiguous, all FP32 or all BF16.
        lr: learning rate.
        weight_decay: times the weight, added to its gradient.
        momentum: of `velocity`.
        velocity: FP32 [P], torch's momentum buffer; needed with `momentum`.
    """
    vector_arguments = vector._arguments(gradients, weight_decay, *(() if velocity is None else (velocity,)))
    _functions().sgd_step(*vector_arguments, lr, momentum, None if velocity is None else velocity.data_ptr())


@dataclass(frozen=True)
class AdamStep:
    """Adam's step number `step`, from 1 on. `betas`: how much of its averages stays, at least half of the first. `eps`: beside the root."""

    step: int
    lr: float
    betas: tuple[float, float]
    eps: float
    weight_decay: float = 0.0

    @property
    def root(self) -> float:
        """What the root of the average square is divided by: it began at zero."""
        return (1 - self.betas[1] ** self.step) ** 0.5

    @property
    def rate(self) -> float:
        """The learning rate, divided by what the average is for the same reason."""
        return self.lr / (1 - self.betas[0] ** self.step)


def adam(weight: torch.Tensor, grad: torch.Tensor, mean: torch.Tensor, square: torch.Tensor, how: AdamStep) -> None:
    """The definition: torch.optim.Adam with roots that are rounded correctly, which MKL's are not. In place, on FP32 of one shape.

    With b the betas, and fma rounding once:

        g = fma(weight_decay, w, g);  m = fma(1 - b1, g - m, m);  s = fma((1 - b2) g, g, b2 s)
        w = w - rate m / (sqrt(s) / root + eps)

    Args:
        weight: w.
        grad: g.
        mean, square: torch's running averages of gradients (m) and of their squares (s).
        how: which step.
    """
    of_mean, of_square = how.betas
    if how.weight_decay:
        grad = grad.add(weight, alpha=how.weight_decay)
    mean.lerp_(grad, 1 - of_mean)
    square.mul_(of_square).addcmul_(grad, grad, value=1 - of_square)
    root = square.double().sqrt_().float()
    weight.addcdiv_(mean, root.div_(how.root).add_(how.eps), value=-how.rate)


def adam_step(vector: Vector, gradients: Sequence[torch.Tensor], mean: torch.Tensor, square: torch.Tensor, how: AdamStep) -> None:
    """`adam` of weights in any format in one pass, bit for bit, on a CPU with `recsys_lab.kernels.available()`.

    Args:
        vector, gradients: as of `sgd_step`.
        mean, square: FP32 [P].
        how: which step.
    """
    of_mean, of_square = how.betas
    assert of_mean >= 0.5, "torch computes the average by another formula"
    averages = (mean.data_ptr(), square.data_ptr(), 1 - of_mean, of_square, 1 - of_square)
    vector_arguments = vector._arguments(gradients, how.weight_decay, mean, square)
    _functions().adam_step(*vector_arguments, *averages, how.root, how.eps, how.rate)
