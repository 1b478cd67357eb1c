"""Several ranks on one machine beside one process on all of its cores, with the same global batch; and how long a start takes.

    .venv/bin/python experiments/benchmarks/ranks_on_one_machine.py [--rounds N] [--batch N] [OVERRIDES]

Two lines of run.py take turns: 2 hosts x 2 ranks with a thread each, as by default, and one rank with 2 threads.
`ranks4_vs_1_process` is the median over rounds of the ratio of their iterations, each the median that `result.json` has.
`startup_s` is the median of the seconds from the command to the end of the first training step of 2 x 2 ranks. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from recsys_lab.record.environment import cpu_model

ROOT = Path(__file__).resolve().parents[2]
STEPS = 60
RANKS = ("launcher.hosts=2", "launcher.ranks_per_host=2", "launcher.threads_per_rank=1")
ONE = ("launcher.hosts=1", "launcher.ranks_per_host=1", "launcher.threads_per_rank=2")
LONG = (f"trainer.max_steps={STEPS}", "trainer.max_epochs=1000")
FIXED = ("mode=train", "logger=none", "baselines=false", *LONG)


def main() -> None:
    line = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    line.add_argument("--rounds", type=int, default=3)
    line.add_argument("--batch", type=int, default=2048, help="samples of all ranks together; by default those of data=synthetic")
    line.add_argument("overrides", nargs="*")
    chosen = line.parse_args()
    lines = {name: (*words, f"data.batch_size={chosen.batch}", *chosen.overrides) for name, words in (("ranks", RANKS), ("one", ONE))}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        rounds = [{name: run(folder / f"{name}{number}", *words) for name, words in lines.items()} for number in range(chosen.rounds)]
    ratios = [both["ranks"]["ms"] / both["one"]["ms"] for both in rounds]
    starts = [both["ranks"]["startup_s"] for both in rounds]
    print(
        json.dumps(
            {
                "ranks4_vs_1_process": round(statistics.median(ratios), 3),
                "startup_s": round(statistics.median(starts), 2),
                "spread": {"ranks4_vs_1_process": _range(ratios), "startup_s": _range(starts)},
                "ms": {name: round(statistics.median(both[name]["ms"] for both in rounds), 2) for name in ("ranks", "one")},
                "processor": cpu_model(),
                "cores": os.cpu_count(),
                "rounds": chosen.rounds,
                "batch": chosen.batch,
                "overrides": chosen.overrides,
            }
        )
    )


def run(folder: Path, *words: str) -> dict[str, float]:
    """Milliseconds of an iteration, and seconds until `metrics.csv` has a first training step."""
    command = [sys.executable, "run.py", *FIXED, *words, f"hydra.run.dir={folder}"]
    began = time.perf_counter()
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None and not _has_a_step(folder / "metrics.csv"):
            time.sleep(0.005)
        startup_s = time.perf_counter() - began
        _, said = process.communicate()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}: {said}")
    measured = json.loads((folder / "result.json").read_text())["measured"]
    return {"ms": measured["iteration_ms"]["median"], "startup_s": startup_s}


def _has_a_step(metrics: Path) -> bool:
    """Below its header."""
    return metrics.is_file() and metrics.read_text().count("\n") > 1


def _range(values: list[float]) -> list[float]:
    return [round(min(values), 3), round(max(values), 3)]


if __name__ == "__main__":
    main()
