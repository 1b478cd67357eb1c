"""Dot products of all pairs of F vectors: as one batched matrix product, or pair by pair (DMT, section 4).

    python experiments/benchmarks/dot_products.py

Forward and backward, in alternation, on one thread. Milliseconds of the thread's processor time, so that other work on the machine
counts little. `pairs_over_all` below 1: pair by pair is faster. `chosen` is what recsys_lab/models/layers.py does there. Limit: memory
bandwidth, as both read the vectors once and write as much of gradient; `bytes_gb_s` is that over the faster one's time.
Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from statistics import median

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from recsys_lab.models.layers import FEW_VECTORS, MANY_SAMPLES, dots_of_all, dots_of_pairs

ROUTINES = {"all": dots_of_all, "pairs": dots_of_pairs}


def main() -> None:
    line = argparse.ArgumentParser(description="dot products of all pairs, two ways; one JSON object")
    line.add_argument("--samples", type=int, nargs="+", default=[64, 512, 2048])
    line.add_argument("--vectors", type=int, nargs="+", default=[3, 5, 7, 9, 17, 27])
    line.add_argument("--dims", type=int, nargs="+", default=[16, 64, 128])
    line.add_argument("--rounds", type=int, default=7)
    given = line.parse_args()
    torch.set_num_threads(1)
    sizes = [(b, f, d) for b in given.samples for f in given.vectors for d in given.dims]
    print(
        json.dumps(
            {"rounds": given.rounds, "torch": torch.__version__, "sizes": [measure(*size, given.rounds) for size in sizes]}, indent=1
        )
    )


def measure(samples: int, vectors: int, dim: int, rounds: int) -> dict[str, float | int | str]:
    x = torch.randn(samples, vectors, dim, generator=torch.Generator().manual_seed(1)).requires_grad_()
    times: dict[str, list[float]] = {name: [] for name in ROUTINES}
    for _ in range(rounds + 1):
        for name, routine in ROUTINES.items():
            begin = time.thread_time()
            routine(x).sum().backward()
            times[name].append((time.thread_time() - begin) * 1e3)
            x.grad = None
    ms = {name: median(kept[1:]) for name, kept in times.items()}
    ratios = sorted(pairs / whole for pairs, whole in zip(times["pairs"][1:], times["all"][1:]))
    return {
        "samples": samples,
        "vectors": vectors,
        "dim": dim,
        "all_ms": round(ms["all"], 3),
        "pairs_ms": round(ms["pairs"], 3),
        "pairs_over_all": round(ms["pairs"] / ms["all"], 2),
        "least_ratio": round(ratios[0], 2),
        "most_ratio": round(ratios[-1], 2),
        "bytes_gb_s": round(2 * x.numel() * 4 / min(ms.values()) / 1e6, 2),
        "chosen": "pairs" if vectors <= FEW_VECTORS and samples >= MANY_SAMPLES else "all",
    }


if __name__ == "__main__":
    main()
