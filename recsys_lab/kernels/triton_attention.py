"""HSTU's attention in Triton, as programs of a GPU. No weight of a row towards another is written to memory. attention.py launches them.

    scores = Q K^T + bias of the distance;  weights = causal SiLU(scores) / divisor;  out = weights V       (HSTU, equation 2)

Rows of B sequences lie one after the other, those of sequence b before ends[b]. A program has a block of one sequence's rows, for one head,
and walks along the blocks that they see, or that see them. The backward pass makes the scores again. Each number is summed by one program,
in one order, so every run gives the same bits. Sums are in FP32, and divided at their end. Products are of the inputs' format, and of
`PRECISION` in FP32.

Shapes: N rows, h heads of `DIM` columns in queries and keys and `VALUE_DIM` in values. `WIDE` and `VALUE_WIDE` hold them, powers of two.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def attend(
    out, q, k, v, bias, ends, lengths, q_stride, k_stride, v_stride, out_stride, blocks, heads, distances, divisor,
    DIM: tl.constexpr, WIDE: tl.constexpr, VALUE_DIM: tl.constexpr, VALUE_WIDE: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """A block of rows: `out` [N, h * VALUE_DIM]."""
    length, begin, head, first = _part(ends, lengths, blocks, heads, ROWS)
    if first < length:
        rows, value_columns = first + tl.arange(0, ROWS), tl.arange(0, VALUE_WIDE)
        own = _tile(q, q_stride, begin, rows, length, head, DIM, WIDE)
        total = tl.zeros([ROWS, VALUE_WIDE], dtype=tl.float32)
        for start in range(0, tl.minimum(first + ROWS, length), COLUMNS):
            columns = start + tl.arange(0, COLUMNS)
            scores = tl.dot(own, tl.trans(_tile(k, k_stride, begin, columns, length, head, DIM, WIDE)), input_precision=PRECISION)
            scores, sigmoid, seen = _scored(scores, bias, rows[:, None] - columns[None, :], rows[:, None], length, distances)
            weights = tl.where(seen, scores * sigmoid, 0.0)
            values = _tile(v, v_stride, begin, columns, length, head, VALUE_DIM, VALUE_WIDE)
            total += tl.dot(weights.to(values.dtype), values, input_precision=PRECISION)
        at = out + (begin + rows)[:, None] * out_stride + head * VALUE_DIM + value_columns[None, :]
        tl.store(at, (total / divisor).to(out.dtype.element_ty), mask=(rows < length)[:, None] & (value_columns < VALUE_DIM)[None, :])


@triton.jit
def of_queries(
    grad_q, grad, q, k, v, bias, ends, lengths, grad_q_stride, grad_stride, q_stride, k_stride, v_stride, blocks, heads, distances, divisor,
    DIM: tl.constexpr, WIDE: tl.constexpr, VALUE_DIM: tl.constexpr, VALUE_WIDE: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """A block of rows: the gradient of their queries, [N, h * DIM]."""
    length, begin, head, first = _part(ends, lengths, blocks, heads, ROWS)
    if first < length:
        rows, wide = first + tl.arange(0, ROWS), tl.arange(0, WIDE)
        own = _tile(q, q_stride, begin, rows, length, head, DIM, WIDE)
        of_out = _tile(grad, grad_stride, begin, rows, length, head, VALUE_DIM, VALUE_WIDE)
        total = tl.zeros([ROWS, WIDE], dtype=tl.float32)
        for start in range(0, tl.minimum(first + ROWS, length), COLUMNS):
            columns = start + tl.arange(0, COLUMNS)
            keys = _tile(k, k_stride, begin, columns, length, head, DIM, WIDE)
            values = _tile(v, v_stride, begin, columns, length, head, VALUE_DIM, VALUE_WIDE)
            scores = tl.dot(own, tl.trans(keys), input_precision=PRECISION)
            of_weights = tl.dot(of_out, tl.trans(values), input_precision=PRECISION)
            distance = rows[:, None] - columns[None, :]
            of_scores, _ = _backward(scores, of_weights, bias, distance, rows[:, None], length, distances)
            total += tl.dot(of_scores.to(keys.dtype), keys, input_precision=PRECISION)
        at = grad_q + (begin + rows)[:, None] * grad_q_stride + head * DIM + wide[None, :]
        tl.store(at, (total / divisor).to(grad_q.dtype.element_ty), mask=(rows < length)[:, None] & (wide < DIM)[None, :])


@triton.jit
def of_keys_and_values(
    grad_k, grad_v, grad, q, k, v, bias, ends, lengths, grad_k_stride, grad_v_stride, grad_stride, q_stride, k_stride, v_stride,
    blocks, heads, distances, divisor,
    DIM: tl.constexpr, WIDE: tl.constexpr, VALUE_DIM: tl.constexpr, VALUE_WIDE: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """A block of columns, and the rows that see them: the gradients of their keys [N, h * DIM] and values [N, h * VALUE_DIM]."""
    length, begin, head, first = _part(ends, lengths, blocks, heads, COLUMNS)
    if first < length:
        columns, wide, value_wide = first + tl.arange(0, COLUMNS), tl.arange(0, WIDE), tl.arange(0, VALUE_WIDE)
        keys = _tile(k, k_stride, begin, columns, length, head, DIM, WIDE)
        values = _tile(v, v_stride, begin, columns, length, head, VALUE_DIM, VALUE_WIDE)
        of_keys, of_values = tl.zeros([COLUMNS, WIDE], dtype=tl.float32), tl.zeros([COLUMNS, VALUE_WIDE], dtype=tl.float32)
        for start in range(first, length, ROWS):
            rows = start + tl.arange(0, ROWS)
            queries = _tile(q, q_stride, begin, rows, length, head, DIM, WIDE)
            of_out = _tile(grad, grad_stride, begin, rows, length, head, VALUE_DIM, VALUE_WIDE)
            scores = tl.dot(keys, tl.trans(queries), input_precision=PRECISION)
            of_weights = tl.dot(values, tl.trans(of_out), input_precision=PRECISION)
            distance = rows[None, :] - columns[:, None]
            of_scores, weights = _backward(scores, of_weights, bias, distance, rows[None, :], length, distances)
            of_values += tl.dot(weights.to(of_out.dtype), of_out, input_precision=PRECISION)
            of_keys += tl.dot(of_scores.to(queries.dtype), queries, input_precision=PRECISION)
        there = (columns < length)[:, None]
        at = grad_k + (begin + columns)[:, None] * grad_k_stride + head * DIM + wide[None, :]
        tl.store(at, (of_keys / divisor).to(grad_k.dtype.element_ty), mask=there & (wide < DIM)[None, :])
        at = grad_v + (begin + columns)[:, None] * grad_v_stride + head * VALUE_DIM + value_wide[None, :]
        tl.store(at, (of_values / divisor).to(grad_v.dtype.element_ty), mask=there & (value_wide < VALUE_DIM)[None, :])


@triton.jit
def of_bias(
    tiles, grad, q, k, v, bias, ends, lengths, grad_stride, q_stride, k_stride, v_stride, parts, sequences, heads, distances, divisor,
    DIM: tl.constexpr, WIDE: tl.constexpr, VALUE_DIM: tl.constexpr, VALUE_WIDE: tl.constexpr, SIDE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Squares of scores that lie as many squares left of the diagonal, summed: `tiles` [squares, parts, SIDE, SIDE], FP32.

    Program (far, part) sums squares of every parts-th sequence and head. What has one distance is a diagonal of the sum.
    """
    far, part = tl.program_id(0) // parts, tl.program_id(0) % parts
    side = tl.arange(0, SIDE)
    total = tl.zeros([SIDE, SIDE], dtype=tl.float32)
    for pair in range(part, sequences * heads, parts):
        sequence, head = pair // heads, pair % heads
        length = tl.load(lengths + sequence).to(tl.int32)
        begin = tl.load(ends + sequence) - length
        for first in range(far * SIDE, length, SIDE):
            rows, columns = first + side, first - far * SIDE + side
            queries = _tile(q, q_stride, begin, rows, length, head, DIM, WIDE)
            of_out = _tile(grad, grad_stride, begin, rows, length, head, VALUE_DIM, VALUE_WIDE)
            keys = _tile(k, k_stride, begin, columns, length, head, DIM, WIDE)
            values = _tile(v, v_stride, begin, columns, length, head, VALUE_DIM, VALUE_WIDE)
            scores = tl.dot(queries, tl.trans(keys), input_precision=PRECISION)
            of_weights = tl.dot(of_out, tl.trans(values), input_precision=PRECISION)
            distance = rows[:, None] - columns[None, :]
            of_scores, _ = _backward(scores, of_weights, bias, distance, rows[:, None], length, distances)
            total += of_scores
    at = tiles + tl.program_id(0).to(tl.int64) * SIDE * SIDE + side[:, None] * SIDE + side[None, :]
    tl.store(at, total / divisor)


@triton.jit
def _part(ends, lengths, blocks, heads, SIZE: tl.constexpr):
    """What this program has: its sequence's length and first row, its head, and the first place of its block."""
    program = tl.program_id(0)
    sequence, head, block = program // (blocks * heads), program // blocks % heads, program % blocks
    length = tl.load(lengths + sequence).to(tl.int32)
    return length, tl.load(ends + sequence) - length, head, block * SIZE


@triton.jit
def _tile(of, stride, begin, places, length, head, DIM: tl.constexpr, WIDE: tl.constexpr):
    """[places, WIDE] of one head. Zero where a sequence has ended."""
    columns = tl.arange(0, WIDE)
    at = of + (begin + places)[:, None] * stride + head * DIM + columns[None, :]
    return tl.load(at, mask=(places < length)[:, None] & (columns < DIM)[None, :], other=0.0)


@triton.jit
def _scored(products, bias, distance, rows, length, distances):
    """Scores, their sigmoids, and which are seen."""
    seen = (distance >= 0) & (rows < length)
    scores = products + tl.load(bias + tl.minimum(tl.maximum(distance, 0), distances - 1))
    return scores, tl.sigmoid(scores), seen


@triton.jit
def _backward(products, of_weights, bias, distance, rows, length, distances):
    """The scores' gradient, and the weights, both before they are divided."""
    scores, sigmoid, seen = _scored(products, bias, distance, rows, length, distances)
    of_scores = tl.where(seen, of_weights * sigmoid * (1.0 + scores * (1.0 - sigmoid)), 0.0)
    return of_scores, tl.where(seen, scores * sigmoid, 0.0)
