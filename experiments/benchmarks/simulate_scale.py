"""How long planning, lowering and simulating take: 1,000 tables on 1,024 ranks, and MLPerf's 26 tables on 64.

python experiments/benchmarks/simulate_scale.py [--json]

With the planners that are ours; TorchRec's own search takes seconds for 26 tables on 64 ranks, whoever simulates.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from recsys_lab.cluster import Cluster
from recsys_lab.config.choices import built, composed
from recsys_lab.plan import ShardingPlan, Workload
from recsys_lab.plan.lower import lower
from recsys_lab.precision import Precision
from recsys_lab.sharders.base import PlanInputs
from recsys_lab.sharders.dmt import DMT, TowerOptions
from recsys_lab.sharders.torchrec_row_wise import RowWise
from recsys_lab.simulate import simulate
from recsys_lab.tables import AccessStatistics, Table, power_law_access

FP32 = Precision("fp32")
SAMPLES = {"torchrec_row_wise": 32, "dmt_sptt": 1024}  # a rank


def many(count: int) -> tuple[Table, ...]:
    """Tables of a thousand to 10 million rows, dimension 128."""
    return tuple(Table(f"t{i}", int(1000 * 10 ** (4 * (i % 97) / 96)), 128, (f"t{i}",)) for i in range(count))


def mlperf() -> tuple[Table, ...]:
    return tuple(Table(f"cat_{i}", rows, 128, (f"cat_{i}",)) for i, rows in enumerate(composed("model", "dcn_mlperf").rows))


def planned(sharder: str, tables: tuple[Table, ...], access: AccessStatistics, cluster: Cluster, work: Workload) -> ShardingPlan:
    if sharder == "torchrec_row_wise":
        return RowWise().plan(PlanInputs(tables, access, cluster, FP32, work))
    return DMT().plan(PlanInputs(tables, access, cluster, FP32, work, TowerOptions().towers(tables, cluster)))


def seconds(sharder: str, tables: tuple[Table, ...], cluster: Cluster) -> float:
    """Of planning, lowering and simulating; the access statistics are there already.

    Row-wise, every rank holds partial sums of every table for the whole global batch: a thousand tables fit only with few samples.
    """
    access = AccessStatistics({t.name: power_law_access(t.name, t.rows, 2.0, 1.1) for t in tables})
    batch = SAMPLES[sharder]
    work = Workload(batch, 16_000_000, 32e6, 64e6, 100e3, "row_wise_adagrad", "adam", {t.name: 2.0 for t in tables})
    profile = built("profile", "torchrec")
    begin = time.perf_counter()
    plan = planned(sharder, tables, access, cluster, work)
    simulate(lower(plan, access, FP32, work), cluster, profile, plan, work)
    return time.perf_counter() - begin


def main() -> None:
    line = argparse.ArgumentParser(description=__doc__)
    line.add_argument("--json", action="store_true", help="print one JSON object, as without it")
    line.parse_args()
    large, small = built("cluster", "h100x1024"), built("cluster", "h100x64")
    by_sharder = {
        sharder: {
            "tables_1000_ranks_1024_s": seconds(sharder, many(1000), large),
            "tables_26_ranks_64_s": seconds(sharder, mlperf(), small),
        }
        for sharder in ("torchrec_row_wise", "dmt_sptt")
    }
    slowest = {name: max(times[name] for times in by_sharder.values()) for name in ("tables_1000_ranks_1024_s", "tables_26_ranks_64_s")}
    print(json.dumps({**slowest, "by_sharder": by_sharder}))


if __name__ == "__main__":
    main()
