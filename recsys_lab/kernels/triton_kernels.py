"""The embedding kernels in Triton, as programs of a GPU. triton_embedding.py launches them. torch_embedding.py says what they mean.

A look-up is a program for each bag. An update notes what each id means, and is sorted by row outside. Then programs take the distinct rows
in turn. A program sums in the order of the ids, so nothing is atomic and every run gives the same bits. The BF16 parts of hi/lo split
weights are read as integers, and their bits are joined here. No product may be contracted with a sum (OPTIONS), quotients and roots are
rounded to nearest: FP32's bits are then the definition's.

Shapes: E rows, D columns (`DIM`, held in `BLOCK`, a power of two), B samples, F features, N ids. Written in Triton's language, which mypy
does not know. `FORMAT` is a key of triton_embedding.FORMATS.
"""

from __future__ import annotations

import triton
import triton.language as tl

#: A sum loads so many of its terms before it adds the first, in their order still. One at a time would wait for memory each time.
IDS_AHEAD = tl.constexpr(4)
#: Two to this power are the gradients that a sum loads so: of a row, and of a piece of one with many.
OF_A_ROW, OF_A_PIECE = tl.constexpr(3), tl.constexpr(5)
#: What a program notes together: ids; and of bags so many, and so many ids of each.
IDS_AT_ONCE, BAGS_AT_ONCE, BAG_IDS_AT_ONCE = 256, 16, 16
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
def note_bags(
    rows, places, lengths, ids, first_rows, offsets, samples, bag_count, table_rows, id_count, grad_stride,
    DIM: tl.constexpr, MEAN: tl.constexpr, BAGS: tl.constexpr, IDS: tl.constexpr,
):  # fmt: skip
    """For each id of a bag its row of the table, the place of its gradient in `grad` and, for a mean, its bag's length. All [N].

    The assertion ends the process.
    """
    bag = tl.program_id(0).to(tl.int64) * BAGS + tl.arange(0, BAGS)
    known = bag < bag_count
    begin, end = tl.load(offsets + bag, mask=known, other=0), tl.load(offsets + bag + 1, mask=known, other=0)
    right = (begin <= end) & (begin >= 0) & (end <= id_count)
    right = ~known | (right & ((bag > 0) | (begin == 0)) & ((bag < bag_count - 1) | (end == id_count)))
    begin, end = tl.maximum(begin, 0), tl.minimum(end, id_count)
    first_row = tl.zeros([BAGS], dtype=tl.int64)
    if first_rows is not None:
        first_row = tl.load(first_rows + bag // samples, mask=known, other=0)
    place = bag % samples * grad_stride + bag // samples * DIM
    for first in range(0, tl.max(end - begin, axis=0), IDS):
        at = begin[:, None] + first + tl.arange(0, IDS)[None, :]
        there = at < end[:, None]
        row = tl.load(ids + at, mask=there, other=0).to(tl.int64) + first_row[:, None]
        among = (row >= 0) & (row < table_rows)
        right = right & (tl.max((there & ~among).to(tl.int32), axis=1) == 0)
        tl.store(rows + at, tl.where(among, row, 0), mask=there)
        tl.store(places + at, tl.broadcast_to(place[:, None], [BAGS, IDS]), mask=there)
        if MEAN:
            tl.store(lengths + at, tl.broadcast_to((end - begin).to(tl.float32)[:, None], [BAGS, IDS]), mask=there)
    tl.device_assert(right, "an id is not among the table's rows, or offsets do not rise from 0 to the number of ids")


@triton.jit
def note_rows(rows, places, ids, sources, table_rows, grad_rows, id_count, grad_stride, IDS: tl.constexpr):
    """As note_bags, of ids that are in no bag: id i has row sources[i] of the gradient, or row i."""
    at = tl.program_id(0).to(tl.int64) * IDS + tl.arange(0, IDS)
    there = at < id_count
    row = tl.load(ids + at, mask=there, other=0).to(tl.int64)
    source = at
    if sources is not None:
        source = tl.load(sources + at, mask=there, other=0).to(tl.int64)
    among = (row >= 0) & (row < table_rows)
    right = among & (source >= 0) & (source < grad_rows)
    tl.store(rows + at, tl.where(among, row, 0), mask=there)
    tl.store(places + at, source * grad_stride, mask=there)
    tl.device_assert(right | ~there, "an id is not among the table's rows, or a source not among the gradient's")


@triton.jit
def sum_pieces(
    parts, starts, stops, grad, places, factors, lengths,
    DIM: tl.constexpr, BLOCK: tl.constexpr, WINDOW: tl.constexpr, PIECE: tl.constexpr, GRAD_BF16: tl.constexpr,
):  # fmt: skip
    """Pieces of the rows with more than WINDOW occurrences -> their summed gradients, rows of `parts` (FP32).

    Every WINDOW-th occurrence is a mark, and has two programs. `starts` and `stops` of a mark say where the row that occurs there begins
    and ends. The first program sums the piece that begins at the mark or behind it, before the next mark. The second sums the row's first
    piece, if this is the first mark behind its begin. So each piece has one program, and a row finds its pieces (_piece).
    """
    mark = (tl.program_id(0) // 2).to(tl.int64)
    at = mark * WINDOW
    start, stop = tl.load(starts + mark), tl.load(stops + mark)
    if tl.program_id(0) % 2 == 0:
        begin = start + (at - start + PIECE - 1) // PIECE * PIECE
        in_window = begin < tl.minimum(at + WINDOW, stop)
    else:
        begin = start
        in_window = (start < at) & (start > at - WINDOW)
    if in_window & (stop - start > WINDOW):
        columns = tl.arange(0, BLOCK)
        end = tl.minimum(begin + PIECE, stop)
        total = _summed(grad, places, factors, lengths, begin, end, columns, DIM, BLOCK, GRAD_BF16, OF_A_PIECE)
        tl.store(parts + tl.program_id(0).to(tl.int64) * DIM + columns, total, mask=columns < DIM)


@triton.jit
def _piece(begin, number, WINDOW: tl.constexpr, PIECE: tl.constexpr):
    """Which program of sum_pieces summed piece `number` of a row that begins at `begin`."""
    at = begin + number * PIECE
    behind = at // WINDOW * 2
    if (number == 0) & (at % WINDOW > 0):
        behind += 3
    return behind


@triton.jit
def move_rows(
    weight, low, state, squares, rows, begins, parts, grad, places, factors, lengths, id_count,
    rate, eps, decay, new_mean, old_square, new_square,
    DIM: tl.constexpr, BLOCK: tl.constexpr, WINDOW: tl.constexpr, PIECE: tl.constexpr, FORMAT: tl.constexpr, RULE: tl.constexpr,
    DECAYS: tl.constexpr, GRAD_BF16: tl.constexpr, LOW: tl.constexpr,
):  # fmt: skip
    """Distinct row u sums its gradient over occurrences [begins[u], begins[u + 1]) and moves once. `rows` [N] of the table, sorted.

    `begins` [N] is filled up with N. A row with more than WINDOW occurrences sums its `parts` instead. `rate` to `new_square`: as Rule, in
    FP32.
    """
    columns = tl.arange(0, BLOCK)
    inside = columns < DIM
    number = tl.program_id(0).to(tl.int64)
    begin = tl.load(begins + number)
    while begin < id_count:
        end = tl.load(begins + number + 1, mask=number + 1 < id_count, other=id_count)
        row = tl.load(rows + begin).to(tl.int64)
        at = row * DIM + columns
        values = _read(weight, low, at, inside, FORMAT, LOW)
        if end - begin <= WINDOW:
            total = _summed(grad, places, factors, lengths, begin, end, columns, DIM, BLOCK, GRAD_BF16, OF_A_ROW)
        else:
            total = tl.zeros([BLOCK], dtype=tl.float32)
            for piece in range((end - begin + PIECE - 1) // PIECE):
                total = total + tl.load(parts + _piece(begin, piece, WINDOW, PIECE) * DIM + columns, mask=inside, other=0.0)
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
        number += tl.num_programs(0)
        begin = tl.load(begins + number, mask=number < id_count, other=id_count)


@triton.jit
def _summed(
    grad, places, factors, lengths, begin, end, columns,
    DIM: tl.constexpr, BLOCK: tl.constexpr, GRAD_BF16: tl.constexpr, POWER: tl.constexpr,
):  # fmt: skip
    """The gradients of occurrences [begin, end), one after the other from zero, in FP32 [BLOCK]. 2 ** POWER are loaded together.

    By row of the table: `places` [N] of `grad`, `factors` [N] or None, and the `lengths` [N] of bags that a mean divides by, or None. What
    is not there counts as zero, which leaves a sum that began with zero as it is.
    """
    AHEAD: tl.constexpr = 2**POWER
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for first in range(begin, end, AHEAD):
        place = first + tl.arange(0, AHEAD)
        there = place < end
        at = grad + tl.load(places + place, mask=there, other=0)[None, :] + columns[:, None]
        inside = (columns < DIM)[:, None] & there[None, :]
        if GRAD_BF16:
            values = _widened(tl.load(at, mask=inside, other=0))
        else:
            values = tl.load(at, mask=inside, other=0.0)
        if lengths is not None:
            values = tl.div_rn(values, tl.broadcast_to(tl.load(lengths + place, mask=there, other=1.0)[None, :], [BLOCK, AHEAD]))
        if factors is not None:
            values = values * tl.load(factors + place, mask=there, other=0.0)[None, :]
        parts = (values,)
        for level in tl.static_range(POWER):
            halves = ()
            for number in tl.static_range(2**level):
                part = tl.permute(tl.reshape(parts[number], (BLOCK, 2, AHEAD // 2 ** (level + 1))), (0, 2, 1))
                halves = halves + tl.split(part)
            parts = halves  # type: ignore[assignment]  # tuples of 2, 4, 8 ...
        for number in tl.static_range(AHEAD):
            total = total + tl.reshape(parts[number], (BLOCK,))
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
