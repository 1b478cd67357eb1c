"""HSTU's attention over sequences of any length: on a GPU in one kernel forward and three backward (triton_attention.py), on a CPU by
jagged_attention.py.

Elsewhere models/pointwise.py computes it by torch, which says what it means.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from recsys_lab.kernels import jagged_attention
from recsys_lab.kernels.choice import triton_for
from recsys_lab.kernels.jagged_attention import ByTime, attends_on_cpu

#: By format and kernel: rows and columns of a block that a program works on, its warps, and how many steps it loads ahead. Eight of each
#: were tried on an H100 in BF16, four in FP32. These are the fastest.
BLOCKS = {
    torch.bfloat16: {"attend": (64, 64, 4, 3), "of_queries": (64, 64, 4, 3), "of_keys_and_values": (64, 64, 4, 3)},
    torch.float32: {"attend": (64, 32, 4, 2), "of_queries": (64, 64, 4, 2), "of_keys_and_values": (32, 64, 4, 2)},
}
#: Of the bias: side of a square, warps, steps ahead. And how many programs share the squares of one distance.
SQUARE, SQUARE_PROGRAMS = (64, 4, 3), 32
#: Columns of a head. Blocks of wider ones have not been tried, and may not fit into a processor of the GPU.
WIDEST = 64


def fuses_attention(rows: Tensor, head_columns: int, by_time: bool = False) -> bool:
    """Whether `causal_silu` can be used where `rows` are, for heads of so many columns. `by_time`: with a bias by time."""
    return attends_on_cpu(rows) or (not by_time and head_columns <= WIDEST and triton_for(rows))


def causal_silu(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor,
    lengths: Tensor,
    longest: int,
    heads: int,
    divisor: int,
    by_time: ByTime | None = None,
) -> Tensor:
    """Row i of a sequence -> the sum over its rows j up to i of SiLU(q_i k_j + bias[i - j]) / divisor times v_j, for each head.

    Args:
        q, k: [N, h * d], FP32 or on a GPU BF16, rows with any stride.
        v: [N, h * e], of that format.
        bias: [L], FP32, by distance. Farther rows share the last.
        lengths: [B], int64, of sequences that lie one after the other. They add up to N.
        longest: of the lengths.
        heads: h.
        divisor: a number that does not depend on the sequence.
        by_time: on a CPU, a bias by the time between rows.

    Returns:
        [N, h * e], of v's format. In FP32 products are TF32's where torch's are.
    """
    if q.device.type == "cpu":
        return jagged_attention.causal_silu(q, k, v, bias, lengths, heads, divisor, by_time)
    assert by_time is None, "no kernel of a GPU has a bias by time"
    return by_triton(q, k, v, bias, lengths, longest, heads, divisor)


def by_triton(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, lengths: Tensor, longest: int, heads: int, divisor: int) -> Tensor:
    """`causal_silu` on a GPU, or where Triton is interpreted."""
    assert q.dtype == k.dtype == v.dtype and q.dtype in BLOCKS, "queries, keys and values are all FP32 or all BF16"
    return _CausalSilu.apply(q, k, v, bias, lengths, longest, heads, divisor)


class _CausalSilu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor, lengths: Tensor, longest: int, heads: int, divisor: int) -> Tensor:
        from recsys_lab.kernels import triton_attention as kernels

        q, k, v, bias = (_dense(one) for one in (q, k, v, bias))
        ends, out = lengths.cumsum(0), v.new_empty(v.shape)
        ctx.save_for_backward(q, k, v, bias, ends, lengths)
        ctx.longest, ctx.heads, ctx.divisor = longest, heads, divisor
        if len(q):
            how = _how(q, v, heads, "attend")
            blocks = -(-longest // how["ROWS"])
            with torch.cuda.device_of(q):
                kernels.attend[(blocks * heads * len(lengths),)](
                    *(out, q, k, v, bias, ends, lengths, q.stride(0), k.stride(0), v.stride(0), out.stride(0)),
                    *(blocks, heads, len(bias), divisor),
                    **how,
                )
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        from recsys_lab.kernels import triton_attention as kernels

        q, k, v, bias, ends, lengths = ctx.saved_tensors
        of_q, of_k, of_v, grad, heads = q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape), _dense(grad), ctx.heads
        if not len(q):
            return of_q, of_k, of_v, torch.zeros_like(bias), None, None, None, None
        inputs = (grad, q, k, v, bias, ends, lengths)
        strides = (grad.stride(0), q.stride(0), k.stride(0), v.stride(0))
        with torch.cuda.device_of(q):
            how = _how(q, v, heads, "of_queries")
            blocks = -(-ctx.longest // how["ROWS"])
            kernels.of_queries[(blocks * heads * len(lengths),)](
                *(of_q, *inputs, of_q.stride(0), *strides, blocks, heads, len(bias), ctx.divisor), **how
            )
            how = _how(q, v, heads, "of_keys_and_values")
            blocks = -(-ctx.longest // how["COLUMNS"])
            kernels.of_keys_and_values[(blocks * heads * len(lengths),)](
                *(of_k, of_v, *inputs, of_k.stride(0), of_v.stride(0), *strides, blocks, heads, len(bias), ctx.divisor), **how
            )
            if not ctx.needs_input_grad[3]:
                return of_q, of_k, of_v, None, None, None, None, None
            side, warps, stages = SQUARE
            squares, parts = -(-ctx.longest // side), min(SQUARE_PROGRAMS, heads * len(lengths))
            tiles = torch.empty(squares, parts, side, side, device=q.device)
            kernels.of_bias[(squares * parts,)](
                *(tiles, *inputs, *strides, parts, len(lengths), heads, len(bias), ctx.divisor),
                **_sizes(q, v, heads) | {"SIDE": side, "num_warps": warps, "num_stages": stages},
            )
        return of_q, of_k, of_v, _by_distance(tiles.sum(1), len(bias)), None, None, None, None


def _by_distance(squares: Tensor, distances: int) -> Tensor:
    """squares [m, S, S], where row i of square f is i + f * S - j from column j -> sums by that distance [distances].

    The last has all that are farther. Each diagonal becomes a column: rows are turned around, and each begins one place later.
    """
    count, side, _ = squares.shape
    rows = torch.nn.functional.pad(squares.flip(2), (0, side)).flatten(1)[:, : side * (2 * side - 1)]
    sums = rows.view(count, side, 2 * side - 1).sum(1)  # [m, distances from 1 - S to S - 1 of each square's own]
    diagonals = sums.new_zeros(count * side)
    diagonals += sums[:, side - 1 :].flatten()
    diagonals[: (count - 1) * side].view(count - 1, side)[:, 1:] += sums[1:, : side - 1]
    near = diagonals.new_zeros(distances)
    near[: len(diagonals)] = diagonals[:distances]
    near[-1] += diagonals[distances:].sum()
    return near


def _how(q: Tensor, v: Tensor, heads: int, kernel: str) -> dict[str, Any]:
    """A kernel's sizes, and how it is compiled."""
    rows, columns, warps, stages = BLOCKS[q.dtype][kernel]
    return _sizes(q, v, heads) | {"ROWS": rows, "COLUMNS": columns, "num_warps": warps, "num_stages": stages}


def _sizes(q: Tensor, v: Tensor, heads: int) -> dict[str, Any]:
    dim, value_dim = q.shape[1] // heads, v.shape[1] // heads
    wide, value_wide = (max(16, 1 << (one - 1).bit_length()) for one in (dim, value_dim))
    in_tf32 = torch.backends.cuda.matmul.allow_tf32 and os.environ.get("NVIDIA_TF32_OVERRIDE") != "0"
    return {"DIM": dim, "WIDE": wide, "VALUE_DIM": value_dim, "VALUE_WIDE": value_wide, "PRECISION": "tf32" if in_tf32 else "ieee"}


def _dense(rows: Tensor) -> Tensor:
    """`rows` with their columns next to one another."""
    return rows if rows.stride(-1) == 1 else rows.contiguous()
