"""The Triton kernels as functions of tensors on a GPU. Arguments have been looked at before, as for C++ (native.py).

What an update goes by is made in torch: ids sorted stably, and where each row's occurrences begin. For that the host waits for the GPU once
or twice an update. An id outside the table is also found then (IndexError). A look-up waits for nothing. There such an id ends the process
by an assertion on the GPU, as in torch's own look-ups.
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
    if not len(lookups.ids) or not weight.shape[1]:
        return
    grad = grad if grad.stride(1) == 1 else grad.contiguous()
    sources = lookups.gradient_rows()
    runs = _runs(lookups, weight, grad)
    summed: dict[str, Any] = {
        "grad": _bits(grad),
        "sources": runs.order if sources is None else sources[runs.order],
        "factors": None if lookups.weights is None else lookups.weights[runs.order],
        "offsets": None if lookups.offsets is None else lookups.offsets.contiguous(),
        "features": lookups.features,
        "samples": lookups.samples,
        "grad_stride": grad.stride(0),
        "GRAD_BF16": grad.dtype == torch.bfloat16,
        "WEIGHTED": lookups.weights is not None,
        "MEAN": lookups.mode == "mean",
        **_columns(weight),
    }
    parts = torch.empty(runs.parts, weight.shape[1], device=weight.device)
    with torch.cuda.device_of(weight):
        if runs.parts:
            begins, ends = _pieces(runs)
            triton_kernels.sum_pieces[(runs.parts,)](parts, begins, ends, **summed)
        triton_kernels.move_rows[(len(runs.touched),)](
            *(_bits(weight), low, state, squares, runs.touched, runs.begins, parts, runs.first_parts),
            rate=rule.rate,
            eps=rule.eps,
            decay=rule.weight_decay,
            new_mean=1 - rule.beta1,
            old_square=rule.beta2,
            new_square=1 - rule.beta2,
            PIECE=torch_embedding.PIECE,
            FORMAT=FORMATS[weight.dtype],
            RULE=rule.name,
            DECAYS=rule.weight_decay != 0,
            LOW=None if low is None else LOWS[low.dtype],
            **summed,
        )


@dataclass(frozen=True)
class _Runs:
    """Where each row occurs: `order` [N], positions of the ids by row, equal ones in their order. Row touched[u] is at [begins[u], begins[u
    + 1]) of it. Rows with more than PIECE occurrences have `many[u]` pieces, numbered from first_parts[u]; others none.
    """

    order: torch.Tensor
    touched: torch.Tensor  # [U]
    begins: torch.Tensor  # [U + 1]
    many: torch.Tensor  # [U]
    first_parts: torch.Tensor  # [U]
    parts: int


def _runs(lookups: Lookups, weight: torch.Tensor, grad: torch.Tensor) -> _Runs:
    rows = lookups.rows()
    bounds = [*rows.aminmax(), *(() if lookups.source is None else lookups.source.aminmax())]
    ordered, order = (rows.int() if len(weight) < 2**31 else rows).sort(stable=True)  # in half the time
    fresh = torch.ones_like(ordered, dtype=torch.bool)
    torch.ne(ordered[1:], ordered[:-1], out=fresh[1:])
    begins = fresh.nonzero().squeeze(1)
    begins = torch.cat((begins, begins.new_full((1,), len(rows))))
    counts = begins.diff()
    pieces = (counts + torch_embedding.PIECE - 1) // torch_embedding.PIECE
    many = torch.where(counts > torch_embedding.PIECE, pieces, 0)
    parts, least, most, *of_sources = torch.stack([bound.long() for bound in (many.sum(), *bounds)]).tolist()
    if least < 0 or most >= len(weight):
        place = int(((rows < 0) | (rows >= len(weight))).nonzero()[0])
        raise IndexError(f"id {int(lookups.ids[place])} at place {place} means row {int(rows[place])} of a table with {len(weight)} rows")
    if of_sources and not 0 <= of_sources[0] <= of_sources[1] < len(grad):
        raise IndexError(f"sources from {of_sources[0]} to {of_sources[1]} of a gradient with {len(grad)} rows")
    return _Runs(order, ordered[begins[:-1]].long(), begins, many, many.cumsum(0) - many, parts)


def _pieces(runs: _Runs) -> tuple[torch.Tensor, torch.Tensor]:
    """Places of `order` at which each piece begins and ends."""
    row = torch.repeat_interleave(torch.arange(len(runs.many), device=runs.many.device), runs.many, output_size=runs.parts)
    number = torch.arange(runs.parts, device=row.device) - runs.first_parts[row]
    begins = runs.begins[row] + number * torch_embedding.PIECE
    return begins, torch.minimum(begins + torch_embedding.PIECE, runs.begins[row + 1])


def _check_inside(rows: torch.Tensor, weight: torch.Tensor, offsets: torch.Tensor | None = None) -> None:
    """What the kernels assert on a GPU, for Triton's interpreter: IndexError."""
    inside = not len(rows) or (int(rows.min()) >= 0 and int(rows.max()) < len(weight))
    rise = offsets is None or bool(offsets[0] == 0 and offsets[-1] == len(rows) and (offsets.diff() >= 0).all())
    if not (inside and rise):
        told = f"an id is not among the table's {len(weight)} rows, or offsets do not rise from 0 to the number of ids, {len(rows)}"
        raise IndexError(told)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """BF16 as the kernels take it: int16."""
    return tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor


def _columns(weight: torch.Tensor) -> dict[str, Any]:
    """What a kernel gets to know of the width of rows, and how it is compiled."""
    block = max(16, triton.next_power_of_2(weight.shape[1]))
    return {"DIM": weight.shape[1], "BLOCK": block, "num_warps": min(8, max(1, block // ELEMENTS_A_WARP)), **triton_kernels.OPTIONS}
