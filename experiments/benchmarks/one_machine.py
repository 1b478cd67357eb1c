"""Four ways to train one DLRM on one machine, and what the machine could do at best. Shared by dlrm_small.py and dlrm_mlperf.py.

| contender | tables | dense arch | optimizer |
|---|---|---|---|
| torch | nn.EmbeddingBag(sparse=True), FP32 | torch's layers, FP32 | torch's SGD |
| torchrec | EmbeddingBagCollection under DistributedModelParallel, FBGEMM's fused SGD, FP32 | TorchRec's DLRM, FP32 | torch's SGD |
| fp32 | this framework's executor on one rank | its model, FP32 | SGD |
| split_sgd_bf16 | the same, precision=split_sgd_bf16 | the same, BF16 | Split-SGD |

An iteration is all that a step of training does: a batch from the framework's loader (data=random), forward, loss, backward, update.
The contenders take turns in one process. `share_of_limit` compares the framework with bare loops over the same rows and products alone
(limits.py). `share_of_sequential` compares it with sequential memory and large GEMMs. All are measured in the same round.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.benchmarks.dlrm_contenders import BATCH, CONTENDERS, READ_AHEAD, Problem, Step, experiment_of, planned
from experiments.benchmarks.limits import FORMATS, BareRows, Machine, best_product_s, best_s, layer_products, measure_machine
from launchers.processes import ON_THIS_MACHINE, THIS_MACHINE, listen_here
from recsys_lab.data.batch import Batch
from recsys_lab.data.loader import RankLoader
from recsys_lab.kernels.memory import empty_in_huge_pages
from recsys_lab.plan.workload import DenseLayer
from recsys_lab.record.environment import cpu_model
from recsys_lab.tables.spec import READ_BYTES
from recsys_lab.train.memory import keep_memory
from recsys_lab.train.process_group import start_process_group

#: Of each turn of a contender: first ones that do not count, as the loader has read ahead before them, then those that do.
WARM_UP, COUNTED = 4, 8

OURS = ("fp32", "split_sgd_bf16")


def batches(given: Problem) -> Iterator[Batch]:
    """Batch after batch, read ahead as in training."""
    loader = RankLoader(
        given.data.splits["train"],
        given.data,
        batch_size=BATCH,
        rank=0,
        world_size=1,
        seed=1,
        shuffle=False,  # all rows are random
        prefetch_batches=READ_AHEAD,
        pin_memory=False,
    )
    while True:
        yield from (batch for batch in loader if batch.global_valid == BATCH)


def turn(step: Step, source: Iterator[Batch]) -> float:
    """Median milliseconds of the counted iterations of a turn."""
    times = []
    for number in range(WARM_UP + COUNTED):
        began = time.perf_counter()
        step(next(source))
        if number >= WARM_UP:
            times.append((time.perf_counter() - began) * 1e3)
    return statistics.median(times)


# the limits -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Work:
    """Of an iteration. Activations are left out: what a cache holds need not move."""

    flops: float
    bytes_read: float  # rows and all else
    bytes_updated: float  # read and written back; each byte counts once here
    rest_read: float  # of `bytes_read`, what no bare loop over rows reads: it lies in one piece
    rest_updated: float  # the same of `bytes_updated`: weights of the dense arch
    layers: tuple[DenseLayer, ...]


COMPUTE = {"fp32": "fp32", "split_sgd_bf16": "bf16"}


def sequential_ms(machine: Machine, format: str, work: Work) -> float:
    """As if rows lay one behind the other, and every product were as fast as a large one."""
    return work.flops / machine.gemm_gflop_s[format] / 1e6 + _moved_ms(machine, work.bytes_read, work.bytes_updated)


def _moved_ms(machine: Machine, read: float, updated: float) -> float:
    return (read / machine.read_gb_s + 2 * updated / machine.update_gb_s) / 1e6


def limit_ms(machine: Machine, bare: dict[str, float], name: str, work: Work) -> float:
    """By the bare loops of the same round, and what is in one piece at the sequential rates. `bare`: `bare_ms`."""
    interactions = work.flops - sum(FLOPS * math.prod(shape) for _, shape in _products(work))
    parts = (bare[f"{name}_products"], bare[f"{name}_look_ups"], bare[f"{name}_updates"])
    return sum(parts) + interactions / machine.gemm_gflop_s[COMPUTE[name]] / 1e6 + _moved_ms(machine, work.rest_read, work.rest_updated)


FLOPS = 2  # a multiply-add


def _products(work: Work) -> Iterator[tuple[str, tuple[int, int, int]]]:
    for number, layer in enumerate(work.layers):
        yield from layer_products(layer, BATCH, first=number == 0 and layer.ahead).items()


def bare_ms(rows: Rows, work: dict[str, Work]) -> dict[str, float]:
    """By contender: milliseconds of its products, look-ups and updates, each in a loop that does nothing else."""
    found = {}
    for name, of in work.items():
        dtype = FORMATS[COMPUTE[name]]
        shapes = Counter(shape for _, shape in _products(of))
        found[f"{name}_products"] = sum(times * best_product_s(*shape, dtype) for shape, times in shapes.items()) * 1e3
        found[f"{name}_look_ups"] = best_s(rows.read.reads(dtype.itemsize)) * 1e3
        found[f"{name}_updates"] = best_s(rows.updated.updates(split=COMPUTE[name] == "bf16")) * 1e3
    return found


@dataclass(frozen=True)
class Rows:
    """That a batch names, of all tables one behind the other: each distinct one read; each looked-up one with the gradient of its bag."""

    read: BareRows
    updated: BareRows


def rows_of(sparse: KeyedJaggedTensor, tables: list[int], dim: int) -> Rows:
    """`tables`: rows of each. Gradients are FP32, and zero."""
    parts = sparse.values().split(sparse.length_per_key())
    ids = torch.cat([ids + first for ids, first in zip(parts, itertools.accumulate([0, *tables[:-1]]))])
    read = BareRows.of(ids, empty_in_huge_pages((sum(tables), dim), torch.float32).fill_(1.0))
    bags = sparse.lengths()
    source = torch.arange(len(bags)).repeat_interleave(bags)
    return Rows(read, BareRows(read.place, ids, read.threads, torch.zeros(len(bags), dim), source))


def work_of(given: Problem, precision: str, batch: Batch, distinct: int) -> Work:
    """FLOPs of the dense arch, and the bytes that must move. Each distinct row of the batch moves once for the look-up and once for the
    update. So do ids, dense values, looked-up vectors and their gradients, dense gradients and weights."""
    workload = planned(given, precision).workload
    policy = experiment_of(given.overrides, precision).precision
    element = 2 if policy.compute == "bf16" else 4
    pooled = BATCH * len(given.data.features) * given.dim * element
    by_loops = 2 * 8 * len(batch.sparse.values()) + pooled  # ids twice, and the gradients of looked-up vectors
    rest = batch.dense.nbytes + pooled + workload.dense_parameters * element  # the last are gradients
    rows, weights = distinct * given.dim, workload.dense_parameters * 4
    flops = (workload.forward_flops_per_sample + workload.backward_flops_per_sample) * BATCH
    return Work(flops, rows * READ_BYTES[policy.table] + by_loops + rest, rows * 4 + weights, rest, weights, workload.layers)


# the comparison -------------------------------------------------------------------------------------------------------


def compare(about: str, given: Problem) -> None:
    """Prints the one JSON object. Arguments are the command line's."""
    line = argparse.ArgumentParser(description=about.split("\n")[0])
    line.add_argument("--rounds", type=int, default=7)
    line.add_argument("--threads", type=int, default=2)
    line.add_argument("--only", nargs="+", choices=list(CONTENDERS), default=list(CONTENDERS))
    chosen = line.parse_args()
    torch.set_num_threads(chosen.threads)
    built = {name: CONTENDERS[name](given) for name in reversed(CONTENDERS) if name in chosen.only}  # tables in huge pages before others
    steps = {name: built[name] for name in CONTENDERS if name in built}
    sources = {name: batches(given) for name in steps}
    buffer, batch = torch.ones(1 << 27), next(batches(given))
    rows = rows_of(batch.sparse, [feature.rows for feature in given.data.features], given.dim)
    work = {name: work_of(given, name, batch, len(rows.read.rows)) for name in OURS if name in steps}
    times: dict[str, list[float]] = {name: [] for name in steps}
    limits: dict[str, list[float]] = {name: [] for name in work}
    sequential: dict[str, list[float]] = {name: [] for name in work}
    machines, bare = [], []
    for _ in range(chosen.rounds):
        machines.append(measure_machine(buffer, BATCH))
        bare.append(bare_ms(rows, work))
        for name, step in steps.items():
            times[name].append(turn(step, sources[name]))
        for name, of in work.items():
            limits[name].append(limit_ms(machines[-1], bare[-1], name, of))
            sequential[name].append(sequential_ms(machines[-1], COMPUTE[name], of))
    ratios = {f"{a}_vs_{b}": [y / x for x, y in zip(times[a], times[b])] for a, b in PAIRS if a in times and b in times}
    ratios |= {f"{name}_share_of_limit": [x / y for x, y in zip(limits[name], times[name])] for name in work}
    ratios |= {f"{name}_share_of_sequential": [x / y for x, y in zip(sequential[name], times[name])] for name in work}
    print(
        json.dumps(
            {name: round(statistics.median(found), 3) for name, found in ratios.items()}
            | {"spread": {name: [round(min(found), 3), round(max(found), 3)] for name, found in ratios.items()}}
            | {"ms": {name: round(statistics.median(found), 2) for name, found in times.items()}}
            | {"ms_spread": {name: [round(min(found), 2), round(max(found), 2)] for name, found in times.items()}}
            | {"limit_ms": {name: round(statistics.median(found), 2) for name, found in limits.items()}}
            | {"sequential_ms": {name: round(statistics.median(found), 2) for name, found in sequential.items()}}
            | {"bare_ms": {part: round(statistics.median(one[part] for one in bare), 2) for part in bare[0]}}
            | {"machine": _medians(machines), "work": {name: asdict(w) for name, w in work.items()}}
            | {"huge_pages_mib": _huge_pages_mib(), "processor": cpu_model()}
            | {"rounds": chosen.rounds, "threads": chosen.threads, "overrides": list(given.overrides), "torch": torch.__version__}
        )
    )


PAIRS = (("split_sgd_bf16", "torch"), ("split_sgd_bf16", "torchrec"), ("fp32", "torch"), ("fp32", "torchrec"))


def _medians(machines: list[Machine]) -> dict[str, float]:
    rates = {f"gemm_{name}_gflop_s": [m.gemm_gflop_s[name] for m in machines] for name in FORMATS}
    rates |= {"read_gb_s": [m.read_gb_s for m in machines], "update_gb_s": [m.update_gb_s for m in machines]}
    return {name: round(statistics.median(found), 1) for name, found in rates.items()}


def _huge_pages_mib() -> int:
    """Of this process's memory, what the system backs with huge pages: it has them for tables only as long as memory lies in one piece."""
    lines = Path("/proc/self/smaps_rollup").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("AnonHugePages")) // 1024


def alone() -> None:
    """This process as the one rank of a process group."""
    os.environ |= {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": THIS_MACHINE,
        "MASTER_PORT": "0",
        "RECSYS_LAB_LISTENER": str(listen_here(1).detach()),
        **ON_THIS_MACHINE,
    }
    keep_memory()
    start_process_group()


if __name__ == "__main__":
    sys.exit("shared by dlrm_small.py and dlrm_mlperf.py: run those")
