"""The Triton kernels as functions of tensors on a GPU. Arguments have been looked at before, as for C++ (native.py).

The host waits for nothing. An id outside the table ends the process by an assertion on the GPU, as in torch's own look-ups. In Triton's
interpreter it is an IndexError. Torch sorts an update's ids by row, and finds where each row's occurrences begin.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton

from recsys_lab.kernels import torch_embedding, triton_kernels
from recsys_lab.kernels.lookups import Lookups
from recsys_lab.kernels.rule import Rule

#: As the kernels call the types of a table's weights, and of what it keeps beside them.
FORMATS = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
LOWS = {torch.int16: "int16", torch.uint8: "uint8", torch.float32: "float32"}
#: Rows with more occurrences are summed by programs of their own, in the definition's pieces. Not more than such a piece.
WINDOW = 128
#: Programs of an update for each processor of a GPU. It holds half as many at once.
PROGRAMS_A_PROCESSOR = 64
#: Columns that 32 threads share. Not tuned: see docs/decisions/split-sgd.md.
ELEMENTS_A_WARP = 256


def bags(weight: torch.Tensor, lookups: Lookups, out: torch.Tensor) -> None:
    """`out` [B, F * D], FP32 or BF16, its rows with any stride."""
    assert lookups.offsets is not None
    if not weight.is_cuda:
        _check_inside(lookups.rows(), weight, lookups.offsets)
    if len(lookups.offsets) == 1 or not weight.shape[1]:
        return
    with torch.cuda.device_of(weight):
        triton_kernels.pool_bags[(len(lookups.offsets) - 1,)](
            *(_bits(out), _bits(weight), lookups.ids.contiguous(), lookups.first_rows, lookups.weights, lookups.offsets.contiguous()),
            *(lookups.samples, len(weight), len(lookups.ids), out.stride(0)),
            FORMAT=FORMATS[weight.dtype],
            WEIGHTED=lookups.weights is not None,
            MEAN=lookups.mode == "mean",
            OUT_BF16=out.dtype == torch.bfloat16,
            **_columns(weight),
        )


def rows(weight: torch.Tensor, ids: torch.Tensor, out: torch.Tensor) -> None:
    """`out` [N, D], FP32 or BF16, its rows with any stride."""
    if not weight.is_cuda:
        _check_inside(ids, weight)
    if not len(ids) or not weight.shape[1]:
        return
    with torch.cuda.device_of(weight):
        triton_kernels.read_rows[(len(ids),)](
            *(_bits(out), _bits(weight), ids.contiguous(), len(weight), out.stride(0)),
            FORMAT=FORMATS[weight.dtype],
            OUT_BF16=out.dtype == torch.bfloat16,
            **_columns(weight),
        )


def update(
    weight: torch.Tensor,
    low: torch.Tensor | None,
    state: torch.Tensor | None,
    lookups: Lookups,
    grad: torch.Tensor,
    rule: Rule,
    squares: torch.Tensor | None,
) -> None:
    """`grad`: FP32 or BF16; [B, F * D] of bags, else [*, D]."""
    if not weight.is_cuda:
        _check_update(lookups, weight, grad)
    if not len(lookups.ids) or not weight.shape[1]:
        return
    grad = grad if grad.stride(1) == 1 else grad.contiguous()
    window = min(WINDOW, torch_embedding.PIECE)
    with torch.cuda.device_of(weight):
        occurrences = _occurrences(lookups, weight, grad)
        starts, stops = _around(occurrences.rows, window)
        parts = torch.empty(2 * len(starts), weight.shape[1], device=weight.device)
        shared: dict[str, Any] = {
            "grad": _bits(grad),
            "places": occurrences.places,
            "factors": occurrences.factors,
            "lengths": occurrences.lengths,
            "WINDOW": window,
            "PIECE": torch_embedding.PIECE,
            "GRAD_BF16": grad.dtype == torch.bfloat16,
            **_columns(weight),
        }
        triton_kernels.sum_pieces[(len(parts),)](parts, starts, stops, **shared)
        triton_kernels.move_rows[(_programs(weight, len(occurrences.rows)),)](
            *(_bits(weight), low, state, squares, occurrences.rows, occurrences.begins, parts),
            id_count=len(occurrences.rows),
            rate=rule.rate,
            eps=rule.eps,
            decay=rule.weight_decay,
            new_mean=1 - rule.beta1,
            old_square=rule.beta2,
            new_square=1 - rule.beta2,
            FORMAT=FORMATS[weight.dtype],
            RULE=rule.name,
            DECAYS=rule.weight_decay != 0,
            LOW=None if low is None else LOWS[low.dtype],
            **shared,
        )


@dataclass(frozen=True)
class _Occurrences:
    """What N ids mean, sorted by row of the table; equal rows in the order of their ids."""

    rows: torch.Tensor  # [N], int32 where the table allows
    begins: torch.Tensor  # [N]: where each distinct row begins, filled up with N
    places: torch.Tensor  # [N], int64: where the gradient of each begins, in elements
    factors: torch.Tensor | None  # [N], FP32
    lengths: torch.Tensor | None  # [N], FP32: of the bag that each is in, for a mean


def _occurrences(lookups: Lookups, weight: torch.Tensor, grad: torch.Tensor) -> _Occurrences:
    ids, dim = lookups.ids.contiguous(), weight.shape[1]
    count, mean = len(ids), lookups.mode == "mean"
    rows = ids.new_empty(count, dtype=torch.int32 if len(weight) < 2**31 else torch.int64)  # sorted in half the time
    places, lengths = ids.new_empty(count, dtype=torch.int64), grad.new_empty(count, dtype=torch.float32) if mean else None
    if lookups.offsets is None:
        triton_kernels.note_rows[(triton.cdiv(count, triton_kernels.IDS_AT_ONCE),)](
            *(rows, places, ids, lookups.source, len(weight), len(grad), count, grad.stride(0)),
            IDS=triton_kernels.IDS_AT_ONCE,
            **triton_kernels.OPTIONS,
        )
    else:
        bags = len(lookups.offsets) - 1
        triton_kernels.note_bags[(triton.cdiv(bags, triton_kernels.BAGS_AT_ONCE),)](
            *(rows, places, lengths, ids, lookups.first_rows, lookups.offsets.contiguous()),
            *(lookups.samples, bags, len(weight), count, grad.stride(0)),
            DIM=dim,
            MEAN=mean,
            BAGS=triton_kernels.BAGS_AT_ONCE,
            IDS=triton_kernels.BAG_IDS_AT_ONCE,
            num_warps=1,
            **triton_kernels.OPTIONS,
        )
    rows, order = rows.sort(stable=True)
    fresh = torch.ones_like(rows, dtype=torch.bool)
    torch.ne(rows[1:], rows[:-1], out=fresh[1:])
    begins = torch.nonzero_static(fresh, size=count, fill_value=count).squeeze(1)
    factors = None if lookups.weights is None else lookups.weights[order]
    return _Occurrences(rows, begins, places[order], factors, None if lengths is None else lengths[order])


def _around(rows: torch.Tensor, window: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Of every `window`-th occurrence: where its row begins and ends, in `rows` [N], sorted."""
    marks = rows[::window].contiguous()
    return torch.searchsorted(rows, marks), torch.searchsorted(rows, marks, right=True)


def _programs(weight: torch.Tensor, most: int) -> int:
    """So many as the GPU holds at once, and no more than are needed. In the interpreter a few, which take turns too."""
    if not weight.is_cuda:
        return min(3, most)
    return min(most, PROGRAMS_A_PROCESSOR * torch.cuda.get_device_properties(weight.device).multi_processor_count)


def _check_update(lookups: Lookups, weight: torch.Tensor, grad: torch.Tensor) -> None:
    """What the kernels assert on a GPU, for Triton's interpreter: IndexError."""
    rows, source = lookups.rows(), lookups.source
    outside = (rows < 0) | (rows >= len(weight))
    if outside.any():
        position = int(outside.nonzero()[0])
        raise IndexError(
            f"id {int(lookups.ids[position])} at position {position} means row {int(rows[position])} of a table with {len(weight)} rows"
        )
    if source is not None and len(source) and not 0 <= (least := int(source.min())) <= (most := int(source.max())) < len(grad):
        raise IndexError(f"sources from {least} to {most} of a gradient with {len(grad)} rows")


def _check_inside(rows: torch.Tensor, weight: torch.Tensor, offsets: torch.Tensor | None = None) -> None:
    """What the kernels assert on a GPU, for Triton's interpreter: IndexError."""
    inside = not len(rows) or (int(rows.min()) >= 0 and int(rows.max()) < len(weight))
    rise = offsets is None or bool(offsets[0] == 0 and offsets[-1] == len(rows) and (offsets.diff() >= 0).all())
    if not (inside and rise):
        message = f"an id is not among the table's {len(weight)} rows, or offsets do not rise from 0 to the number of ids, {len(rows)}"
        raise IndexError(message)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """BF16 as the kernels take it: int16."""
    return tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor


def _columns(weight: torch.Tensor) -> dict[str, Any]:
    """What a kernel gets to know of the width of rows, and how it is compiled."""
    block = max(16, triton.next_power_of_2(weight.shape[1]))
    return {"DIM": weight.shape[1], "BLOCK": block, "num_warps": min(8, max(1, block // ELEMENTS_A_WARP)), **triton_kernels.OPTIONS}
