"""How long neo_4d plans 1,000 tables on 128 ranks and how even its plans are, by greedy and by Karmarkar-Karp; TorchRec's planner beside.

    python experiments/benchmarks/neo_planner.py

Prints one JSON object. Each planner has seconds and `worst_ms`, the slowest look-up and the slowest exchanges together, by neo_4d's model
of costs. `imbalance` is that over the mean of the ranks, `over_bound` over the lower bound of all plans. `alone` is the heuristic as the
paper has it. Its `pieces_over_bound` is the costliest rank, both costs as one, over the lower bound of all placements of the same pieces.
Tables: conf/model/neo_a in FP16. TorchRec's may be table-wise and column-wise: its search through all seven types takes long.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.neo.priced import FP16_TABLES, Case, base, cluster, tables_of_case
from recsys_lab.plan import ShardingPlan
from recsys_lab.sharders.base import PlanInputs
from recsys_lab.sharders.neo import Neo4D
from recsys_lab.sharders.neo.costs import Setting, Weights, costs_of_ranks
from recsys_lab.sharders.torchrec import TorchRec


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--batch", type=int, default=512, help="samples a rank")
    parser.add_argument("--without-torchrec", action="store_true", help="leave out TorchRec's planner, which takes longest")
    given = parser.parse_args()
    tables, access = tables_of_case(Case("neo_a", precision=FP16_TABLES))
    work, on = replace(base("neo_a").workload, batch_size=given.batch), cluster(16)
    setting = Setting(access, on, FP16_TABLES, given.batch, Weights())
    inputs = PlanInputs(tables, access, on, FP16_TABLES, work)
    found: dict[str, Any] = {}
    for name in ("greedy", "karmarkar_karp"):
        for key, even_out in ((name, True), (f"{name}_alone", False)):
            start = time.perf_counter()
            made = Neo4D(placement=name, even_out=even_out).best(inputs)
            found[key] = told(made.plan, setting, made.bound_ms, time.perf_counter() - start)
            if not even_out:
                together = sum(made.costs.communication.values()) + made.costs.load
                found[key]["pieces_over_bound"] = float(together.max() / made.bound_of_pieces_ms)
            bound = made.bound_ms
    if not given.without_torchrec:
        start = time.perf_counter()
        plan = TorchRec(sharding_types=["table_wise", "column_wise"]).plan(inputs)
        found["torchrec"] = told(plan, setting, bound, time.perf_counter() - start)
    print(json.dumps({"tables": len(tables), "ranks": on.world_size, "bound_ms": bound, **found}))


def told(plan: ShardingPlan, setting: Setting, bound_ms: float, seconds: float) -> dict[str, float]:
    costs = costs_of_ranks(plan, setting)
    return {"s": seconds, "worst_ms": costs.worst_ms, "imbalance": costs.imbalance, "over_bound": costs.worst_ms / bound_ms}


if __name__ == "__main__":
    main()
