"""A DLRM whose tables are larger than memory: our cache in front of a file, beside the same tables mapped into memory (mmap).

python experiments/benchmarks/larger_than_memory.py [--gb 24] [--budget-gb 5] [--limit-gb 8] [--scratch DIR] [--kinds cache,mmap,...]
    [--results FILE]

Prints one JSON object. `rss_gb`: the most that all ranks have held together; `hit_rate_measured`, `hit_rate_predicted`: of the distinct
rows of the steps that were timed; `ms`, `ms_mmap`: medians of an iteration with the cache, and with mmap. Three are of tables a 16th as
large, which fit. `ms_in_memory_small`: without a budget. `ms_fits_small`: with one that holds them all. `ms_all_cached_small`: with stores
whose caches hold every row. `--results` names a file in which a call leaves what it measured of some kinds, for the next call.

Each training has processes of its own, in a memory cgroup of `--limit-gb` where one can be made; the page cache counts too. Else there is
no limit. `limited_by` says which. Weights, optimizer state and files are as training has them.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from launchers.local import launch
from recsys_lab.data.loader import RankLoader
from recsys_lab.experiment import of_words
from recsys_lab.kernels import stored
from recsys_lab.plan import ShardingPlan
from recsys_lab.plan.store import DISK_CACHED, Store
from recsys_lab.plan.store_facts import expected_counts
from recsys_lab.planning import plan_for
from recsys_lab.record.environment import cpu_model
from recsys_lab.train.memory import keep_memory, peak_bytes
from recsys_lab.train.objective import click_loss
from recsys_lab.train.optimizer import DenseAndTables, dense_optimizer
from recsys_lab.train.process_group import start_process_group
from recsys_lab.train.seed import seed_rank

ROOT, CGROUPS = Path(__file__).resolve().parents[2], Path("/sys/fs/cgroup")
TABLES, DIM, IDS, SKEW, BATCH, RANKS = 8, 64, 10, 1.05, 16384, 2
RECORD_BYTES = 4 * DIM + 4  # FP32, and a number of row-wise Adagrad
SMALLER = 16
#: Steps before those that are timed, and timed ones, where no cache must fill: with mmap each takes a minute.
SMALL = ("memory", "fits", "all_cached")
STEPS = {"mmap": (1, 3)} | dict.fromkeys(SMALL, (10, 20))
MADV_RANDOM = 1  # madvise(2): without it each row that is read brings its neighbours, and a step takes minutes
KINDS = ("cache", "mmap", *SMALL)
BUDGETED = ("cache", "fits")


@dataclass(frozen=True)
class Contender:
    """`kind`: one of KINDS. Tables of `gb` in all; `budget_gb` of them in memory. `steps` before those that are timed, and `timed` ones."""

    kind: str
    gb: float
    budget_gb: float
    scratch: str
    steps: int
    timed: int
    batch: int = BATCH

    def words(self, folder: Path) -> list[str]:
        file, rows = folder / "tables.csv", int(self.gb * 1e9 / TABLES / RECORD_BYTES)
        lines = ["name,rows,dim,mean_ids,pooling,skew", *(f"t{n},{rows},{DIM},{IDS},sum,{SKEW}" for n in range(TABLES))]
        file.write_text("\n".join(lines) + "\n")
        here = ("launcher.hosts=1", f"launcher.ranks_per_host={RANKS}", "logger=none", "mode=train", "data.rows_validation=1000")
        model = ("model=tables", f"model.file={file}", "data=random", f"data.batch_size={self.batch}", "optimizer=row_wise_adagrad")
        store = ("sharder=neo_4d", f"sharder.scratch={self.scratch}", "sharder.planner.schemes=[table_wise]")
        memory = self.budget_gb / RANKS / 0.85 if self.kind in BUDGETED else 1e4  # a plan keeps 15 % back; what mmap plans, nothing keeps
        key = "sharder.memory_budget_gb" if self.kind in BUDGETED else "cluster.device.memory_gb"
        return [*here, *model, *store, f"{key}={memory:g}"]


def main() -> None:
    line = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    line.add_argument("--gb", type=float, default=24.0, help="of all tables, weights and optimizer state")
    line.add_argument("--budget-gb", type=float, default=5.0, help="of all ranks together, for what stays in memory")
    line.add_argument("--limit-gb", type=float, default=8.0, help="of the memory cgroup, page cache included")
    line.add_argument("--scratch", default=tempfile.gettempdir(), help="the folder of files; it needs twice --gb")
    line.add_argument("--steps", type=int, default=90, help="before those that are timed: so many fill the cache")
    line.add_argument("--timed", type=int, default=10)
    line.add_argument("--kinds", default=",".join(KINDS))
    line.add_argument("--timed-mmap", type=int, default=STEPS["mmap"][1])
    line.add_argument("--results", type=Path)
    line.add_argument("--one", help=argparse.SUPPRESS)
    given = line.parse_args()
    if given.one:
        print(json.dumps(train(Contender(**json.loads(given.one)))))
        return
    found = json.loads(given.results.read_text()) if given.results is not None and given.results.exists() else {}
    for kind in given.kinds.split(","):
        gb, steps = given.gb / (SMALLER if kind in SMALL else 1), STEPS.get(kind, (given.steps, given.timed))
        steps = (steps[0], given.timed_mmap) if kind == "mmap" else steps
        found[kind] = alone(Contender(kind, gb, given.budget_gb, given.scratch, *steps), given.limit_gb)
        print(kind, found[kind], file=sys.stderr, flush=True)
        if given.results is not None:
            given.results.write_text(json.dumps(found))
    print(json.dumps(summary(found) | {"processor": cpu_model()}))


def summary(found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    cache = found.get("cache", {})
    return {
        "rss_gb": cache.get("rss_gb"),
        "hit_rate_measured": cache.get("hit_rate_measured"),
        "hit_rate_predicted": cache.get("hit_rate_predicted"),
        "ms": cache.get("ms"),
        "ms_mmap": found.get("mmap", {}).get("ms"),
        "ms_in_memory_small": found.get("memory", {}).get("ms"),
        "ms_fits_small": found.get("fits", {}).get("ms"),
        "ms_all_cached_small": found.get("all_cached", {}).get("ms"),
        "limited_by": cache.get("limited_by"),
    }


def alone(one: Contender, limit_gb: float) -> dict[str, Any]:
    """What a process of its own prints, within the limit."""
    with cgroup(limit_gb) as group:
        join = (lambda: (group / "cgroup.procs").write_text(str(os.getpid()))) if group else None
        words = [sys.executable, __file__, "--one", json.dumps(vars(one))]
        done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, preexec_fn=join, check=True)
    return json.loads(done.stdout.splitlines()[-1]) | {"limited_by": f"a cgroup of {limit_gb:g} GB" if group else "nothing"}


@contextmanager
def cgroup(limit_gb: float) -> Iterator[Path | None]:
    """A memory cgroup, of either version; None where none can be made."""
    version_1 = (CGROUPS / "memory").is_dir()
    group = CGROUPS / ("memory" if version_1 else "") / f"recsys_lab_{os.getpid()}"
    try:
        group.mkdir()
        (group / ("memory.limit_in_bytes" if version_1 else "memory.max")).write_text(str(int(limit_gb * 1e9)))
    except OSError:
        group.rmdir() if group.is_dir() else None
        yield None
        return
    try:
        yield group
    finally:
        while (group / "cgroup.procs").read_text():  # ranks are still on their way out
            time.sleep(0.1)
        group.rmdir()


def train(one: Contender) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        words = one.words(Path(folder))
        experiment = of_words(words, where="larger_than_memory")
        plan = plan_for(experiment, experiment.open_data()).plan
        if one.kind == "all_cached":
            plan = replace(plan, placements=tuple(replace(p, store=Store(DISK_CACHED, 1.0)) for p in plan.placements))
        assert plan.has_stores == (one.kind in ("cache", "all_cached")), "tables of this kind are elsewhere"
        arguments = {"words": words, "one": one, "plan": plan}
        return launch(rank, arguments, Path(folder), hosts=1, ranks_per_host=RANKS, timeout_s=3600)


def rank(words: list[str], one: Contender, plan: ShardingPlan) -> dict[str, Any]:
    """What the rank that the environment names measures, all ranks together."""
    keep_memory()
    start_process_group()
    experiment = of_words(words, where="larger_than_memory")
    seed_rank(experiment.seed, dist.get_rank())
    data, options, device = experiment.open_data(), experiment.optimizer, torch.device("cpu")
    if one.kind == "mmap":
        stored.empty_in_huge_pages = mapped(one.scratch)  # every table of a rank, in a file
    sharded = experiment.shard(experiment.build_model(data, torch.device("meta")), plan, device)
    if one.kind == "mmap":
        for shard in sharded.table_shards():
            model = shard.weights.model
            ctypes.CDLL(None).madvise(ctypes.c_void_p(model.data_ptr()), ctypes.c_size_t(model.nbytes), MADV_RANDOM)
    both = DenseAndTables(dense_optimizer(sharded, options.dense), sharded.sparse_optimizer, options.sparse.rate)
    how = {"batch_size": one.batch, "rank": dist.get_rank(), "world_size": RANKS, "prefetch_batches": 2, "pin_memory": False}
    loader = RankLoader(data.splits["train"], data, seed=experiment.seed, shuffle=False, **how)
    batches, ahead = iter(islice(loader, one.steps + one.timed + 1)), sharded.ahead
    batch, times, before = next(batches), [], {}
    for number in range(one.steps + one.timed):
        if number == one.steps:
            before = sharded.stores()
        upcoming, start = next(batches), time.perf_counter()
        if ahead is not None:
            ahead.start(upcoming.sparse)
        both.zero_grad()
        loss = click_loss(sharded.module(batch.dense, batch.sparse), batch, RANKS)
        if ahead is not None:
            ahead.send()
        loss.backward()
        both.step()
        times.append((time.perf_counter() - start) * 1e3)
        batch = upcoming
        if dist.get_rank() == 0 and (number % 10 == 0 or one.kind == "mmap"):
            print(f"{one.kind}: step {number}, {times[-1]:.0f} ms", file=sys.stderr, flush=True)
    everyone: list[Any] = [None] * RANKS
    dist.all_gather_object(everyone, (peak_bytes(device), hits(before, sharded.stores()), expected(one, plan, data, experiment)))
    counted, predicted = ([sum(of[i][n] for of in everyone) for n in (0, 1)] for i in (1, 2))
    return {
        "ms": round(statistics.median(times[one.steps :]), 1),
        "ms_spread": [round(t, 1) for t in sorted(times[one.steps :])[:: max(1, one.timed - 1)]],
        "rss_gb": round(sum(of[0] for of in everyone) / 1e9, 2),
        "hit_rate_measured": round(counted[0] / counted[1], 4) if counted[1] else None,
        "hit_rate_predicted": round(predicted[0] / predicted[1], 4) if predicted[1] else None,
    }


def hits(before: dict[str, dict[str, int]], after: dict[str, dict[str, int]]) -> tuple[float, float]:
    """(hits, rows) since `before`."""
    seen = [{name: after[t][name] - before[t][name] for name in ("hits", "misses")} for t in after]
    return sum(one["hits"] for one in seen), sum(sum(one.values()) for one in seen)


def expected(one: Contender, plan: ShardingPlan, data: Any, experiment: Any) -> tuple[float, float]:
    """The same by the access statistics: those of all steps less those of the ones before."""
    how = plan, data.access, one.batch // RANKS, experiment.sharder.executor.in_flight, dist.get_rank()
    of = {n: expected_counts(*how, n) for n in (one.steps, one.steps + one.timed)}
    sums = {n: [sum(t[name] for t in found.values()) * n for name in ("hits_expected", "misses_expected")] for n, found in of.items()}
    seen, missed = (sums[one.steps + one.timed][i] - sums[one.steps][i] for i in (0, 1))
    return seen, seen + missed


def mapped(folder: str):
    """In place of memory, a file without a name as large as the tensor."""

    def empty(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        numbers = 1
        for size in shape:
            numbers *= size
        if numbers * dtype.itemsize < 1 << 24:
            return torch.empty(shape, dtype=dtype, device=device)
        with tempfile.NamedTemporaryFile(dir=folder) as file:
            return torch.from_file(file.name, shared=True, size=numbers, dtype=dtype).view(shape)

    return empty


if __name__ == "__main__":
    main()
