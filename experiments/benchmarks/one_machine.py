"""Four ways to train one DLRM on one machine, and what the machine could do at best. Shared by dlrm_small.py and dlrm_mlperf.py.

| contender | tables | dense part | optimizer |
|---|---|---|---|
| torch | nn.EmbeddingBag(sparse=True), FP32 | torch's layers, FP32 | torch's SGD |
| torchrec | EmbeddingBagCollection under DistributedModelParallel, FBGEMM's fused SGD, FP32 | TorchRec's DLRM, FP32 | torch's SGD |
| fp32 | this framework's executor on one rank | its model, FP32 | SGD |
| split_sgd_bf16 | the same, precision=split_sgd_bf16 | the same, BF16 | Split-SGD |

An iteration is all that a step of training does: a batch from the framework's loader (data=random), forward, loss, backward, update.
The contenders take turns in one process; `share_of_limit` holds the framework's against `Limit`, measured in the same round.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from experiments.benchmarks.dlrm_contenders import BATCH, CONTENDERS, READ_AHEAD, Problem, Step, experiment_of, planned
from launchers.processes import ON_THIS_MACHINE, THIS_MACHINE, listen_here
from recsys_lab.data.batch import Batch
from recsys_lab.data.loader import RankLoader
from recsys_lab.models.linear import product
from recsys_lab.tables.spec import READ_BYTES
from recsys_lab.train.memory import keep_memory
from recsys_lab.train.strategy import start_process_group

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


# the limit ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Work:
    """Of an iteration. Activations are left out: what a cache holds need not move."""

    flops: float
    bytes_read: float
    bytes_updated: float  # read and written back; each byte counts once here


@dataclass(frozen=True)
class Machine:
    """`update_gb_s`: bytes that are read, changed and written back in place, each counted twice."""

    gemm_gflop_s: dict[str, float]  # by format
    read_gb_s: float
    update_gb_s: float

    def limit_ms(self, format: str, work: Work) -> float:
        compute_s = work.flops / self.gemm_gflop_s[format] / 1e9
        return (compute_s + work.bytes_read / self.read_gb_s / 1e9 + 2 * work.bytes_updated / self.update_gb_s / 1e9) * 1e3


FORMATS = {"fp32": torch.float32, "bf16": torch.bfloat16}
COMPUTE = {"fp32": "fp32", "split_sgd_bf16": "bf16"}


def measure_machine(buffer: Tensor) -> Machine:
    """Of GEMMs the best of two sizes, each through oneDNN and through torch: 2,048 x 1,024 x 1,024 and 2,048 cubed."""
    gemms = {}
    for name, dtype in FORMATS.items():
        gemms[name] = max(gemm_gflop_s(multiply, BATCH, wide, wide, dtype) for wide in (1024, 2048) for multiply in (product, torch.mm))
    read_s, update_s = median_s(buffer.sum, 4), median_s(lambda: buffer.mul_(1.0), 4)
    return Machine(gemms, buffer.nbytes / read_s / 1e9, 2 * buffer.nbytes / update_s / 1e9)


def gemm_gflop_s(multiply: Callable[[Tensor, Tensor], Tensor], n: int, k: int, m: int, dtype: torch.dtype) -> float:
    a, b = torch.randn(n, k).to(dtype), torch.randn(k, m).to(dtype)
    return 2 * n * k * m / median_s(lambda: multiply(a, b)) / 1e9


def median_s(call: Callable[[], object], runs: int = 6) -> float:
    """Median seconds of `call`, after one that does not count."""
    times = []
    for _ in range(runs + 1):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return statistics.median(times[1:])


def work_of(given: Problem, precision: str, batch: Batch) -> Work:
    """FLOPs of the dense part, and the bytes that must move whatever one does: each distinct row of the batch once to be looked up and
    once to be updated, ids, dense values, what is looked up and its gradient, dense gradients and weights."""
    workload = planned(given, precision).workload
    policy = experiment_of(given.overrides, precision).precision
    per_feature = batch.sparse.length_per_key()
    distinct = sum(len(ids.unique()) for ids in batch.sparse.values().split(per_feature))
    element = 2 if policy.compute == "bf16" else 4
    pooled = BATCH * len(given.data.features) * given.dim * element
    read = distinct * given.dim * READ_BYTES[policy.table] + 2 * 8 * sum(per_feature) + batch.dense.nbytes + 2 * pooled
    read += workload.dense_parameters * element  # gradients
    flops = (workload.forward_flops_per_sample + workload.backward_flops_per_sample) * BATCH
    return Work(flops, read, distinct * given.dim * 4 + workload.dense_parameters * 4)


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
    buffer = torch.ones(1 << 27)
    work = {name: work_of(given, name, next(batches(given))) for name in OURS if name in steps}
    times: dict[str, list[float]] = {name: [] for name in steps}
    shares: dict[str, list[float]] = {name: [] for name in work}
    machines = []
    for _ in range(chosen.rounds):
        machines.append(measure_machine(buffer))
        for name, step in steps.items():
            times[name].append(turn(step, sources[name]))
        for name in work:
            shares[name].append(machines[-1].limit_ms(COMPUTE[name], work[name]) / times[name][-1])
    ratios = {f"{a}_vs_{b}": [y / x for x, y in zip(times[a], times[b])] for a, b in PAIRS if a in times and b in times}
    ratios |= {f"{name}_share_of_limit": found for name, found in shares.items()}
    print(
        json.dumps(
            {name: round(statistics.median(found), 3) for name, found in ratios.items()}
            | {"spread": {name: [round(min(found), 3), round(max(found), 3)] for name, found in ratios.items()}}
            | {"ms": {name: round(statistics.median(found), 2) for name, found in times.items()}}
            | {"ms_spread": {name: [round(min(found), 2), round(max(found), 2)] for name, found in times.items()}}
            | {"limit_ms": {n: round(statistics.median(m.limit_ms(COMPUTE[n], w) for m in machines), 2) for n, w in work.items()}}
            | {"machine": _medians(machines), "work": {name: vars(w) for name, w in work.items()}}
            | {"huge_pages_mib": _huge_pages_mib()}
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
