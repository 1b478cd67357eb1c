"""Attention over jagged batches on the CPU beside torch's over the padded rectangle. Prints one JSON object; the rest goes to stderr.

    .venv/bin/python experiments/benchmarks/jagged_attention.py [--rounds N] [--threads 1]

Forward and backward of attention alone, FP32, 2 heads of 32 columns, 128 sequences. Ours reads columns of one matrix of rows, as layers of
the models make it. Torch's has a rectangle [B, T] of queries, keys and values already, so that it pays for no padding and packing. It is
scaled_dot_product_attention with its causal mask for SASRec, and the definition of models/pointwise.py for HSTU. Rounds alternate.

`sasrec_vs_padded`, `hstu_vs_padded`: torch's median time over ours, lengths by the law of Amazon Beauty's training histories.
`equal_lengths`: the smaller of both models' ratios where all lengths are 50, and nothing is padded.
`share_of_gemm_peak`: FLOP/s of ours in the equal case, the smaller of both models', over those of torch.mm, 1,024 cubed. Counted are the
seven products, of each row with those up to itself. Exponentials are not.
"""

from __future__ import annotations

import argparse
import bisect
import json
import math
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import time

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from recsys_lab.kernels.attention import causal_silu
from recsys_lab.kernels.jagged_attention import causal_softmax
from recsys_lab.kernels.native import instructions
from recsys_lab.models.pointwise import attend_in_blocks
from recsys_lab.record.environment import cpu_model
from recsys_lab.train.memory import keep_memory

SEQUENCES, HEADS, HEAD_DIM, EQUAL, GEMM = 128, 2, 32, 50, 1024
COLUMNS = HEADS * HEAD_DIM
#: Lengths, and the share of users with at most so many items in their training history: Amazon Beauty, S3-Rec's copy (22,363 users, of
#: whose 5 to 204 items the last two are validation and test), with a data.max_history of 50.
LENGTHS = (2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 25, 30, 40, 49, 50)
SHARES = (0, 0.3203, 0.509, 0.6289, 0.7098, 0.7709, 0.8103, 0.8663, 0.9021, 0.9326, 0.9582, 0.9729, 0.9815, 0.9899, 0.9936, 1)


@dataclass(frozen=True)
class Times:
    """Seconds of each round."""

    ours: list[float]
    torch: list[float]

    def ratio(self) -> float:
        return statistics.median(self.torch) / statistics.median(self.ours)

    def spread(self) -> list[float]:
        each = sorted(theirs / ours for ours, theirs in zip(self.ours, self.torch, strict=True))
        return [round(each[0], 2), round(each[-1], 2)]


def main() -> None:
    line = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    line.add_argument("--rounds", type=int, default=41)
    line.add_argument("--threads", type=int, default=1)
    chosen = line.parse_args()
    torch.set_num_threads(chosen.threads)
    torch.manual_seed(0)
    keep_memory()
    measure = partial(alternating, rounds=chosen.rounds)
    peak, cases = gemm_flop_s(), {}
    for name, lengths in (("beauty", by_law()), ("equal", [EQUAL] * SEQUENCES)):
        for model, pair in (("sasrec", softmax_pair), ("hstu", silu_pair)):
            cases[model, name] = measure(*pair(lengths))
    peak = statistics.median((peak, gemm_flop_s(), gemm_flop_s()))
    equal = [cases[model, "equal"] for model in ("sasrec", "hstu")]
    rate = flops([EQUAL] * SEQUENCES) / max(statistics.median(times.ours) for times in equal)
    for (model, name), times in cases.items():
        ours, theirs = (1e3 * statistics.median(one) for one in (times.ours, times.torch))
        print(f"{model}, {name}: {ours:.2f} ms, torch {theirs:.2f} ms, ratio {times.ratio():.2f} {times.spread()}", file=sys.stderr)
    where = f"{cpu_model()}, {instructions()}, {chosen.threads} thread(s), {chosen.rounds} rounds, torch {torch.__version__}"
    print(f"gemm {peak / 1e9:.0f} GFLOP/s; {where}", file=sys.stderr)
    found = {f"{model}_vs_padded": cases[model, "beauty"].ratio() for model in ("sasrec", "hstu")}
    found |= {"equal_lengths": min(times.ratio() for times in equal), "share_of_gemm_peak": rate / peak}
    print(json.dumps({key: round(value, 3) for key, value in found.items()}))


def by_law() -> list[int]:
    """A length for each share in the middle of 128 equal parts, in a random order. Their mean is 6.7, the data's as well."""
    lengths = []
    for share in ((part + 0.5) / SEQUENCES for part in torch.randperm(SEQUENCES).tolist()):
        at = bisect.bisect_right(SHARES, share)
        part = (share - SHARES[at - 1]) / (SHARES[at] - SHARES[at - 1])
        lengths.append(math.ceil(LENGTHS[at - 1] + (LENGTHS[at] - LENGTHS[at - 1]) * part))
    return lengths


def flops(lengths: list[int]) -> float:
    """Of two products forward and five backward."""
    return sum(7 * 2 * COLUMNS * length * (length + 1) / 2 for length in lengths)


def softmax_pair(lengths: list[int]) -> tuple[Callable[[], None], Callable[[], None]]:
    """Ours and torch's, each forward and backward."""
    rows, of_rows, rectangle, of_rectangle = inputs(lengths)
    counts = torch.tensor(lengths)

    def ours() -> None:
        causal_softmax(*rows.chunk(3, 1), counts, HEADS).backward(of_rows)

    def padded() -> None:
        scaled_dot_product_attention(*by_head(rectangle), is_causal=True).backward(of_rectangle)

    return ours, padded


def silu_pair(lengths: list[int]) -> tuple[Callable[[], None], Callable[[], None]]:
    rows, of_rows, rectangle, of_rectangle = inputs(lengths)
    counts, longest, bias = torch.tensor(lengths), max(lengths), torch.zeros(EQUAL, requires_grad=True)

    def ours() -> None:
        causal_silu(*rows.chunk(3, 1), bias, counts, longest, HEADS, EQUAL).backward(of_rows)

    def padded() -> None:
        attend_in_blocks(*by_head(rectangle), longest, EQUAL, bias).backward(of_rectangle)

    return ours, padded


def inputs(lengths: list[int]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows [N, 3 h d] with the gradient of a result, and a rectangle [B, T, 3 h d] with another."""
    count, longest = sum(lengths), max(lengths)
    rows, rectangle = (torch.randn(*shape, 3 * COLUMNS).requires_grad_() for shape in ((count,), (SEQUENCES, longest)))
    return rows, torch.randn(count, COLUMNS), rectangle, torch.randn(SEQUENCES, HEADS, longest, HEAD_DIM)


def by_head(rectangle: Tensor) -> Tensor:
    """[B, T, 3 h d] -> queries, keys and values [3, B, h, T, d]."""
    return rectangle.unflatten(2, (3, HEADS, HEAD_DIM)).permute(2, 0, 3, 1, 4)


def alternating(ours: Callable[[], None], padded: Callable[[], None], rounds: int) -> Times:
    """Turns of both, after two that do not count."""
    times = Times([], [])
    for turn in range(rounds + 2):
        for call, taken in ((ours, times.ours), (padded, times.torch)):
            began = time.perf_counter()
            call()
            if turn >= 2:
                taken.append(time.perf_counter() - began)
    return times


def gemm_flop_s() -> float:
    a, b = torch.randn(GEMM, GEMM), torch.randn(GEMM, GEMM)
    taken = []
    for _ in range(11):
        began = time.perf_counter()
        torch.mm(a, b)
        taken.append(time.perf_counter() - began)
    return 2 * GEMM**3 / statistics.median(taken)


if __name__ == "__main__":
    main()
