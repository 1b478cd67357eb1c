"""The C++ kernels as functions of tensors. Arguments have been looked at before: here are only addresses and sizes.

Threads are torch's own (one OpenMP runtime, `torch.get_num_threads()` of them).
"""

from __future__ import annotations

import ctypes
import functools

import torch

from recsys_lab.base.row_updates import STRATEGIES
from recsys_lab.kernels.build import library
from recsys_lab.kernels.lookups import Lookups
from recsys_lab.kernels.rule import Rule

#: As csrc/formats.h numbers them, by the types of a table's weights and of what it keeps beside them.
FORMAT = {
    (torch.float32, None): 0,
    (torch.bfloat16, None): 1,
    (torch.float16, None): 2,
    (torch.bfloat16, torch.int16): 3,
    (torch.bfloat16, torch.uint8): 4,
    (torch.bfloat16, torch.float32): 5,
}
#: Those that C++ and Triton have. Torch updates by others.
RULES = ("sgd", "row_wise_adagrad", "adagrad", "adam")
#: Elements below which one thread is quicker than waking others.
FEW_ELEMENTS = 1 << 14

_p, _i64, _i32, _f32 = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32, ctypes.c_float


class _Table(ctypes.Structure):
    _fields_ = (("weight", _p), ("low", _p), ("rows", _i64), ("dim", _i64), ("format", _i32))


class _Lookups(ctypes.Structure):
    _fields_ = (
        *(("ids", _p), ("n", _i64), ("offsets", _p), ("features", _i64), ("samples", _i64), ("first_rows", _p)),
        *(("source", _p), ("weights", _p), ("wide_ids", _i32), ("wide_source", _i32)),
    )


class _Gradient(ctypes.Structure):
    _fields_ = (("data", _p), ("rows", _i64), ("stride", _i64), ("bf16", _i32), ("mean", _i32))


class _Rule(ctypes.Structure):
    _fields_ = (
        *(("name", _i32), ("lr", _f32), ("eps", _f32), ("weight_decay", _f32), ("state", _p)),
        *(("squares", _p), ("new_mean", _f32), ("old_square", _f32), ("new_square", _f32)),
    )


@functools.cache
def _functions() -> ctypes.CDLL:
    kernels = library()
    at = ctypes.POINTER
    for name, arguments in {
        "pooled_rows": (at(_Table), at(_Lookups), ctypes.c_int, _p, _i64, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int),
        "single_rows": (at(_Table), at(_Lookups), _p, _i64, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int),
        "update_rows": (at(_Table), at(_Lookups), at(_Gradient), at(_Rule), ctypes.c_int, ctypes.c_int),
        "update_by": (at(_Table), at(_Lookups), at(_Gradient), at(_Rule), ctypes.c_int, ctypes.c_int),
        "check_offsets": (_p, _i64, _i64),
        "ids_to_shards": (_p, _p, _i64, _i64, _i64, _p, _i64, _p, _i64, _p, _i64, _p, _p, _p, ctypes.c_int),
        "ids_of_ranks": (_p, _p, _i64, _i64, _i64, _p, _p, _p, _p),
    }.items():
        function = getattr(kernels, name)
        function.argtypes, function.restype = arguments, _i64
    kernels.instructions.restype = ctypes.c_char_p
    kernels.stream_read.argtypes, kernels.stream_read.restype = (_p, _i64, ctypes.c_int), _f32
    kernels.stream_update.argtypes, kernels.stream_update.restype = (_p, _i64, _f32, ctypes.c_int), None
    kernels.random_read.argtypes, kernels.random_read.restype = (_p, _i64, _p, _i64, _i64, ctypes.c_int, ctypes.c_int), _f32
    kernels.random_update.argtypes, kernels.random_update.restype = (_p, _p, _i64, _p, _i64, _f32, _p, _p, _i64, _i64, ctypes.c_int), None
    kernels.evict.argtypes, kernels.evict.restype = (_p, _i64), ctypes.c_int
    kernels.first_rows.argtypes, kernels.first_rows.restype = (_p, _i64, ctypes.c_uint64, _i64, _i64, _i64, _f32, _f32, _p), None
    return kernels


def first_rows(rows: torch.Tensor, key: int, draws: int, columns: slice, scale: float, bound: float, out: torch.Tensor) -> None:
    """First values of `rows` [n], int64: those that draws `columns` of a row's `draws` give, to `out` [n, 2 * columns], FP32."""
    arguments = (rows.data_ptr(), len(rows), key, draws, columns.start, columns.stop)
    _functions().first_rows(*arguments, scale, bound, out.data_ptr())


def instructions() -> str:
    """What the library was compiled for: AVX-512, AVX2 or baseline."""
    return _functions().instructions().decode()


def threads_of_a_region(threads: int) -> int:
    """How many threads a parallel region of the kernels really gets."""
    return _functions().threads_of_a_region(threads)


def stream_read(values: torch.Tensor, threads: int) -> float:
    """Sums FP32 elements one after the other: a sequential read."""
    return _functions().stream_read(values.data_ptr(), values.numel(), threads)


def stream_update(values: torch.Tensor, factor: float, threads: int) -> None:
    """Multiplies FP32 elements in place, one after the other: a sequential read and write."""
    _functions().stream_update(values.data_ptr(), values.numel(), factor, threads)


def random_read(table: torch.Tensor, rows: torch.Tensor, ahead: int, threads: int, *, second_level: bool = False) -> float:
    """Sums FP32 rows, `table` [R, W], in the order of `rows` [N], int64.

    Args:
        ahead: how many rows before its use a row is prefetched.
        second_level: into the second-level cache alone.
    """
    return _functions().random_read(table.data_ptr(), table.shape[1], rows.data_ptr(), len(rows), ahead, second_level, threads)


def random_update(
    table: torch.Tensor,
    other: torch.Tensor | None,
    rows: torch.Tensor,
    factor: float,
    ahead: int,
    threads: int,
    *,
    near: int = 0,
    gradient: torch.Tensor | None = None,
    source: torch.Tensor | None = None,
) -> None:
    """Multiplies FP32 rows in place, or adds to them: a loop over random rows that does nothing else.

    Args:
        table: [R, W].
        other: as `table`: the second half of each row.
        rows: [N], int64. With a gradient a row may occur twice; two threads then race for it.
        factor: of the rows, or of what is added to them.
        ahead: how many rows before its use a row is prefetched, for writing.
        near: 0, or how many rows before its use. It is then prefetched for writing there, and `ahead` into the second-level cache.
        gradient: [G, W], or [G, 2 * W] with `other`. Row i of the list gets row source[i] of it.
        source: [N], int64.
    """
    tables = (table.data_ptr(), _address(other))
    added = (_address(gradient), _address(source))
    _functions().random_update(*tables, table.shape[1], rows.data_ptr(), len(rows), factor, *added, ahead, near, threads)


def evict(tensor: torch.Tensor) -> bool:
    """Puts a tensor out of all caches. False where the processor has no instruction for it."""
    return bool(_functions().evict(tensor.data_ptr(), tensor.nbytes))


def bags(
    weight: torch.Tensor,
    lookups: Lookups,
    out: torch.Tensor,
    *,
    second_level: bool = False,
    nontemporal: bool = False,
    threads: int | None = None,
) -> None:
    """`out` [B, F * D], FP32 or BF16, its rows with any stride.

    Args:
        second_level: row_prefetch.py's answer. No result depends on it.
        nontemporal: nontemporal_stores.py's answer, of bags with one id. No result depends on it, and none on `threads`.
    """
    ids = lookups.ids.contiguous()
    struct, kept = _struct_of(lookups, ids)
    code = _functions().pooled_rows(
        _table(weight, None),
        struct,
        lookups.mode == "mean",
        out.data_ptr(),
        out.stride(0),
        out.dtype == torch.bfloat16,
        second_level,
        nontemporal,
        threads or _threads(ids.numel(), weight),
    )
    _check(code, lookups, weight)
    del kept


def rows(weight: torch.Tensor, ids: torch.Tensor, out: torch.Tensor, *, second_level: bool = False, nontemporal: bool = False) -> None:
    """`out` [N, D], FP32 or BF16, its rows with any stride. `second_level` and `nontemporal`: as of `bags`."""
    lookups = Lookups(ids.contiguous())
    struct, kept = _struct_of(lookups, lookups.ids)
    threads = _threads(ids.numel(), weight)
    output = (out.data_ptr(), out.stride(0), out.dtype == torch.bfloat16)
    code = _functions().single_rows(_table(weight, None), struct, *output, second_level, nontemporal, threads)
    _check(code, lookups, weight)
    del kept


def update(
    weight: torch.Tensor,
    low: torch.Tensor | None,
    state: torch.Tensor | None,
    lookups: Lookups,
    grad: torch.Tensor,
    rule: Rule,
    squares: torch.Tensor | None,
    strategy: str,
    *,
    read_first: bool = False,
    threads: int | None = None,
) -> None:
    """`grad`: FP32 or BF16; [B, F * D] of bags, else [*, D]. No result depends on `read_first`, row_prefetch.py's answer, and `threads`."""
    dim = weight.shape[1]
    bagged = lookups.offsets is not None
    if grad.stride(1) != 1 or not (bagged or grad.stride(0) == dim):
        grad = grad.contiguous()
    source = lookups.source
    if bagged and lookups.weights is not None:  # then C++ goes by the positions of the ids, and asks for the bag of each
        source = torch.repeat_interleave(torch.arange(lookups.samples * lookups.features), lookups.lengths(), output_size=len(lookups.ids))
    struct, kept = _struct_of(lookups, lookups.ids.contiguous(), source)
    gradient = _Gradient(grad.data_ptr(), grad.shape[0], grad.stride(0), grad.dtype == torch.bfloat16, lookups.mode == "mean")
    states = map(_address, (state, squares))
    shares = (1 - rule.beta1, rule.beta2, 1 - rule.beta2)
    step = _Rule(RULES.index(rule.name), rule.rate, rule.eps, rule.weight_decay, *states, *shares)
    threads = threads or _threads(lookups.ids.numel(), weight)
    if strategy == "default":
        code = _functions().update_rows(_table(weight, low), struct, gradient, step, read_first, threads)
    else:
        code = _functions().update_by(_table(weight, low), struct, gradient, step, STRATEGIES.index(strategy), threads)
    _check(code, lookups, weight)
    del kept


def ids_to_shards(
    lengths: torch.Tensor,
    ids: torch.Tensor,
    samples: int,
    cuts: torch.Tensor,
    blocks: torch.Tensor,
    ends: torch.Tensor,
    to_lengths: torch.Tensor,
    to_ids: torch.Tensor,
    sizes: torch.Tensor,
) -> None:
    """For each of S shards the ids in its rows, counted from its first, and how many each sample has.

    Args:
        lengths: int32 [F * B].
        ids: int64 [N].
        samples: B.
        cuts: int64 [., 3]: a feature, its first block, and how many it has. Two cuts of a feature hold different columns.
        blocks: int64 [S, 3]: a shard, its first row and the row past its last; those of a cut by rising rows.
        ends: int64 [receivers]: past a receiver's last shard.
        to_lengths: int32 [S * B], written.
        to_ids: int64, shard after shard, written.
        sizes: int64 [receivers, 3]: lengths, ids and samples for each, written.

    Raises:
        IndexError: lengths do not add up to N.
    """
    n = ids.numel()
    if samples == 0 and n == 0:
        sizes.zero_()
        return
    batch = (lengths.data_ptr(), ids.data_ptr(), n, lengths.numel() // samples if samples else 0, samples)
    layout = (cuts.data_ptr(), cuts.shape[0], blocks.data_ptr(), blocks.shape[0], ends.data_ptr(), ends.numel())
    threads = torch.get_num_threads() if n > FEW_ELEMENTS else 1
    if _functions().ids_to_shards(*batch, *layout, to_lengths.data_ptr(), to_ids.data_ptr(), sizes.data_ptr(), threads):
        raise IndexError(f"lengths add up to {int(lengths.sum())}, and there are {n} ids")


def ids_of_ranks(
    lengths: torch.Tensor, ids: torch.Tensor, shards: int, samples: int, order: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What R ranks sent for the same S shards, as one batch of all their samples.

    Args:
        lengths: int32 [R * S * B].
        ids: int64 [N], of the same order.
        shards: S.
        samples: B.
        order: int64 [R]: whose samples come first, and so on.

    Returns:
        lengths int32 [S * R * B], their offsets int64 [S * R * B + 1], ids int64 [N].
    """
    outputs = (torch.empty_like(lengths), torch.empty(lengths.numel() + 1, dtype=torch.int64), torch.empty_like(ids))
    inputs = (lengths.data_ptr(), ids.data_ptr(), order.numel(), shards, samples, order.data_ptr())
    _functions().ids_of_ranks(*inputs, *(tensor.data_ptr() for tensor in outputs))
    return outputs


def _threads(ids: int, weight: torch.Tensor) -> int:
    return torch.get_num_threads() if ids * weight.shape[1] > FEW_ELEMENTS else 1


def _table(weight: torch.Tensor, low: torch.Tensor | None) -> _Table:
    code = FORMAT[weight.dtype, None if low is None else low.dtype]
    return _Table(weight.data_ptr(), _address(low), weight.shape[0], weight.shape[1], code)


def _struct_of(lookups: Lookups, ids: torch.Tensor, source: torch.Tensor | None = None) -> tuple[_Lookups, list[torch.Tensor | None]]:
    """The struct, and the tensors that must live as long as it is used."""
    optional = (lookups.offsets, lookups.first_rows, source, lookups.weights)
    offsets, first_rows, source, weights = kept = [None if one is None else one.contiguous() for one in optional]
    n = ids.numel()
    if offsets is not None:
        wrong = _functions().check_offsets(offsets.data_ptr(), offsets.numel() - 1, n)
        if wrong >= 0:
            raise IndexError(f"offsets must rise from 0 to the number of ids, {n}; at {wrong} stands {int(offsets[wrong])}")
    struct = _Lookups(
        *(ids.data_ptr(), n, _address(offsets), lookups.features, lookups.samples, _address(first_rows)),
        *(_address(source), _address(weights), ids.dtype == torch.int64, source is not None and source.dtype == torch.int64),
    )
    return struct, [ids, *kept]


def _address(tensor: torch.Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _check(code: int, lookups: Lookups, weight: torch.Tensor) -> None:
    if code >= 0:
        row = int(lookups.rows()[code])
        raise IndexError(
            f"id {int(lookups.ids[code])} at position {code} means row {row} of a table with {len(weight)} rows, or its source is wrong"
        )
