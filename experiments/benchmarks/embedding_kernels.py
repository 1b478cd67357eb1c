"""The CPU embedding kernels against bare loops over the same rows, and against sequential memory, of the same run.

    python experiments/benchmarks/embedding_kernels.py

Look-ups and updates of DLRM small (CPU DLRM, table I), whose tables lie in one matrix. Ids are uniform, or follow a power law over the
rows, or one row of each table takes a tenth of the look-ups. All are measured in alternation, with other data in the caches before each,
as in training; milliseconds are medians.

`gb_s` counts what must pass the memory bus: each distinct row once (read; for an update also written), ids, and pooled rows or their
gradient. `row_share` is the time of a bare loop over the same look-ups (limits.py), over the kernel's. It reads each row, or adds to it
the gradient of its bag, as often as it is looked up. It has the best distance and way of prefetching. It goes in the order of the
look-ups; where it writes, also by address, if that is faster. It sorts nothing. `random_row_share` is the same without rows by address:
the ids of a batch come in random order, and sorting them is work that the loop by address does not do.
`stream_share` is `gb_s` over the bandwidth of a sequential read (look-ups), or of a sequential multiplication in place (updates), with the
same threads. It is beyond 1 where few rows are distinct and stay in the cache. `triad_share` is over that of STREAM's triad, which
reads two arrays and writes a third: lower than either, as memory is also read where it is only written. `speed_to_uniform` compares
look-ups a second, whatever they move. race_free, atomic and reference are the paper's algorithms 4, 3 and 2 with 3; sorted is ours.
Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.benchmarks.limits import BareRows, fill_caches
from recsys_lab.kernels import Lookups, Rule, bags, native, update
from recsys_lab.kernels.memory import empty_in_huge_pages
from recsys_lab.record.environment import cpu_model

LR = 0.01
STREAM_BYTES = 1 << 28
STREAM_ARRAYS = {"read": 1, "update": 2, "triad": 3}  # of so many bytes that pass, by STREAM's way of counting


def main() -> None:
    line = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name, default in (
        ("tables", 8),
        ("rows", 1_000_000),
        ("dim", 64),
        ("batch", 2048),
        ("lookups", 50),
        ("rounds", 15),
        ("threads", 0),
    ):
        line.add_argument(f"--{name}", type=int, default=default)
    line.add_argument("--exponent", type=float, default=1.05)
    line.add_argument("--hot-share", type=float, default=0.1)
    line.add_argument("--only", nargs="*", help="names of kernels, all by default")
    line.add_argument("--small-pages", action="store_true", help="leave tables in pages of 4 kB")
    given = line.parse_args()
    if given.threads:
        torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    ids = {"uniform": uniform(given), "power_law": power_law(given), "hot_row": hot_row(given)}
    kernels = made(given)
    jobs = {(name, law): lambda run=run, of=of: run(of) for name, (run, _, _) in kernels.items() for law, of in ids.items()}
    streams = stream_jobs(given)
    place = empty_in_huge_pages((given.tables * given.rows, given.dim), torch.float32).fill_(1.0)
    gradient = torch.zeros(given.tables * given.batch, given.dim)
    source = torch.arange(len(gradient)).repeat_interleave(given.lookups)
    bare = {
        (loop, law): job
        for law, of in ids.items()
        for loop, job in bare_jobs(BareRows(place, of.rows(), torch.get_num_threads(), gradient, source)).items()
    }
    ms = alternate(jobs | streams | bare, given.rounds)
    bandwidth = {kind: STREAM_BYTES * arrays / ms[kind] / 1e6 for kind, arrays in STREAM_ARRAYS.items()}
    found: dict[str, dict] = {}
    distinct = {law: len(of.rows().unique()) for law, of in ids.items()}
    for name, (_, moved, kind) in kernels.items():
        format = "split" if "split" in name else "bf16" if "bf16" in name else "fp32"
        found[name] = {}
        for law, of in ids.items():
            gb_s = moved(of) / ms[name, law] / 1e6
            loops = {loop: ms[loop, of_law] for loop, of_law in bare if of_law == law and loop[:2] == (kind, format)}
            bare_ms, random_ms = min(loops.values()), min(taken for loop, taken in loops.items() if not loop[2].startswith("address"))
            found[name][law] = {"ms": round(ms[name, law], 3), "gb_s": round(gb_s, 1), "stream_share": round(gb_s / bandwidth[kind], 3)}
            found[name][law] |= {"bare_ms": round(bare_ms, 3), "row_share": round(bare_ms / ms[name, law], 3)}
            found[name][law]["random_row_share"] = round(random_ms / ms[name, law], 3)
            found[name][law]["triad_share"] = round(gb_s / bandwidth["triad"], 3)
            found[name][law]["speed_to_uniform"] = round(ms[name, "uniform"] / ms[name, law], 2)
    about = {
        "instructions": native.instructions(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "processor": cpu_model(),
    }
    print(json.dumps(vars(given) | about | {"distinct_rows": distinct, "stream_gb_s": rounded(bandwidth), "kernels": found}, indent=1))


def rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 1) for name, value in values.items()}


def alternate(jobs: dict, rounds: int) -> dict:
    """Median milliseconds of each, all run in turn, with other data in the caches; the first round is not counted.

    Each runs untimed just before, as training touches its tables many times a second. On one virtual machine rows of a table that
    nothing had touched for some seconds took up to four times as long.
    """
    times: dict = {name: [] for name in jobs}
    for _ in range(rounds + 1):
        for name, job in jobs.items():
            job()
            fill_caches()
            begin = time.perf_counter()
            job()
            times[name].append((time.perf_counter() - begin) * 1e3)
    return {name: median(taken[1:]) for name, taken in times.items()}


def of_ids(given: argparse.Namespace, ids: torch.Tensor) -> Lookups:
    offsets = torch.arange(0, given.tables * given.batch * given.lookups + 1, given.lookups)
    return Lookups(ids, offsets, given.tables, torch.arange(given.tables) * given.rows)


def uniform(given: argparse.Namespace) -> Lookups:
    return of_ids(given, torch.randint(0, given.rows, (given.tables * given.batch * given.lookups,)))


def power_law(given: argparse.Namespace) -> Lookups:
    """The most frequent row is row 0, so that frequent rows are neighbours: the worst case of algorithm 4 within a table."""
    share = torch.arange(1, given.rows + 1, dtype=torch.float64).pow(-given.exponent).cumsum(0)
    drawn = torch.rand(given.tables * given.batch * given.lookups, dtype=torch.float64) * share[-1]
    return of_ids(given, torch.searchsorted(share, drawn).clamp(max=given.rows - 1))


def hot_row(given: argparse.Namespace) -> Lookups:
    made = uniform(given)
    hot = torch.rand(len(made.ids)) < given.hot_share
    return of_ids(given, made.ids.masked_fill(hot, given.rows // 3))


def made(given: argparse.Namespace) -> dict[str, tuple[Callable, Callable, str]]:
    """By kernel: what runs, the bytes that it moves, and the stream that it is compared with."""
    shape = (given.tables * given.rows, given.dim)

    def table(dtype: torch.dtype) -> torch.Tensor:
        empty = torch.empty(shape, dtype=dtype) if given.small_pages else empty_in_huge_pages(shape, dtype)
        pattern = torch.randint(-30000, 30000, (10_000, given.dim), dtype=torch.int32)
        values = pattern.short() if dtype == torch.int16 else (pattern / 1e5).to(dtype)
        for part in empty.split(10_000):
            part.copy_(values[: len(part)])
        return empty

    full, high, low = table(torch.float32), table(torch.bfloat16), table(torch.int16)
    grad = torch.randn(given.batch, given.tables * given.dim)
    pooled = torch.empty_like(grad)
    half = torch.empty_like(grad, dtype=torch.bfloat16)
    rule = Rule("sgd", LR)

    def moved(row_bytes: int, times: int) -> Callable[[Lookups], int]:
        return lambda of: times * len(of.rows().unique()) * row_bytes * given.dim + of.ids.nbytes + grad.nbytes

    def updating(weight: torch.Tensor, rest: torch.Tensor | None, strategy: str) -> Callable[[Lookups], None]:
        return lambda of: update(weight, of, grad, rule, low=rest, strategy=strategy)

    every = {
        "bags_fp32": (lambda of: bags(full, of, out=pooled), moved(4, 1), "read"),
        "bags_bf16": (lambda of: bags(high, of, torch.bfloat16, out=half), moved(2, 1), "read"),
        "update_fp32_sorted": (updating(full, None, "default"), moved(4, 2), "update"),
        "update_split_bf16_sorted": (updating(high, low, "default"), moved(4, 2), "update"),
        "update_fp32_race_free": (updating(full, None, "race_free"), moved(4, 2), "update"),
        "update_split_bf16_race_free": (updating(high, low, "race_free"), moved(4, 2), "update"),
        "update_fp32_atomic": (updating(full, None, "atomic"), moved(4, 2), "update"),
        "update_fp32_reference": (updating(full, None, "reference"), moved(4, 2), "update"),
    }
    return {name: what for name, what in every.items() if not given.only or name in given.only}


def bare_jobs(rows: BareRows) -> dict[tuple[str, str, str], Callable[[], object]]:
    """By kind, format, and order with distance: a loop that does nothing but read the batch's rows, or read and write them."""
    loops = {("read", "fp32"): rows.reads(4), ("read", "bf16"): rows.reads(2)}
    loops |= {("update", "fp32"): rows.updates(split=False), ("update", "split"): rows.updates(split=True)}
    return {(*of_what, name): job for of_what, jobs in loops.items() for name, job in jobs.items()}


def stream_jobs(given: argparse.Namespace) -> dict[str, Callable[[], object]]:
    place, other, third = (empty_in_huge_pages((STREAM_BYTES // 4,), torch.float32).fill_(1.0) for _ in range(3))
    threads = torch.get_num_threads()
    return {
        "read": lambda: native.stream_read(place, threads),
        "update": lambda: native.stream_update(place, 1.0, threads),
        "triad": lambda: torch.add(place, other, alpha=3.0, out=third),
    }


if __name__ == "__main__":
    main()
