"""Steps of MLPerf's DLRMv4 that nobody has published, with 90 % intervals: frozen before they are known.

python -m experiments.dlrm_v4.predictions writes experiments/validation/dlrm_v4_predictions.json.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

from experiments.dlrm_v4.priced import COLUMNS, HAND_MADE, ROWS, Case, priced, profile, time_ms
from recsys_lab.base.progress import Progress
from recsys_lab.simulate.posterior import interval_of, log_changes, responses

FILE = Path(__file__).parents[1] / "validation" / "dlrm_v4_predictions.json"
#: Mean lengths of histories: early in the stream, between, and of the whole.
EVENTS = (2190, 2400, 2663)
#: (cluster, hosts, ranks of a host; None: all of them, plan).
SYSTEMS = (
    ("mi350x", 1, None, COLUMNS),
    ("mi350x", 2, None, HAND_MADE),
    ("mi350x", 4, None, HAND_MADE),
    ("b200", 1, None, COLUMNS),
    ("gb300", 1, 8, COLUMNS),
    ("gb300", 1, 64, ROWS),
)


def cases() -> Iterator[Case]:
    for name, hosts, ranks, plan in SYSTEMS:
        for events in EVENTS:
            for last_layer in ("all", "candidate"):
                yield Case(name, hosts, events, plan, last_layer=last_layer, ranks_per_host=ranks)


def predicted(case: Case) -> dict[str, Any]:
    """Of the reference's software: its plan, equal ids once, samples in order, batches from pageable memory."""
    of, software = priced(case), profile()
    ms = time_ms(of, software, of.cluster)
    found = responses(lambda other, cluster: time_ms(of, other, cluster), software, of.cluster)
    interval = interval_of(
        log_changes(found, software, of.cluster, case.plan, f"{of.cluster.world_size} x {case.cluster}, {case.events}, {case.last_layer}"),
        ms,
    )
    return {
        "device": of.cluster.device.name,
        "ranks": of.cluster.world_size,
        "hosts": of.cluster.hosts,
        "samples_a_rank": of.workload.batch_size,
        "mean_history": case.events,
        "plan": case.plan,
        "last_layer": case.last_layer,
        "ms": round(ms, 1),
        "interval_90_percent": [round(interval.low, 1), round(interval.high, 1)],
        "memory_gb": round(max(of.memory.totals) / 1e9, 1),
        "feasible": max(of.memory.totals) <= of.cluster.device.memory_gb * 1e9,
    }


def main() -> None:
    every = list(cases())
    rows = []
    with Progress(len(every), "dlrm_v4", "predictions") as bar:
        for case in every:
            rows.append(predicted(case))
            bar.update()
    made = {"simulated_on": date.today().isoformat(), "profile": "torchrec, of sequences", "predictions": rows}
    FILE.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
