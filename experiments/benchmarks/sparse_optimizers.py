"""Look-up, backward and update of tables: our TableBatch against FBGEMM's fused CPU kernels and torch's EmbeddingBag(sparse=True).

    python experiments/benchmarks/sparse_optimizers.py --rounds 40

One thread, alternating, prints one JSON object: quartiles in ms, and the quartiles of the ratio to ours round by round.
FBGEMM has no fused Adam on CPU; torch's Adagrad takes sparse gradients, torch has no row-wise Adagrad.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import ComputeDevice, EmbeddingLocation
from fbgemm_gpu.split_table_batched_embeddings_ops_training import SplitTableBatchedEmbeddingBagsCodegen

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from recsys_lab.executor.sparse_optim import STATES, SparseOptimizer
from recsys_lab.executor.table_batch import HeldShard, TableBatch
from recsys_lab.kernels import Rule

LR, EPS = 0.01, 1e-8
FUSED = {"sgd": EmbOptimType.EXACT_SGD, "adagrad": EmbOptimType.EXACT_ADAGRAD, "row_wise_adagrad": EmbOptimType.EXACT_ROWWISE_ADAGRAD}
TORCH = {
    "sgd": lambda p: torch.optim.SGD(p, LR),
    "adagrad": lambda p: torch.optim.Adagrad(p, LR, eps=EPS),
    "adam": lambda p: torch.optim.SparseAdam(p, LR, eps=EPS),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name, default in (("rounds", 40), ("tables", 26), ("rows", 100_000), ("dim", 16), ("batch", 2048)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    ids = (given.rows * torch.rand(given.tables * given.batch) ** 3).long()  # skewed towards the first rows
    offsets = torch.arange(given.tables * given.batch + 1)
    gradient = torch.randn(given.batch, given.tables * given.dim) / given.batch
    print(json.dumps({"setting": vars(given)} | {name: measure(name, given, ids, offsets, gradient) for name in STATES}))


def measure(name: str, given: argparse.Namespace, ids: torch.Tensor, offsets: torch.Tensor, gradient: torch.Tensor) -> dict:
    steps = {"ours": ours(name, given, ids, offsets, gradient)}
    if name in FUSED:
        steps["fbgemm"] = fbgemm(name, given, ids, offsets, gradient)
    if name in TORCH:
        steps["torch"] = plain(name, given, ids, gradient)
    times = {who: [] for who in steps}
    for _ in range(given.rounds + 2):
        for who, step in steps.items():
            begin = time.perf_counter()
            step()
            times[who].append((time.perf_counter() - begin) * 1e3)
    kept = {who: np.array(ms[2:]) for who, ms in times.items()}
    result = {f"{who}_ms": quartiles(ms) for who, ms in kept.items()}
    return result | {f"{who}_to_ours": quartiles(ms / kept["ours"]) for who, ms in kept.items() if who != "ours"}


def quartiles(values: np.ndarray) -> list[float]:
    return [round(float(q), 2) for q in np.percentile(values, [25, 50, 75])]


def ours(name: str, given: argparse.Namespace, ids: torch.Tensor, offsets: torch.Tensor, gradient: torch.Tensor) -> Callable[[], None]:
    batch = TableBatch([HeldShard(f"t{i}", 0, given.rows, 0, given.dim, 1) for i in range(given.tables)], torch.device("cpu"))
    batch.weights.model.normal_()
    optimizer = SparseOptimizer([batch], Rule(name, LR, EPS), torch.device("cpu"))

    def step() -> None:
        batch.look_up(ids, offsets, given.batch).backward(gradient)
        optimizer.step()

    return step


def fbgemm(name: str, given: argparse.Namespace, ids: torch.Tensor, offsets: torch.Tensor, gradient: torch.Tensor) -> Callable[[], None]:
    tables = [(given.rows, given.dim, EmbeddingLocation.HOST, ComputeDevice.CPU)] * given.tables
    fused = SplitTableBatchedEmbeddingBagsCodegen(tables, optimizer=FUSED[name], learning_rate=LR, eps=EPS)
    return lambda: fused(ids, offsets).backward(gradient)


def plain(name: str, given: argparse.Namespace, ids: torch.Tensor, gradient: torch.Tensor) -> Callable[[], None]:
    bags = [torch.nn.EmbeddingBag(given.rows, given.dim, mode="sum", sparse=True) for _ in range(given.tables)]
    optimizer = TORCH[name]([bag.weight for bag in bags])
    starts, of_table = torch.arange(given.batch), ids.view(given.tables, given.batch)

    def step() -> None:
        optimizer.zero_grad()
        torch.cat([bag(of_table[i], starts) for i, bag in enumerate(bags)], dim=1).backward(gradient)
        optimizer.step()

    return step


if __name__ == "__main__":
    main()
