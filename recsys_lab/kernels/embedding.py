"""Embedding look-ups and updates: one signature; C++ on a CPU where it can be compiled, Triton on a GPU, the torch definition elsewhere.

C++, Triton and the definition on a CPU give the same bits (tests/kernels), for any number of threads.

Shapes: E rows, D dimension, B samples, F features, N ids. See lookups.py for how ids, bags and gradients belong together.
"""

from __future__ import annotations

from types import ModuleType

import torch

from recsys_lab.base.row_updates import ROW_UPDATES, STRATEGIES
from recsys_lab.errors import UserError
from recsys_lab.kernels import native, torch_embedding
from recsys_lab.kernels.choice import native_for, triton_for
from recsys_lab.kernels.cpu.nontemporal_stores import nontemporal_stores
from recsys_lab.kernels.cpu.row_prefetch import read_first, second_level
from recsys_lab.kernels.lookups import Lookups
from recsys_lab.kernels.rule import STATE_OF, WITH_SQUARES, Rule

OUT = (torch.float32, torch.bfloat16)


def bags(weight: torch.Tensor, lookups: Lookups, out_dtype: torch.dtype = torch.float32, out: torch.Tensor | None = None) -> torch.Tensor:
    """Pooled rows, summed in FP32 in the order of the ids and rounded once (CPU DLRM, algorithm 1).

    Args:
        weight: [E, D], FP32, BF16 or FP16.
        lookups: with `offsets`.
        out_dtype: FP32 or BF16.
        out: where to write: columns next to one another, rows with any stride; None: a new matrix.

    Returns:
        [B, F * D].

    Raises:
        IndexError: for an id outside the table. A look-up on a GPU waits for nothing; there an assertion ends the process.
    """
    assert lookups.offsets is not None, "bags have offsets"
    assert weight.is_contiguous(), "tables are contiguous [E, D]"
    out = _out(out, (lookups.samples, lookups.features * weight.shape[1]), out_dtype, weight.device)
    if native_for(weight):
        native.bags(weight, lookups, out, second_level=second_level(), nontemporal=nontemporal_stores((out,), weight.shape[1]))
    elif triton_for(weight):
        _triton().bags(weight, lookups, out)
    else:
        out.copy_(torch_embedding.bags(weight, lookups))
    return out


def rows(weight: torch.Tensor, ids: torch.Tensor, out_dtype: torch.dtype = torch.float32, out: torch.Tensor | None = None) -> torch.Tensor:
    """A row for each id: look-ups of a sequence.

    Args:
        weight: [E, D], FP32, BF16 or FP16.
        ids: [N], int32 or int64.
        out_dtype, out: those of `bags`.

    Returns:
        [N, D].

    Raises:
        IndexError: as `bags` does.
    """
    assert weight.is_contiguous(), "tables are contiguous [E, D]"
    out = _out(out, (len(ids), weight.shape[1]), out_dtype, weight.device)
    if native_for(weight):
        native.rows(weight, ids, out, second_level=second_level(), nontemporal=nontemporal_stores((out,), weight.shape[1]))
    elif triton_for(weight):
        _triton().rows(weight, ids, out)
    else:
        out.copy_(torch_embedding.rows(weight, ids))
    return out


def update(
    weight: torch.Tensor,
    lookups: Lookups,
    grad: torch.Tensor,
    rule: Rule,
    *,
    low: torch.Tensor | None = None,
    state: torch.Tensor | None = None,
    squares: torch.Tensor | None = None,
    strategy: str = "default",
) -> None:
    """One optimizer step of the rows that `lookups` touched, in place, from the gradient of what was looked up.

    The gradient of a row is summed over all its occurrences in the order of the ids. Then the row moves once. This is backward pass and
    update in one, of which only CPU DLRM's section III-A speaks.

    Args:
        weight: [E, D], FP32, BF16 or FP16 (rounded once).
        lookups: what was looked up.
        grad: FP32 or BF16; [B, F * D] of bags, [*, D] of single rows.
        rule: the optimizer.
        low: [E, D], beside BF16 weights: int16 or uint8 for hi/lo split weights (CPU DLRM, section VII), FP32 for master weights.
        state: FP32; [E] for row_wise_adagrad, [E, D] for adagrad, adam and lamb; None for sgd.
        squares: FP32 [E, D], the second state of adam and lamb.
        strategy: default; or reference, atomic or race_free, the paper's algorithms 2 to 4, for comparison. Those are plain SGD. Every
            occurrence moves its row by itself, so the sums are rounded differently.

    Raises:
        IndexError: for an id outside the table. On a GPU an assertion ends the process.
        UserError: for an unknown strategy, or one that the rule, the formats or the device do not allow.
    """
    assert grad.dtype in OUT and grad.dim() == 2, "gradients are matrices in FP32 or BF16"
    assert weight.is_contiguous() and (low is None or (low.is_contiguous() and low.shape == weight.shape)), "tables are contiguous [E, D]"
    expected = {None: None, "row": (weight.shape[0],), "weight": tuple(weight.shape)}[STATE_OF[rule.name]]
    assert (None if state is None else tuple(state.shape)) == expected, f"{rule.name}: state is {expected}"
    assert (squares is None) == (rule.name not in WITH_SQUARES), "squares are those of adam and lamb"
    assert squares is None or squares.shape == weight.shape, "squares are [E, D]"
    assert all(s is None or (s.dtype == torch.float32 and s.is_contiguous()) for s in (state, squares)), "states are FP32 and contiguous"
    if lookups.offsets is not None:
        assert grad.shape == (lookups.samples, lookups.features * weight.shape[1]), "the gradient of bags is [B, F * D]"
    else:
        assert grad.shape[1] == weight.shape[1] and (lookups.source is not None or grad.shape[0] == lookups.ids.numel()), "a row a gradient"
    assert weight.shape[0] < 1 << 32, "rows are numbered in 32 bits"
    if lookups.source is not None and lookups.ids.numel() and (lookups.weights is not None or strategy != "default"):
        assert 0 <= int(lookups.source.min()) <= int(lookups.source.max()) < len(grad), "sources are rows of the gradient"
    check_strategy(strategy, weight, low, rule)
    assert not rule.stochastic or (weight.dtype == torch.float16 and strategy == "default"), "stochastic rounding is of FP16, and PyTorch's"
    has_kernel = rule.name in native.RULES and not rule.stochastic
    if has_kernel and native_for(weight):
        parts = low is not None or STATE_OF[rule.name] == "weight"
        native.update(weight, low, state, lookups, grad, rule, squares, strategy, read_first=read_first(parts))
    elif has_kernel and triton_for(weight):
        _triton().update(weight, low, state, lookups, grad, rule, squares)
    else:
        torch_embedding.update(weight, low, state, lookups, grad, rule, squares)


def _triton() -> ModuleType:
    """Imported where it is needed: Triton comes with torch for CUDA alone."""
    from recsys_lab.kernels import triton_embedding

    return triton_embedding


def _out(out: torch.Tensor | None, shape: tuple[int, int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    assert dtype in OUT, "looked-up rows are FP32 or BF16"
    if out is None:
        return torch.empty(shape, dtype=dtype, device=device)
    assert out.shape == shape and out.dtype == dtype and (out.stride(1) == 1 or shape[1] <= 1), f"out is {shape}, {dtype}, by rows"
    return out


def check_strategy(strategy: str, weight: torch.Tensor, low: torch.Tensor | None, rule: Rule) -> None:
    """Raises UserError for a strategy of an update that does not exist, or not for this rule, these formats or this device."""
    if strategy == "default":
        return
    if strategy not in STRATEGIES:
        raise UserError(
            "unknown strategy of an update",
            where="sharder.executor.row_update",
            given=strategy,
            allowed=", ".join(ROW_UPDATES),
        )
    plain = rule.name == "sgd" and rule.weight_decay == 0 and native_for(weight)
    if not plain or (strategy == "atomic" and (weight.dtype != torch.float32 or low is not None)):
        raise UserError(
            "this algorithm is the CPU DLRM paper's, for plain SGD",
            where="sharder.executor.row_update",
            given=f"{strategy} with {rule.name} on {weight.dtype}",
            allowed="plain SGD without weight decay on the C++ kernels; atomic: FP32 weights",
            remedy="optimizer.sparse.name=sgd, or sharder.executor.row_update=default",
        )
