"""Kernels of a GPU: look-ups and updates by Triton beside FBGEMM and torch, and HSTU beside torch's attention.

    python experiments/benchmarks/gpu.py

Prints one JSON object. Times are medians of CUDA's events in ms, with least and most. Batches take turns, so that no row is in a cache from
the same batch before. `share`: bytes that must move, over the time, over what a copy reaches on this GPU.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from recsys_lab import kernels
from recsys_lab.kernels import Lookups, Rule
from recsys_lab.kernels.stored import StoredWeights
from recsys_lab.models.hstu.network import HSTUBlock
from recsys_lab.models.jagged import Places

DEVICE = torch.device("cuda")
COPY_BYTES, WARM_UP, ROUNDS, TURNS = 1 << 31, 5, 30, 8
ROWS, SAMPLES, FEATURES = 1 << 23, 1 << 13, 16
#: (columns, ids a bag, power law of ids): click data has skewed ids.
CASES = ((128, 1, 0.0), (128, 20, 1.05), (32, 20, 1.05))
RULES = (Rule("sgd", 0.01), Rule("row_wise_adagrad", 0.01))
SEQUENCES, LENGTH, DIM, HEADS, HEAD_DIM = 32, 2048, 256, 4, 64
#: Median, least and most.
Times: TypeAlias = tuple[float, ...]


def main() -> None:
    gpu, copy = torch.cuda.get_device_properties(DEVICE), copy_gb_s()
    found: dict[str, Any] = {"gpu": gpu.name, "torch": torch.__version__, "copy_gb_s": copy, "tables": [], "hstu": {}}
    for case in CASES:
        found["tables"] += [row | {"share": row["mb"] / 1e3 / row["ms"][0] * 1e3 / copy} for row in tables(*case)]
    for dtype in (torch.float32, torch.bfloat16):
        found["hstu"][str(dtype).removeprefix("torch.")] = hstu(dtype)
    print(json.dumps(found, indent=1))


def ms(work: Callable[[], object]) -> Times:
    times = []
    for number in range(WARM_UP + ROUNDS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        if number >= WARM_UP:
            times.append(begin.elapsed_time(end))
    return round(median(times), 4), round(min(times), 4), round(max(times), 4)


def copy_gb_s() -> float:
    """Bytes read and written."""
    here, there = (torch.randint(0, 255, (COPY_BYTES,), dtype=torch.uint8, device=DEVICE) for _ in range(2))
    return 2 * COPY_BYTES / 1e6 / ms(lambda: there.copy_(here))[0]


def tables(dim: int, ids_a_bag: int, skew: float) -> Iterator[dict[str, Any]]:
    """Of one table that all features read: each way's look-up and update, with the megabytes that it must move."""
    bags = SAMPLES * FEATURES
    offsets = torch.arange(bags + 1, device=DEVICE) * ids_a_bag
    ids = [drawn(bags * ids_a_bag, skew) for _ in range(TURNS)]
    distinct = median(len(one.unique()) for one in ids)
    case = {"dim": dim, "ids_a_bag": ids_a_bag, "skew": skew, "ids": len(ids[0]), "distinct": distinct}
    for made in (by_triton, by_torch, by_fbgemm):
        for what, format, element, times in made(dim, ids, offsets):
            made_mb = bags * dim * 4 / 1e6  # what a look-up writes, and of whose gradient an update reads as much
            mb = made_mb + (distinct * (2 * dim * element + 8) if what != "look-up" else len(ids[0]) * dim * element) / 1e6
            yield {**case, "how": made.__name__.removeprefix("by_"), "what": what, "format": format, "mb": mb, "ms": times}


def by_triton(dim: int, ids: list[torch.Tensor], offsets: torch.Tensor) -> Iterator[tuple[str, str, int, Times]]:
    """(what, format, bytes of a stored weight, ms). Of hi/lo split weights a look-up reads the upper half."""
    first_rows = torch.zeros(FEATURES, dtype=torch.int64, device=DEVICE)
    batches = itertools.cycle([Lookups(one, offsets, FEATURES, first_rows) for one in ids])
    grad = torch.randn(SAMPLES, FEATURES * dim, device=DEVICE)
    for format, read, stored in (("fp32", 4, 4), ("bf16", 2, 2), ("split_bf16", 2, 4)):
        weights = filled(format, dim)
        yield "look-up", format, read, ms(partial(_look_up, weights, batches))
        for rule in RULES:
            state = torch.zeros(ROWS, device=DEVICE) if rule.name == "row_wise_adagrad" else None
            yield f"update {rule.name}", format, stored, ms(partial(_update, weights, batches, grad, rule, state))


def by_torch(dim: int, ids: list[torch.Tensor], offsets: torch.Tensor) -> Iterator[tuple[str, str, int, Times]]:
    weights, turns = filled("fp32", dim).model, itertools.cycle(ids)
    yield "look-up", "fp32", 4, ms(lambda: torch.nn.functional.embedding_bag(next(turns), weights, offsets[:-1], mode="sum"))


def by_fbgemm(dim: int, ids: list[torch.Tensor], offsets: torch.Tensor) -> Iterator[tuple[str, str, int, Times]]:
    """Its table-batched embedding. An update is in its backward pass, whose time is that of both passes less the look-up's."""
    from fbgemm_gpu.split_embedding_configs import EmbOptimType, SparseType
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import ComputeDevice, EmbeddingLocation
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import SplitTableBatchedEmbeddingBagsCodegen as Tables

    grad = torch.randn(SAMPLES, FEATURES * dim, device=DEVICE)
    kinds = {"sgd": EmbOptimType.EXACT_SGD, "row_wise_adagrad": EmbOptimType.EXACT_ROWWISE_ADAGRAD}
    for precision, (name, kind) in itertools.product((SparseType.FP32, SparseType.FP16), kinds.items()):
        place = (ROWS, dim, EmbeddingLocation.DEVICE, ComputeDevice.CUDA)
        how = {"weights_precision": precision, "optimizer": kind, "learning_rate": 0.01, "device": DEVICE}
        table, turns = Tables([place], feature_table_map=[0] * FEATURES, **how), itertools.cycle(ids)
        format, element = precision.name.lower(), 4 if precision == SparseType.FP32 else 2
        forward = ms(partial(_fbgemm, table, turns, offsets, None))
        if name == "sgd":
            yield "look-up", format, element, forward
        both = ms(partial(_fbgemm, table, turns, offsets, grad))
        yield f"update {name}", format, element, tuple(round(time - forward[0], 4) for time in both)


def filled(format: str, dim: int) -> StoredWeights:
    """A table whose weights are random."""
    weights, part = StoredWeights.empty(format, (ROWS, dim), DEVICE), ROWS // 8
    for start in range(0, ROWS, part):
        weights.write(torch.randn(part, dim, device=DEVICE), slice(start, start + part))
    return weights


def _look_up(weights: StoredWeights, batches: Iterator[Lookups]) -> None:
    kernels.bags(weights.model, next(batches))


def _update(weights: StoredWeights, batches: Iterator[Lookups], grad: torch.Tensor, rule: Rule, state: torch.Tensor | None) -> None:
    kernels.update(weights.model, next(batches), grad, rule, low=weights.rest, state=state)


def _fbgemm(table: torch.nn.Module, ids: Iterator[torch.Tensor], offsets: torch.Tensor, grad: torch.Tensor | None) -> None:
    with torch.set_grad_enabled(grad is not None):
        made = table(next(ids), offsets)
    if grad is not None:
        made.backward(grad)


def drawn(count: int, skew: float) -> torch.Tensor:
    """Ids of a power law over the rows, which lie in no order of it."""
    if not skew:
        return torch.randint(0, ROWS, (count,), device=DEVICE)
    law = torch.arange(1, ROWS + 1, dtype=torch.float64, device=DEVICE).pow(-skew).cumsum(0)
    chance = torch.rand(count, dtype=torch.float64, device=DEVICE) * law[-1]
    order = torch.randperm(ROWS, generator=torch.Generator(DEVICE).manual_seed(0), device=DEVICE)
    return order[torch.searchsorted(law, chance).clamp_(max=ROWS - 1)]


def hstu(dtype: torch.dtype) -> dict[str, Any]:
    """Forward and backward of a layer, by our kernel and by torch in blocks, and of torch's causal attention alone, on full sequences."""
    torch.manual_seed(0)
    block = HSTUBlock(DIM, HEADS, HEAD_DIM, HEAD_DIM, LENGTH, 0.0, DEVICE).to(dtype)
    lengths = torch.full((SEQUENCES,), LENGTH)
    places = Places.of(lengths, DEVICE)
    rows = torch.randn(SEQUENCES * LENGTH, DIM, device=DEVICE, dtype=dtype, requires_grad=True)
    grad = torch.randn_like(rows)
    found: dict[str, Any] = {}
    for how, groups in {"by_kernel": None, "by_torch": places.groups(lengths)}.items():
        torch.cuda.reset_peak_memory_stats()
        found[f"layer_ms_{how}"] = ms(lambda: block(rows, places, groups).backward(grad))  # noqa: B023
        found[f"layer_peak_gb_{how}"] = round(torch.cuda.max_memory_allocated() / 1e9, 2)
    qkv = [torch.randn(SEQUENCES, HEADS, LENGTH, HEAD_DIM, device=DEVICE, dtype=dtype, requires_grad=True) for _ in range(3)]
    out, attend = torch.randn_like(qkv[0]), torch.nn.functional.scaled_dot_product_attention
    return found | {"torch_attention_ms": ms(lambda: attend(*qkv, is_causal=True).backward(out))}


if __name__ == "__main__":
    main()
