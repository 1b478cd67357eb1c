"""Four emulated hosts, predicted from one and from two: `calibrate` measures those, and trainings on four show how far off it is.

python experiments/benchmarks/four_hosts.py [--rounds N] [--sharders A,B]

Prints one JSON object: by model and sharder the measured iteration, and what each calibration simulates for the same plan. Nothing is
fitted to four hosts. One host tells nothing of the network: its rate is the one that the launcher sets (cluster=emulated_4x2).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from recsys_lab.calibrate.runs import brief, runs
from recsys_lab.record.environment import cpu_model

ROOT = Path(__file__).resolve().parents[2]
CALIBRATED_ON, PREDICTED = (1, 2), 4
SHARDERS = ("torchrec", "torchrec_row_wise", "flexshard_3tier", "dmt")
NETWORK = ("launcher=emulated", "launcher.link_gb_s=0.05", "launcher.timeout_s=120")
#: The model that was calibrated on, and another: more and wider tables, a larger dense arch, ten times the ids.
MODELS = {
    "dcn": ("model=dcn", "data=synthetic"),
    "dlrm": ("model=dlrm", "model.embedding_dim=64", "data=random", "data.rows_per_table=[" + ",".join(["20000"] * 24) + "]"),
}
BATCH = {"dcn": 1024, "dlrm": 2048}


def main() -> None:
    line = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    line.add_argument("--rounds", type=int, default=2, help="of the trainings on four hosts")
    line.add_argument("--sharders", default=",".join(SHARDERS))
    line.add_argument("--conf", type=Path, help="a folder of calibrations that an earlier call kept, or is to keep them")
    given = line.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        conf = (given.conf or Path(scratch)).resolve()
        for hosts in CALIBRATED_ON:
            if not (conf / "cluster" / f"{name_of(hosts)}.yaml").exists():
                calibrate(hosts, conf)
        print(json.dumps({"processor": cpu_model(), **predictions(conf, given.sharders.split(","), given.rounds)}, indent=1))


def name_of(hosts: int) -> str:
    return f"from_{hosts}"


def calibrate(hosts: int, conf: Path) -> None:
    """As a user would."""
    words = ("-m", "recsys_lab", "calibrate", "--name", name_of(hosts), "--out", str(conf), *NETWORK, f"cluster.hosts={hosts}")
    subprocess.run([sys.executable, *words, *MODELS["dcn"]], cwd=ROOT, check=True, stdout=sys.stderr)


def predictions(conf: Path, sharders: Sequence[str], rounds: int) -> dict[str, Any]:
    """By model and sharder; `worst` and `mean` of the errors, by the hosts that were calibrated on."""
    searched = f"hydra.searchpath=[file://{conf}]"
    clusters = [(searched, f"cluster={name_of(hosts)}", f"cluster.hosts={PREDICTED}", *NETWORK) for hosts in CALIBRATED_ON]
    told = [brief(words) for words in clusters]
    found: dict[str, Any] = {}
    for model, words in MODELS.items():
        points = [(sharder, BATCH[model]) for sharder in sharders]
        for run in runs(points, [*clusters[-1], *words], rounds, partial(print, file=sys.stderr, flush=True)):
            simulated = [run.simulated(one.cluster, one.profile).iteration_ms for one in told]
            off = {str(hosts): round(ms / run.iteration_ms - 1, 3) for hosts, ms in zip(CALIBRATED_ON, simulated)}
            found[f"{model} {run.sharder}"] = {"measured_ms": round(run.iteration_ms, 1), "off": off}
    errors = {hosts: [abs(one["off"][str(hosts)]) for one in found.values()] for hosts in CALIBRATED_ON}
    return {
        "points": found,
        "worst": {hosts: max(values) for hosts, values in errors.items()},
        "mean": {hosts: round(fmean(values), 3) for hosts, values in errors.items()},
    }


if __name__ == "__main__":
    main()
