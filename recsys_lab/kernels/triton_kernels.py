"""The embedding kernels in Triton, as programs of a GPU. triton_embedding.py launches them. torch_embedding.py says what they mean.

A look-up is a program for each bag. An update is a program for each distinct row. A program sums in the order of the ids, so nothing is
atomic and every run gives the same bits. The BF16 parts of hi/lo split weights are read as integers, and their bits are joined here. No
product may be contracted with a sum (OPTIONS), quotients and roots are rounded to nearest: FP32's bits are then the definition's.

Shapes: E rows, D columns (`DIM`, held in `BLOCK`, a power of two), B samples, F features, N ids, U distinct rows. Written in Triton's
language, which mypy does not know. `FORMAT` is a key of triton_embedding.FORMATS.
"""

from __future__ import annotations

import triton
import triton.language as tl

#: A sum loads so many of its terms before it adds the first, in their order still. One at a time would wait for memory each time. An
#: update of skewed ids took 8.5 ms on an H100 then, and 5.4 so (experiments/benchmarks/2026-11_gpu.md).
IDS_AHEAD = tl.constexpr(4)
OCCURRENCES_AHEAD = tl.constexpr(8)
#: How every kernel is compiled. `debug` keeps assertions in; sums of integers are not looked at.
OPTIONS = {"enable_fp_fusion": False, "debug": True, "sanitize_overflow": False}


@triton.jit
def pool_bags(
    out, weight, ids, first_rows, factors, offsets, samples, table_rows, id_count, out_stride,
    DIM: tl.constexpr, BLOCK: tl.constexpr, FORMAT: tl.constexpr, WEIGHTED: tl.constexpr, MEAN: tl.constexpr, OUT_BF16: tl.constexpr,
):  # fmt: skip
    """Bag f * B + b -> columns [f D, (f + 1) D) of row b of `out`. `ids` [N], `first_rows` [F] or None, `offsets` [F B + 1] int64.

    The assertion ends the process. No memory outside the table is read before.
    """
    bag = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < DIM
    begin, end = tl.load(offsets + bag), tl.load(offsets + bag + 1)
    right = (begin <= end) & (begin >= 0) & (end <= id_count)
    right = right & ((bag > 0) | (begin == 0)) & ((bag < tl.num_programs(0) - 1) | (end == id_count))
    begin, end = tl.maximum(begin, 0), tl.minimum(end, id_count)
    first_row = tl.zeros([], dtype=tl.int64)
    if first_rows is not None:
        first_row = tl.load(first_rows + bag // samples)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for first in range(begin, end, IDS_AHEAD):
        for number in tl.static_range(IDS_AHEAD):
            place = first + number
            row = tl.load(ids + place, mask=place < end, other=0).to(tl.int64) + first_row
            there = (place < end) & (row >= 0) & (row < table_rows)
            right = right & (there | (place >= end))
            values = _read(weight, None, row * DIM + columns, inside & there, FORMAT, None)
            if WEIGHTED:
                values = values * tl.load(factors + place, mask=there, other=0.0)
            total = tl.where(there, total + values, total)
    if MEAN:
        total = tl.div_rn(total, tl.maximum(end - begin, 1).to(tl.float32))
    at = (bag % samples).to(tl.int64) * out_stride + (bag // samples) * DIM + columns
    _write_out(out, at, inside, total, OUT_BF16)
    tl.device_assert(right, "an id is not among the table's rows, or offsets do not rise from 0 to the number of ids")


@triton.jit
def read_rows(
    out, weight, ids, table_rows, out_stride, DIM: tl.constexpr, BLOCK: tl.constexpr, FORMAT: tl.constexpr, OUT_BF16: tl.constexpr
):  # fmt: skip
    """Id i -> row i of `out`. The assertion ends the process."""
    place = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < DIM
    row = tl.load(ids + place).to(tl.int64)
    right = (row >= 0) & (row < table_rows)
    values = _read(weight, None, row * DIM + columns, inside & right, FORMAT, None)
    _write_out(out, place * out_stride + columns, inside, values, OUT_BF16)
    tl.device_assert(right, "an id is not among the table's rows")


@triton.jit
def sum_pieces(
    parts, begins, ends, grad, sources, factors, offsets, features, samples, grad_stride,
    DIM: tl.constexpr, BLOCK: tl.constexpr, GRAD_BF16: tl.constexpr, WEIGHTED: tl.constexpr, MEAN: tl.constexpr,
):  # fmt: skip
    """Piece p of a row with many occurrences -> its summed gradient, row p of `parts` (FP32).

    The piece is places [begins[p], ends[p]) of `sources`.
    """
    piece = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < DIM
    begin, end = tl.load(begins + piece), tl.load(ends + piece)
    total = _summed(
        grad, sources, factors, offsets, begin, end, columns, inside, features, samples, grad_stride,
        DIM, BLOCK, GRAD_BF16, WEIGHTED, MEAN,
    )  # fmt: skip
    tl.store(parts + piece * DIM + columns, total, mask=inside)


@triton.jit
def move_rows(
    weight, low, state, squares, touched, begins, parts, first_parts, grad, sources, factors, offsets, features, samples, grad_stride,
    rate, eps, decay, new_mean, old_square, new_square,
    DIM: tl.constexpr, BLOCK: tl.constexpr, PIECE: tl.constexpr, FORMAT: tl.constexpr, RULE: tl.constexpr, DECAYS: tl.constexpr,
    GRAD_BF16: tl.constexpr, WEIGHTED: tl.constexpr, MEAN: tl.constexpr, LOW: tl.constexpr,
):  # fmt: skip
    """Distinct row u, touched[u], sums its gradient over places [begins[u], begins[u + 1]) of `sources` and moves once.

    A row with more than PIECE occurrences sums its `parts` from first_parts[u] on instead. `rate` to `new_square`: as Rule, in FP32.
    """
    number = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < DIM
    row = tl.load(touched + number)
    begin, end = tl.load(begins + number), tl.load(begins + number + 1)
    if end - begin <= PIECE:
        total = _summed(
            grad, sources, factors, offsets, begin, end, columns, inside, features, samples, grad_stride,
            DIM, BLOCK, GRAD_BF16, WEIGHTED, MEAN,
        )  # fmt: skip
    else:
        total = tl.zeros([BLOCK], dtype=tl.float32)
        first = tl.load(first_parts + number)
        for part in range(first, first + (end - begin + PIECE - 1) // PIECE):
            total = total + tl.load(parts + part * DIM + columns, mask=inside, other=0.0)
    at = row * DIM + columns
    values = _read(weight, low, at, inside, FORMAT, LOW)
    moves = inside
    if DECAYS or RULE == "adam":  # a row whose gradient is zero rests
        moves = inside & (tl.max((total != 0.0).to(tl.int32), axis=0) > 0)
    if DECAYS:
        total = total + values * decay
    if RULE == "sgd":
        change = total * rate
    elif RULE == "row_wise_adagrad":
        of_row = tl.load(state + row) + _mean_of_squares(total, DIM, BLOCK)
        tl.store(state + row + tl.zeros_like(columns), tl.broadcast_to(of_row, [BLOCK]), mask=moves & (columns == 0))
        change = total * tl.div_rn(rate, tl.sqrt_rn(of_row) + eps)
    elif RULE == "adagrad":
        sums = tl.load(state + at, mask=inside, other=1.0) + total * total
        tl.store(state + at, sums, mask=moves)
        change = tl.div_rn(total * rate, tl.sqrt_rn(sums) + eps)
    else:
        mean = tl.load(state + at, mask=inside, other=0.0)
        mean = mean + (total - mean) * new_mean
        square = tl.load(squares + at, mask=inside, other=1.0)
        square = square * old_square + total * total * new_square
        tl.store(state + at, mean, mask=moves)
        tl.store(squares + at, square, mask=moves)
        change = tl.div_rn(mean * rate, tl.sqrt_rn(square) + eps)
    _write(weight, low, at, moves, values - change, FORMAT, LOW)


@triton.jit
def _summed(
    grad, sources, factors, offsets, begin, end, columns, inside, features, samples, grad_stride,
    DIM: tl.constexpr, BLOCK: tl.constexpr, GRAD_BF16: tl.constexpr, WEIGHTED: tl.constexpr, MEAN: tl.constexpr,
):  # fmt: skip
    """The gradients of places [begin, end) of `sources`, one after the other from zero, in FP32 [BLOCK].

    `sources` [N]: rows of the gradient, a pooled one seen as [B * F, D]; `factors` [N] or None. Both by row of the table.
    """
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for first in range(begin, end, OCCURRENCES_AHEAD):
        for number in tl.static_range(OCCURRENCES_AHEAD):
            place = first + number
            there = place < end
            source = tl.load(sources + place, mask=there, other=0).to(tl.int32)
            sample, feature = source // features, source % features
            at = grad + sample.to(tl.int64) * grad_stride + feature * DIM + columns
            if GRAD_BF16:
                values = _widened(tl.load(at, mask=inside & there, other=0))
            else:
                values = tl.load(at, mask=inside & there, other=0.0)
            if MEAN:
                bag = offsets + feature * samples + sample
                length = tl.maximum(tl.load(bag + 1, mask=there, other=1) - tl.load(bag, mask=there, other=0), 1)
                values = tl.div_rn(values, length.to(tl.float32))
            if WEIGHTED:
                values = values * tl.load(factors + place, mask=there, other=0.0)
            total = tl.where(there, total + values, total)
    return total


@triton.jit
def _mean_of_squares(total, DIM: tl.constexpr, BLOCK: tl.constexpr):
    """As torch_embedding.mean_of_squares: sixteen sums over the columns, then a tree. Zeros pick out a line of sixteen columns."""
    squares = tl.reshape(total * total, (BLOCK // 16, 16))
    line = tl.arange(0, BLOCK // 16)[:, None]
    lanes = tl.zeros([16], dtype=tl.float32)
    for number in tl.static_range((DIM + 15) // 16):
        lanes = lanes + tl.sum(tl.where(line == number, squares, 0.0), axis=0)
    eight = tl.sum(tl.reshape(lanes, (2, 8)), axis=0)
    four = tl.sum(tl.reshape(eight, (2, 4)), axis=0)
    two = tl.sum(tl.reshape(four, (2, 2)), axis=0)
    return tl.div_rn(tl.sum(two, axis=0), DIM * 1.0)


@triton.jit
def _read(weight, low, at, inside, FORMAT: tl.constexpr, LOW: tl.constexpr):
    """Weights in FP32: joined where LOW says what lies beside them, and the master where that is FP32."""
    if LOW == "float32":
        values = tl.load(low + at, mask=inside, other=0.0)
    elif LOW is not None:
        rest = tl.load(low + at, mask=inside, other=0).to(tl.int32)
        rest = (rest & 0xFFFF) if LOW == "int16" else (rest << 8)
        values = ((tl.load(weight + at, mask=inside, other=0).to(tl.int32) << 16) | rest).to(tl.float32, bitcast=True)
    elif FORMAT == "bf16":
        values = _widened(tl.load(weight + at, mask=inside, other=0))
    else:
        values = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    return values


@triton.jit
def _write(weight, low, at, moves, values, FORMAT: tl.constexpr, LOW: tl.constexpr):
    """FP32 values, taken apart or rounded as the table is stored."""
    if LOW == "int16" or LOW == "uint8":
        bits = values.to(tl.int32, bitcast=True)
        tl.store(weight + at, (bits >> 16).to(tl.int16), mask=moves)
        if LOW == "int16":
            tl.store(low + at, bits.to(tl.int16), mask=moves)
        else:
            tl.store(low + at, ((bits >> 8) & 0xFF).to(tl.uint8), mask=moves)
    else:
        if LOW == "float32":
            tl.store(low + at, values, mask=moves)
        if FORMAT == "bf16":
            tl.store(weight + at, _rounded(values), mask=moves)
        elif FORMAT == "fp16":
            tl.store(weight + at, values.to(tl.float16), mask=moves)
        else:
            tl.store(weight + at, values, mask=moves)


@triton.jit
def _write_out(out, at, inside, values, OUT_BF16: tl.constexpr):
    if OUT_BF16:
        tl.store(out + at, _rounded(values), mask=inside)
    else:
        tl.store(out + at, values, mask=inside)


@triton.jit
def _widened(bits):
    """The bits of BF16 numbers, int16 -> FP32."""
    return (bits.to(tl.int32) << 16).to(tl.float32, bitcast=True)


@triton.jit
def _rounded(values):
    """FP32 -> the bits of the nearest BF16 numbers, int16. Of two as near the even one, of NaNs torch's."""
    bits = values.to(tl.int32, bitcast=True)
    nearest = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return tl.where(values != values, 0x7FC0, nearest).to(tl.int16)
