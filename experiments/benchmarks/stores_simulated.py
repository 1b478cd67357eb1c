"""Tables larger than memory, simulated beside measured at several budgets, after `calibrate` has learnt this machine and its disk.

python experiments/benchmarks/stores_simulated.py [--gb 6] [--budgets 0.8,1.5,2.5,4] [--scratch DIR] [--rounds N]

Prints one JSON object. By budget of all ranks together, in GB: the measured mean of an iteration's milliseconds, the simulated mean of
that run's iterations, and how far this is off. A run of minutes meets rows that were never written, which are made, not
read. So its simulation is of the same steps. `long_run_ms` is what is simulated once all rows were read. With `--steps` so large that a run
comes near it, compare it with `last_ms`, the median of the last steps. `read_mb`: what all ranks read from their files in an iteration,
as counted, a mean of the whole run, and as simulated.

A budget of `inf` has all tables in memory. A simulation is of iterations alone, so no checkpoint is written among them.
`phases_ms`: the simulated phases; `measured_phases_ms`: the measured ones.

Each training is a line of run.py in a memory cgroup that leaves the page cache little room, where one can be made. Else reads come from
memory, and `limited_by` says so. The simulation knows the limit: it is the host's memory. One figure is
from two of these trainings: what a process takes before its model. Nothing else is fitted to them.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.benchmarks.larger_than_memory import BATCH, RANKS, Contender, cgroup
from recsys_lab.calibrate.disk import SCRATCH
from recsys_lab.record.environment import cpu_model

ROOT = Path(__file__).resolve().parents[2]
#: What two ranks and their parent hold beside rows, in GB: torch, buffers, and a page cache for what is in flight.
BESIDE_GB = 2.8
#: How many of the last steps say what the end of a run takes.
TIMED = 20


def main() -> None:
    line = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    line.add_argument("--gb", type=float, default=6.0, help="of all tables, weights and optimizer state")
    line.add_argument("--budgets", default="0.8,1.5,2.5,4", help="of all ranks together, in GB")
    line.add_argument("--scratch", default=tempfile.gettempdir(), help="the folder of files, and of the disk that is measured")
    line.add_argument("--steps", type=int, default=60)
    line.add_argument("--rounds", type=int, default=1)
    line.add_argument("--batch", type=int, default=BATCH)
    line.add_argument("--beside-gb", type=float, default=BESIDE_GB, help="of the cgroup, beside the budget")
    line.add_argument("--conf", type=Path, help="what calibrate wrote before; without it, calibrate runs first")
    line.add_argument("--keep", type=Path, help="a folder for the runs; without it, they are removed")
    given = line.parse_args()
    os.environ[SCRATCH] = given.scratch
    with tempfile.TemporaryDirectory(dir=given.scratch) as temporary:
        folder, conf = given.keep or Path(temporary), given.conf or Path(temporary) / "conf"
        if given.conf is None:
            calibrate(conf)
        points = {}
        for budget in dict.fromkeys(map(float, given.budgets.split(","))):
            rounds = [train(folder, f"{budget:g}_{number}", conf, budget, given) for number in range(given.rounds)]
            points[f"{budget:g}"] = point(rounds)
            print(budget, points[f"{budget:g}"], file=sys.stderr, flush=True)
    worst = max(abs(one["off"]) for one in points.values())
    print(json.dumps({"budgets_gb": points, "worst": worst, "gb": given.gb, "steps": given.steps, "processor": cpu_model()}))


def calibrate(conf: Path) -> None:
    """As a user would, before the first training."""
    words = ("-m", "recsys_lab", "calibrate", "--name", "here", "--out", str(conf), "launcher.hosts=1", f"launcher.ranks_per_host={RANKS}")
    run(list(words))


def train(folder: Path, name: str, conf: Path, budget_gb: float, given: argparse.Namespace) -> dict[str, Any]:
    """`result.json` of a run within the budget, which plans for the machine that was calibrated, simulates it and trains on it."""
    own = folder / name
    own.mkdir(parents=True)
    whole = math.isinf(budget_gb)
    contender = Contender("memory" if whole else "cache", given.gb, budget_gb, given.scratch, 0, given.steps, given.batch)
    words = [word for word in contender.words(own) if word != "mode=train"]
    cluster = (f"hydra.searchpath=[file://{conf}]", "cluster=here", "profile@simulate.profile=here")
    steps = (
        "mode=auto",
        "baselines=false",
        f"trainer.max_steps={given.steps}",
        "trainer.evaluate_train_rows=0",
        "trainer.checkpoint_every_steps=0",
        "trainer.log_every_steps=1",
        f"simulate.batch_size={given.batch // RANKS}",
    )
    limit_gb = budget_gb + given.beside_gb
    with nullcontext() if whole else cgroup(limit_gb) as group:
        limit = (f"cluster.host.memory_gb={limit_gb:g}",) if group else ()
        run(["run.py", *words, *cluster, *steps, *limit, f"hydra.run.dir={own / 'run'}"], group)
    found = json.loads((own / "run" / "result.json").read_text())
    found["last_ms"] = last_ms(own / "run" / "metrics.csv", given.batch)
    return found | {"limited_by": f"a cgroup of {limit_gb:g} GB" if group else "nothing"}


def last_ms(metrics: Path, batch: int) -> float:
    """The median of an iteration over the last steps."""
    with metrics.open() as file:
        rates = [float(row["examples_per_second"]) for row in csv.DictReader(file) if row["train_loss"]]
    return statistics.median(batch / rate * 1e3 for rate in rates[-TIMED:])


def run(words: list[str], group: Path | None = None) -> None:
    join = (lambda: (group / "cgroup.procs").write_text(str(os.getpid()))) if group else None
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, preexec_fn=join, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} ended with {done.returncode}: {done.stdout[-1000:]} {done.stderr[-2000:]}")


def point(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians over rounds."""
    measured = [sum(one["measured"]["phases_ms"].values()) for one in rounds]
    early, long = rounds[0]["simulated"].get("in_run"), rounds[0]["simulated"]
    early = early or {"iteration_ms": long["iteration_ms"], "phases_ms": long["phases_ms"], "bytes_read": 0.0}  # all tables fit
    median, last = statistics.median(measured), statistics.median(one["last_ms"] for one in rounds)
    return {
        "measured_ms": round(median, 1),
        "spread": [round(min(measured), 1), round(max(measured), 1)],
        "simulated_ms": round(early["iteration_ms"], 1),
        "off": round(early["iteration_ms"] / median - 1, 3),
        "last_ms": round(last, 1),
        "long_run_ms": round(long["iteration_ms"], 1),
        "long_run_off": round(long["iteration_ms"] / last - 1, 3),
        "read_mb": read_mb(rounds[0], early["bytes_read"]),
        "phases_ms": {name: round(ms, 1) for name, ms in early["phases_ms"].items() if ms >= 0.05},
        "measured_phases_ms": {name: round(ms, 1) for name, ms in rounds[0]["measured"]["phases_ms"].items()},
        "limited_by": rounds[0]["limited_by"],
    }


def read_mb(found: dict[str, Any], in_run: float) -> dict[str, float]:
    """By all ranks in an iteration: counted, the mean of the run; simulated, of the run and in the long run."""
    counted = sum(table["bytes_read"] for rank in found["measured"].get("stores") or () for table in rank.values())
    long = sum(store["bytes_moved"] for store in found["plan"].get("stores") or ()) / 2
    return {"measured": round(counted / 1e6, 2), "simulated": round(in_run / 1e6, 2), "long_run": round(long / 1e6, 2)}


if __name__ == "__main__":
    main()
