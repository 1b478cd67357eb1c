"""A sweep of 16 jobs of 40 steps, from the command to its table. Prints one JSON object.

    .venv/bin/python experiments/benchmarks/sweep.py [--logger none] [WORD ...]

Two models, two sharders and four seeds on data=synthetic, unless words of your own say what varies. `cpu_s` is the CPU time of all
processes: it differs less than `wall_s` on a machine that runs something else too. `a_job_s` is the median from one record to the next.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from recsys_lab.record.environment import cpu_model

ROOT = Path(__file__).resolve().parents[2]
WORDS = ("model=dlrm,dcn", "sharder=torchrec,dmt", "seed=1,2,3,4")
STEPS = 40


def main() -> None:
    line = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    line.add_argument("--logger", default="wandb", help="of every job")
    line.add_argument("words", nargs="*", default=WORDS, help="of the sweep")
    options = line.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "sweep"
        words = [*options.words, f"trainer.max_steps={STEPS}", f"logger={options.logger}", f"hydra.sweep.dir={folder}"]
        began = time.perf_counter()
        done = subprocess.run([sys.executable, "run.py", "-m", *words], cwd=ROOT, env=os.environ, capture_output=True, text=True)
        wall_s = time.perf_counter() - began
        if done.returncode:
            raise SystemExit(f"the sweep ended with {done.returncode}: {done.stderr}")
        ends = sorted(path.stat().st_mtime for path in folder.glob("*/result.json"))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    figures = {
        "jobs": len(ends),
        "wall_s": round(wall_s, 1),
        "cpu_s": round(used.ru_utime + used.ru_stime, 1),
        "a_job_s": round(statistics.median(b - a for a, b in zip(ends, ends[1:])), 1) if len(ends) > 1 else None,
        "words": words[:-1],
        "cores": len(os.sched_getaffinity(0)),
        "processor": cpu_model(),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
