"""How long FlexShard's planner takes: one table of 30 million rows, exactly; ten tables of a billion rows each, in buckets.

    python experiments/benchmarks/flexshard_planner.py --rounds 5

Prints one JSON object: seconds (the median of the rounds, and all of them) and the peak resident memory of the whole process in GB.
Rows exactly: p of each row, in no order, to the number of rows in each of three tiers. Buckets: `plan` from access statistics to the
checked ShardingPlan on 32 ranks. Making the input is not timed, but its memory counts.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from recsys_lab.cluster import Cluster, Device, Link
from recsys_lab.plan import Workload
from recsys_lab.precision import Precision
from recsys_lab.sharders.base import PlanInputs
from recsys_lab.sharders.flexshard import FlexShard
from recsys_lab.sharders.flexshard.allocate import three_tier
from recsys_lab.sharders.flexshard.bandwidths import Bandwidths
from recsys_lab.sharders.flexshard.costs import Setting
from recsys_lab.sharders.flexshard.exact import split_rows
from recsys_lab.tables import AccessStatistics, Table, zipf_mandelbrot

CLUSTER = Cluster(
    "benchmark",
    4,
    8,
    Device("large", "cuda", 2000.0, 1555.0, {"fp32": 19.5}, "made up, so that the tables fit"),
    Link("intra", 77.0, 1.9, "a100x32"),
    Link("cross", 18.0, 4.0, "a100x32"),
)
DIM, BATCH = 256, 4096


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name, default in (("rounds", 5), ("rows", 30_000_000), ("tables", 10), ("rows-of-each", 1_000_000_000), ("buckets", 4096)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    exact = timed(rows_exactly(given.rows), given.rounds)
    bucketed = timed(tables_in_buckets(given.tables, given.rows_of_each, given.buckets), given.rounds)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    found = {"rows_30m_s": statistics.median(exact), "rows_10b_s": statistics.median(bucketed), "peak_gb": peak}
    print(json.dumps(found | {"rounds": {"rows_30m_s": exact, "rows_10b_s": bucketed}, "setting": vars(given)}))


def timed(job: Callable[[], object], rounds: int) -> list[float]:
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        job()
        seconds.append(time.perf_counter() - start)
    return seconds


def rows_exactly(rows: int) -> Callable[[], object]:
    """Three tiers from p of each row: a power law with noise, so that hardly two rows are alike."""
    draw = np.random.default_rng(1)
    p = (np.arange(rows, dtype=np.float64) + 1000.0) ** -1.1
    p *= draw.uniform(0.5, 1.5, rows)
    p *= 1000.0 / p.sum()
    draw.shuffle(p)
    setting = Setting(CLUSTER.hosts, CLUSTER.ranks_per_host, BATCH, Bandwidths.of(CLUSTER))

    def job() -> object:
        return split_rows([(p, DIM)], setting, three_tier)

    return job


def tables_in_buckets(tables: int, rows: int, buckets: int) -> Callable[[], object]:
    made = tuple(Table(f"t{i}", rows, DIM, (f"f{i}",), "none") for i in range(tables))
    laws = [zipf_mandelbrot(rows, 0.8 + 0.05 * i, 10.0 * (i + 1)) for i in range(tables)]
    access = AccessStatistics({t.name: law.access(t.name, rows, 200.0, buckets) for t, law in zip(made, laws)})
    workload = Workload(BATCH, 0, 0.0, 0.0, 0.0, "row_wise_adagrad", "sgd", {t.name: 200.0 for t in made})
    inputs = PlanInputs(made, access, CLUSTER, Precision("fp32"), workload)
    return lambda: [FlexShard(tiers=3, rule=rule).plan(inputs) for rule in ("paper", "optimal")]


if __name__ == "__main__":
    main()
