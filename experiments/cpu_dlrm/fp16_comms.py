"""Does a model train as well with FP16 rows and BF16 gradients on the wire?

Frappe's tables and most of the generated ones are so small that a planner would replicate them. Here some tables lie whole on a rank, some
are cut by rows and some are on all ranks, so that every kind of exchange is used.

Each run is a line of run.py on two processes, as two hosts.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from experiments.cpu_dlrm import quality
from experiments.cpu_dlrm.quality import BASE, DATA, FIXED, Run, do_all
from recsys_lab.base.ranges import Rounds
from recsys_lab.data.sources import check_root
from recsys_lab.errors import UserError
from recsys_lab.record.result import read_result
from recsys_lab.studies.study import Study

QUESTION = "validation AUC with rows and gradients in 16 bits on their way, and how far from FP32's"
WHAT = {"fp32": "FP32", "fp16_comms": "FP16 there, BF16 back"}
#: Whole on a rank (all-to-all), but for those cut by rows (reduce-scatter, all-gather), and those on all ranks (all-reduce).
PLACED = {
    "synthetic": "sharder.planner.force={C1*: row_wise, C2*: data_parallel}",
    "frappe": "sharder.planner.force={user: row_wise, c*: row_wise, w*: data_parallel}",
}
TWO_HOSTS = ("launcher.hosts=2", "launcher.ranks_per_host=1", "sharder=torchrec", "sharder.planner.sharding_types=[table_wise]")
#: In the names of the collectives that carry rows or gradients.
COVERED = {"output", "gradient", "dense"}


def run(name: str, *, seeds: Rounds = 1, runs: str = "runs/fp16_comms", root: str | None = None) -> Study:
    """`seeds` 1 to that. `root`: Frappe's folder, null to leave it out. `runs`: the folder of the runs; one that is there with the same
    overrides is not run again.
    """
    if seeds < 1:
        raise UserError("too few", where="seeds", given=seeds, allowed="1 or more")
    all_runs = runs_of(seeds, Path(runs).resolve(), None if root is None else check_root(root).resolve())
    do_all(all_runs, at_once=1)
    return study_of(name, all_runs)


def runs_of(seeds: int, folder: Path, frappe: Path | None) -> list[Run]:
    """Seed after seed."""
    roots = {"synthetic": ()} | ({} if frappe is None else {"frappe": (f"data.root={frappe}",)})
    found = []
    for seed in range(1, seeds + 1):
        for data, root in roots.items():
            for variant in WHAT:
                overrides = (*DATA[data], *FIXED, *TWO_HOSTS, PLACED[data], *root, f"precision={variant}", f"seed={seed}")
                found.append(Run(data, variant, seed, folder / data / variant / f"seed_{seed}", overrides))
    return found


def study_of(name: str, all_runs: list[Run]) -> Study:
    """As of any quality, and whether what travels is recorded as half of FP32's bytes, collective by collective."""
    moved = {(one.data, one.variant, one.seed): covered_bytes(one) for one in all_runs}
    pairs = [(moved[one.data, BASE, one.seed], moved[one.data, one.variant, one.seed]) for one in all_runs if one.variant != BASE]
    halves = all(base.keys() == halved.keys() and all(2 * halved[c] == base[c] for c in base) for base, halved in pairs)
    legend = "Measured here. Covered: " + ", ".join(dict.fromkeys(c for halved in moved.values() for c in halved)) + "."
    made = quality.study_of(name, QUESTION, all_runs, WHAT, tuple(WHAT), legend)
    stated = (*made.statements, ("each covered collective puts half of FP32's bytes on the wire", halves))
    return replace(made, statements=stated, data=made.data | {"bytes": [dict(zip(WHAT, pair)) for pair in pairs]})


def covered_bytes(run: Run) -> dict[str, float]:
    """What a rank puts into each collective of an iteration that carries rows or gradients, as it was recorded."""
    recorded = read_result(run.folder)["measured"]["collectives"]
    return {one["name"]: one["bytes"] for one in recorded if COVERED & set(one["name"].split("."))}
