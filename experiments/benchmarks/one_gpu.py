"""One GPU, predicted: `calibrate` measures it, and short trainings of other models show how far its simulations are off.

    python experiments/benchmarks/one_gpu.py [--models A,B] [--batches N,M] [--rounds N] [--conf DIR]

Prints one JSON object. It has, by model and batch, the measured iteration and two simulations of the same plan: by the calibration, and by
the data sheet with profile `torchrec`. Nothing is fitted to these trainings. Without a GPU it is the same of one CPU rank.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from recsys_lab.calibrate.runs import brief, runs
from recsys_lab.cluster import Cluster
from recsys_lab.config.command_line import CONF

ROOT = Path(__file__).resolve().parents[2]
NAME, SHEET, SHARDER = "one_gpu", "h100x8", "torchrec"
MOST_ROWS = 1_000_000
ONE = ("launcher.hosts=1", "launcher.ranks_per_host=1", "cluster.hosts=1", "cluster.ranks_per_host=1")
#: Rows that are kept and repeated, fewer than any training reads: making them would hold a GPU up.
RANDOM = ("data=random", "data.distinct_rows=65536")
MODELS = ("dlrm_mlperf", "dcn_mlperf", "dlrm_small", "deepfm", "xlrm")
BATCHES = (2048, 8192, 32768)


def main() -> None:
    line = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    line.add_argument("--models", default=",".join(MODELS))
    line.add_argument("--batches", default=",".join(map(str, BATCHES)))
    line.add_argument("--rounds", type=int, default=1)
    line.add_argument("--conf", type=Path, help="a folder of a calibration that an earlier call kept, or is to keep it")
    given = line.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        conf = (given.conf or Path(scratch)).resolve()
        if not (conf / "cluster" / f"{NAME}.yaml").exists():
            calibrate(conf)
        batches = [int(batch) for batch in given.batches.split(",")]
        found = {model: predictions(conf, model, batches, given.rounds) for model in given.models.split(",")}
    points = [point for of_model in found.values() for point in of_model.values()]
    off = {how: round(fmean(abs(point["off"][how]) for point in points), 3) for how in ("calibrated", "sheet")}
    print(json.dumps({"points": found, "mean": off}, indent=1))


def calibrate(conf: Path) -> None:
    """As a user would, on the default model."""
    words = ("-m", "recsys_lab", "calibrate", "--name", NAME, "--out", str(conf), f"cluster={SHEET}", *ONE)
    subprocess.run([sys.executable, *words], cwd=ROOT, check=True, stdout=sys.stderr)


def words_of(model: str) -> list[str]:
    """Of a line of run.py: `model` with random ids, and tables of no more than `MOST_ROWS` rows."""
    rows = yaml.safe_load((CONF / "model" / f"{model}.yaml").read_text())["rows"]
    return [f"model={model}", *RANDOM, *([] if rows is None else [f"model.rows={[min(MOST_ROWS, one) for one in rows]}".replace(" ", "")])]


def predictions(conf: Path, model: str, batches: Sequence[int], rounds: int) -> dict[str, dict[str, Any]]:
    """By batch."""
    clusters = {"calibrated": brief([f"hydra.searchpath=[file://{conf}]", f"cluster={NAME}"]), "sheet": brief([f"cluster={SHEET}"])}
    found = {}
    points = [(SHARDER, batch) for batch in batches]
    words = [*words_of(model), *ONE, f"cluster={SHEET}"]
    for run in runs(points, words, rounds, partial(print, model, file=sys.stderr, flush=True)):
        told = {how: run.simulated(one_rank(one.cluster), one.profile) for how, one in clusters.items()}
        point = {
            "measured_ms": round(run.iteration_ms, 2),
            "phases_ms": {name: round(ms, 2) for name, ms in run.phases_ms.items()},
            "simulated_ms": {how: round(one.iteration_ms, 2) for how, one in told.items()},
            "off": {how: round(one.iteration_ms / run.iteration_ms - 1, 3) for how, one in told.items()},
        }
        print(json.dumps({f"{model}, batch {run.batch_size}": point}), file=sys.stderr, flush=True)
        found[str(run.batch_size)] = point
    return found


def one_rank(cluster: Cluster) -> Cluster:
    return replace(cluster, hosts=1, ranks_per_host=1)


if __name__ == "__main__":
    main()
