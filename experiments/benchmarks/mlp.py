"""GEMMs of figure 5 of Kalamkar et al. 2020 inside a running MLP, as a share of the machine's GEMM peak. Prints one JSON object.

    .venv/bin/python experiments/benchmarks/mlp.py [--rounds N] [--threads 2]

Figure 5: five layers, batch N = 1,024. Inputs C and outputs K of a layer are each 1,024, 2,048 or 4,096; here layers alternate between the
two. Forward, backward by data and backward by weights are timed. Each GEMM is timed where it happens, between the ReLUs, bias gradients and
autograd of a training step of our MLP, by torch's profiler. The peak is that of single GEMMs, alone, of 2,048 x 1,024 x 1,024 and of 2,048
cubed, through oneDNN and through torch. Each is tried before every one of the nine MLPs, and the best median counts.
`bf16_share_of_best`: the time of the same products alone, each in the best layout of both libraries, over all time in GEMMs.
`bf16_share_of_peak`: all FLOPs of the nine MLPs over all time in GEMMs, over the peak. `step_share_of_peak` counts all of a step's time.
Each is the median over rounds. The paper's own, FP32 on a Xeon 8180 against its arithmetic peak: 72 % (published).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import time
from collections import Counter
from collections.abc import Iterator
from unittest import mock

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from experiments.benchmarks.limits import FORMATS, best_product_s, gemm_gflop_s, layer_products, products_of
from recsys_lab.kernels import dense
from recsys_lab.models.layers import mlp
from recsys_lab.models.linear import MLP
from recsys_lab.plan.workload import DenseLayer
from recsys_lab.record.environment import cpu_model
from recsys_lab.train.memory import keep_memory

N, SIZES, LAYERS = 1024, (1024, 2048, 4096), 5
PASSES = ("forward", "backward_by_data", "backward_by_weights")
#: Of a step, in its profile: torch's, and our own in tiles, which torch does not see unless it is named.
OURS = "product_by_weights"
PRODUCTS = ("aten::mm", "aten::addmm", "mkldnn::_linear_pointwise", OURS)


def main() -> None:
    line = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    line.add_argument("--rounds", type=int, default=3)
    line.add_argument("--threads", type=int, default=2)
    line.add_argument("--formats", nargs="+", choices=list(FORMATS), default=["bf16"])
    chosen = line.parse_args()
    torch.set_num_threads(chosen.threads)
    keep_memory()
    rounds = [{name: one_round(FORMATS[name]) for name in chosen.formats} for _ in range(chosen.rounds)]
    found: dict[str, object] = {}
    for name in chosen.formats:
        mine = [one[name] for one in rounds]
        for key in ("share_of_best", "share_of_peak", "step_share_of_peak", "peak_gflop_s"):
            values = [one[key] for one in mine]
            found[f"{name}_{key}"] = round(statistics.median(values), 3)
            found[f"{name}_{key}_spread"] = [round(min(values), 3), round(max(values), 3)]
        found[f"{name}_by_size"] = {
            size: {part: round(statistics.median(one["sizes"][size][part] for one in mine), 3) for part in PASSES}
            for size in mine[0]["sizes"]
        }
    print(json.dumps(found | {"rounds": chosen.rounds, "threads": chosen.threads, "torch": torch.__version__, "processor": cpu_model()}))


def one_round(dtype: torch.dtype) -> dict:
    alone: dict[tuple, list[float]] = {(f, wide): [] for f in products_of(dtype) for wide in (1024, 2048)}
    flops = gemm_s = step_s = best_s = 0.0
    sizes: dict[str, dict[str, float]] = {}
    for c in SIZES:
        for k in SIZES:
            for (f, wide), rates in alone.items():
                rates.append(gemm_gflop_s(f, 2048, wide, wide, dtype))
            net, x = mlp(c, [k if layer % 2 == 0 else c for layer in range(LAYERS)], None).to(dtype), torch.randn(N, c).to(dtype)
            took, whole = gemm_seconds(net, x)
            each = 2 * N * c * k
            done = {"forward": LAYERS * each, "backward_by_data": (LAYERS - 1) * each, "backward_by_weights": LAYERS * each}
            sizes[f"C={c} K={k}"] = {part: done[part] / took[part] / 1e9 for part in PASSES}
            best_s += sum(times * best_product_s(*shape, dtype) for shape, times in Counter(products(c, k)).items())
            flops, gemm_s, step_s = flops + sum(done.values()), gemm_s + sum(took.values()), step_s + whole
    peak = max(statistics.median(rates) for rates in alone.values())
    return {
        "share_of_best": best_s / gemm_s,
        "share_of_peak": flops / gemm_s / 1e9 / peak,
        "step_share_of_peak": flops / step_s / 1e9 / peak,
        "peak_gflop_s": peak,
        "sizes": {size: {part: rate / peak for part, rate in of.items()} for size, of in sizes.items()},
    }


def products(c: int, k: int) -> Iterator[tuple[int, int, int]]:
    """N, K and M of every product of a step."""
    for layer in range(LAYERS):
        n_in, n_out = (c, k) if layer % 2 == 0 else (k, c)
        yield from layer_products(DenseLayer(1.0, n_in, n_out), N, first=layer == 0).values()


def gemm_seconds(net: MLP, x: torch.Tensor, steps: int = 3) -> tuple[dict[str, float], float]:
    """Seconds a step in the GEMMs of each pass, and of a whole step of forward and backward without the profiler.

    A first step with the profiler and one without do not count: they ask the system for memory, which training does once.
    """

    def step() -> None:
        net.zero_grad()
        net(x).sum().backward()

    step()
    began = time.perf_counter()
    for _ in range(steps):
        step()
    whole = (time.perf_counter() - began) / steps
    ours = mock.patch.object(dense, OURS, record_function(OURS)(dense.product_by_weights))
    for count in (1, steps):
        with ours, profile(activities=[ProfilerActivity.CPU], record_shapes=True) as seen:
            for _ in range(count):
                step()
    took = dict.fromkeys(PASSES, 0.0)
    for event in seen.events():
        if event.name in PRODUCTS and not (event.cpu_parent and event.cpu_parent.name in PRODUCTS):
            took[_pass_of(event)] += event.cpu_time_total / 1e6 / steps
    return took, whole


def _pass_of(event) -> str:
    """Forward is outside of autograd's backward nodes; of the two there, the one whose result has a row a sample is by data."""
    parent = event.cpu_parent
    while parent is not None and "Backward" not in parent.name:
        parent = parent.cpu_parent
    if parent is None:
        return "forward"
    order = [id(child) for child in parent.cpu_children if child.name in PRODUCTS]
    return "backward_by_data" if len(order) > 1 and order[0] == id(event) else "backward_by_weights"


if __name__ == "__main__":
    main()
