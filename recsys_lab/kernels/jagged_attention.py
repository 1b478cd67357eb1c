"""Attention over sequences of any length on a CPU, in one kernel forward and one backward (csrc/attention.cpp).

Each function's torch definition is in models/. It runs where `attends_on_cpu` is False. N rows of B sequences lie one after the other.
Memory beside the results is that of one sequence's head for each thread. Sums are FP32's, in an order of each sequence's own: no bit
depends on threads or on the other sequences.

Dropout draws a key from torch's CPU generator. A weight's random bits are Threefry-2x32's with 13 rounds (Salmon et al. 2011) of the key,
its row, its head and its column, so the backward pass finds them again. It is zero where they are below p 2^32, else divided by 1 - p.
"""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from recsys_lab.kernels.build import library
from recsys_lab.kernels.choice import available
from recsys_lab.kernels.native import FEW_ELEMENTS, instructions

_p, _i64, _f32 = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float


class _Attention(ctypes.Structure):
    """Mirrors csrc/attention.cpp."""

    _fields_ = (
        *((name, _p) for name in ("q", "k", "v")),
        *((name, _i64) for name in ("q_step", "k_step", "v_step")),
        ("lengths", _p),
        *((name, _i64) for name in ("samples", "heads", "dim", "value_dim", "last_alone")),
        *((name, _p) for name in ("out", "stats", "grad")),
        ("grad_step", _i64),
        *((name, _p) for name in ("of_q", "of_k", "of_v")),
        *(("scale", _f32), ("dropped", _f32), ("seed", ctypes.c_uint64)),
        *(("bias", _p), ("of_bias", _p), ("of_rows", _p), ("distances", _i64), ("divisor", _f32)),
        *((name, _p) for name in ("times", "of_time", "starts", "of_of_time", "of_heads")),
        ("buckets", _i64),
    )


@functools.cache
def _functions() -> ctypes.CDLL:
    kernels = library()
    for name in ("causal_softmax", "causal_softmax_backward", "causal_silu", "causal_silu_backward"):
        function = getattr(kernels, name)
        function.argtypes, function.restype = (ctypes.POINTER(_Attention), ctypes.c_int), None
    return kernels


def attends_on_cpu(rows: Tensor) -> bool:
    """Whether these kernels read rows like `rows`: FP32, on a CPU that has AVX2 or AVX-512. An exported program has torch's operations."""
    return rows.device.type == "cpu" and rows.dtype == torch.float32 and not torch.compiler.is_exporting() and _fast()


@functools.cache
def _fast() -> bool:
    """Without a vector instruction for a product and a sum, torch is faster."""
    return available() and instructions() != "baseline"


def causal_softmax(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, heads: int, dropout: float = 0.0) -> Tensor:
    """Row i of a sequence -> the sum over its rows j up to i of softmax(q_i k_j / sqrt(d)) v_j, for each head.

    Args:
        q, k: [N, h * d], FP32, rows with any stride.
        v: [N, h * e].
        lengths: int64 [B], of sequences that lie one after the other.
        heads: h.
        dropout: share of the weights that become zero; the others are divided by what is left.

    Returns:
        [N, h * e].

    Raises:
        IndexError: the lengths do not add up to N.
    """
    return _CausalSoftmax.apply(q, k, v, lengths, heads, dropout)


@dataclass(frozen=True)
class ByTime:
    """A bias by the time between two rows. Bucket 0 has times below starts[0], bucket b those from starts[b - 1] on."""

    times: Tensor  # int64 [N]
    starts: Tensor  # FP32 [buckets - 1], rising
    weights: Tensor  # FP32 [buckets]


def causal_silu(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor, lengths: Tensor, heads: int, divisor: int, by_time: ByTime | None = None
) -> Tensor:
    """Row i of a sequence -> the sum over its rows j up to i of SiLU(q_i k_j + bias[i - j]) / divisor times v_j, for each head.

    Args:
        q, k, v, lengths, heads: those of `causal_softmax`.
        bias: [L], FP32, by distance. Farther rows share the last.
        divisor: a number that does not depend on the sequence.
        by_time: what is added to each score beside `bias`.

    Returns:
        [N, h * e].

    Raises:
        IndexError: the lengths do not add up to N.
    """
    times = (None, None, None) if by_time is None else (by_time.times, by_time.starts, by_time.weights)
    return _CausalSilu.apply(q, k, v, bias, *times, lengths, heads, divisor)


def last_softmax(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, heads: int) -> Tensor:
    """`causal_softmax` of the last row of each sequence alone, in no graph: q [B, h * d] -> [B, h * e], zeros where it is empty."""
    q, k, v = (_dense(one) for one in (q, k, v))
    out, stats = v.new_zeros(len(q), v.shape[1]), v.new_empty(len(q), heads, 2)
    given = _given(q, k, v, lengths, heads, out, last_alone=True)
    _softmax(given, stats, 0.0, 0)
    _functions().causal_softmax(given, _threads(k))
    return out


def last_silu(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor, lengths: Tensor, heads: int, divisor: int, by_time: ByTime | None = None
) -> Tensor:
    """`causal_silu` of the last row of each sequence alone, in no graph: q [B, h * d] -> [B, h * e], zeros where it is empty."""
    q, k, v, bias = (*(_dense(one) for one in (q, k, v)), bias.contiguous())
    out = v.new_zeros(len(q), v.shape[1])
    given = _given(q, k, v, lengths, heads, out, last_alone=True)
    _silu(given, bias, divisor)
    if by_time is not None:
        _by_time(given, by_time.times, by_time.starts, by_time.weights)
    _functions().causal_silu(given, _threads(k))
    return out


class _CausalSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, heads: int, dropout: float) -> Tensor:
        ctx.heads, ctx.dropout = heads, dropout
        ctx.seed = int(torch.empty((), dtype=torch.int64).random_()) if dropout else 0
        q, k, v = (_dense(one) for one in (q, k, v))
        out, stats = v.new_empty(v.shape), v.new_empty(len(v), heads, 2)
        given = _given(q, k, v, lengths, heads, out)
        _softmax(given, stats, ctx.dropout, ctx.seed)
        _functions().causal_softmax(given, _threads(q))
        ctx.save_for_backward(q, k, v, lengths, out, stats)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, lengths, out, stats = ctx.saved_tensors
        grad, grads = _dense(grad), tuple(one.new_empty(one.shape) for one in (q, k, v))
        given = _given(q, k, v, lengths, ctx.heads, out)
        _softmax(given, stats, ctx.dropout, ctx.seed)
        _backward(given, grad, grads)
        _functions().causal_softmax_backward(given, _threads(q))
        return *grads, None, None, None


class _CausalSilu(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Tensor,
        times: Tensor | None,
        starts: Tensor | None,
        weights: Tensor | None,
        lengths: Tensor,
        heads: int,
        divisor: int,
    ) -> Tensor:
        ctx.heads, ctx.divisor = heads, divisor
        q, k, v, bias = (*(_dense(one) for one in (q, k, v)), bias.contiguous())
        out = v.new_empty(v.shape)
        given = _given(q, k, v, lengths, heads, out)
        _silu(given, bias, divisor)
        if times is not None and starts is not None and weights is not None:
            weights = weights.contiguous()
            _by_time(given, times, starts, weights)
        _functions().causal_silu(given, _threads(q))
        ctx.save_for_backward(q, k, v, bias, lengths, times, starts, weights)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, bias, lengths, times, starts, weights = ctx.saved_tensors
        grad, grads = _dense(grad), tuple(one.new_empty(one.shape) for one in (q, k, v))
        of_bias, of_rows = (torch.empty_like(bias), q.new_empty(len(q) * ctx.heads)) if ctx.needs_input_grad[3] else (None, None)
        given = _given(q, k, v, lengths, ctx.heads, None)
        _silu(given, bias, ctx.divisor)
        _backward(given, grad, grads)
        if of_bias is not None and of_rows is not None:
            given.of_bias, given.of_rows = of_bias.data_ptr(), of_rows.data_ptr()
        of_weights = None
        if times is not None:
            _by_time(given, times, starts, weights)
            of_weights, of_heads = torch.empty_like(weights), torch.empty(len(lengths) * ctx.heads, len(weights), dtype=torch.float64)
            given.of_of_time, given.of_heads = of_weights.data_ptr(), of_heads.data_ptr()
        _functions().causal_silu_backward(given, _threads(q))
        return *grads, of_bias, None, None, of_weights, None, None, None


def _given(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, heads: int, out: Tensor | None, *, last_alone: bool = False) -> _Attention:
    assert q.dtype == k.dtype == v.dtype == torch.float32 and lengths.dtype == torch.int64 and lengths.is_contiguous()
    assert q.shape[1] == k.shape[1] and k.shape[1] % heads == v.shape[1] % heads == 0, (q.shape, k.shape, v.shape, heads)
    assert len(k) == len(v) and len(q) == (len(lengths) if last_alone else len(k)), (q.shape, k.shape, v.shape, lengths.shape)
    if (rows := int(lengths.sum())) != len(k):
        raise IndexError(f"lengths add up to {rows}, and there are {len(k)} rows")
    given = _Attention(*(one.data_ptr() for one in (q, k, v)), *(one.stride(0) for one in (q, k, v)), lengths.data_ptr())
    given.samples, given.heads, given.dim, given.value_dim = len(lengths), heads, q.shape[1] // heads, v.shape[1] // heads
    given.last_alone = last_alone
    given.out = None if out is None else out.data_ptr()
    return given


def _softmax(given: _Attention, stats: Tensor, dropout: float, seed: int) -> None:
    given.stats, given.scale, given.dropped, given.seed = stats.data_ptr(), given.dim**-0.5, dropout, seed


def _silu(given: _Attention, bias: Tensor, divisor: int) -> None:
    assert bias.dtype == torch.float32 and len(bias), bias
    given.bias, given.distances, given.divisor = bias.data_ptr(), len(bias), divisor


def _by_time(given: _Attention, times: Tensor, starts: Tensor, weights: Tensor) -> None:
    assert times.dtype == torch.int64 and starts.dtype == weights.dtype == torch.float32 and len(starts) == len(weights) - 1
    assert times.is_contiguous() and starts.is_contiguous() and weights.is_contiguous()
    given.times, given.of_time, given.starts, given.buckets = times.data_ptr(), weights.data_ptr(), starts.data_ptr(), len(weights)


def _backward(given: _Attention, grad: Tensor, grads: tuple[Tensor, ...]) -> None:
    given.grad, given.grad_step = grad.data_ptr(), grad.stride(0)
    given.of_q, given.of_k, given.of_v = (one.data_ptr() for one in grads)


def _dense(rows: Tensor) -> Tensor:
    """`rows` with their columns next to one another."""
    return rows if rows.stride(1) == 1 else rows.contiguous()


def _threads(rows: Tensor) -> int:
    return torch.get_num_threads() if rows.numel() > FEW_ELEMENTS else 1
