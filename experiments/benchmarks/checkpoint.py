"""What checkpoints of a 4 GB model cost: DLRM small with Adagrad, one every 100 steps. Prints one JSON object.

    .venv/bin/python experiments/benchmarks/checkpoint.py [--folder DIR] [--exponent 1.3]

One rank on all cores, batch 2,048, 8 tables of 1M x 64 with 50 look-ups each, and every row of data another within 200 steps. One
checkpoint of three is full, the others have the rows that were updated since. Needs 14 GB of memory and 20 GB of disk in DIR.

stall_share: of the time of training, in which it stands still for checkpoints. `slowdown` is what an iteration takes with checkpoints
beside it, over one without.

incremental_bytes_share: mean size of those after 100 and 200 steps, over a full one. It depends on the power law of ids:
`updated_share_expected` has, by exponent, the share of rows that 100 and 200 steps update.

resume_s: from the command until the first step after the incremental checkpoint of step 300; `start_s`: the same of a new run.

write_gb_s: bytes over seconds from the beginning of the copy until all is on disk. Training goes on meanwhile. disk_gb_s: what `dd`
with fsync writes into the same folder, median of three times 4 GB.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from recsys_lab.record.environment import cpu_model

ROOT = Path(__file__).resolve().parents[2]
BATCH, EVERY, ROWS, LOOK_UPS = 2048, 100, 1_000_000, 50
FIXED = (
    *("model=dlrm_small", "data=random", "mode=train", "launcher.hosts=1", "launcher.ranks_per_host=1", "logger=none", "baselines=false"),
    *("optimizer.dense.name=sgd", "optimizer.sparse.name=adagrad", f"data.batch_size={BATCH}", f"data.distinct_rows={2 * BATCH * EVERY}"),
    *("data.rows_validation=2048", "trainer.evaluate_every_epochs=0", "trainer.evaluate_train_rows=0", "trainer.log_every_steps=1"),
)
CHECKPOINTS = (f"trainer.checkpoint_every_steps={EVERY}", "trainer.checkpoint_full_every=3", "trainer.keep=3")


def main() -> None:
    line = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    line.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="on the disk that is measured")
    line.add_argument("--exponent", type=float, default=1.3, help="of the power law of ids")
    options = line.parse_args()
    ids = f"data.exponent={options.exponent}"
    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        disk_gb_s = statistics.median(dd_gb_s(Path(scratch) / "dd") for _ in range(3))
        without = run(Path(scratch) / "without", ids, "trainer.checkpoint_every_steps=0", f"trainer.max_steps={EVERY}")
        shutil.rmtree(Path(scratch) / "without")
        folder = Path(scratch) / "run"
        beside = run(folder, ids, *CHECKPOINTS, f"trainer.max_steps={4 * EVERY + 20}")
        for newer in (4 * EVERY, 4 * EVERY + 20):
            shutil.rmtree(folder / "checkpoints" / f"step={newer}", ignore_errors=True)
        resumed_s = resumed(folder, beside)
    written = beside["measured"]["checkpoints"]
    figures = {
        "stall_share": round(written["stall_share"], 4),
        "incremental_bytes_share": round(written["incremental_bytes_share"], 3),
        "resume_s": round(resumed_s, 1),
        "write_gb_s": round(written["bytes"] / written["write_s"] / 1e9, 3),
        "disk_gb_s": round(disk_gb_s, 3),
        "slowdown": round(beside["measured"]["iteration_ms"]["median"] / without["measured"]["iteration_ms"]["median"], 3),
        "iteration_ms": without["measured"]["iteration_ms"]["median"],
        "checkpoints": written,
        "start_s": round(without["first_step_s"], 1),
        "exponent": options.exponent,
        "updated_share_expected": {f"{s}": [round(updated_share(s, n), 2) for n in (EVERY, 2 * EVERY)] for s in (1.05, 1.1, 1.2, 1.3, 1.5)},
        "processor": cpu_model(),
    }
    print(json.dumps(figures))


def dd_gb_s(file: Path) -> float:
    """Of 4 GB of zeros."""
    began = time.perf_counter()
    subprocess.run(["dd", "if=/dev/zero", f"of={file}", "bs=16M", "count=256", "conv=fsync"], check=True, capture_output=True)
    spent_s = time.perf_counter() - began
    size = file.stat().st_size
    file.unlink()
    return size / spent_s / 1e9


def run(folder: Path, *words: str) -> dict:
    """Its record, with the seconds until its first step."""
    first_step_s = until_a_step(folder, 0, *FIXED, *words, f"hydra.run.dir={folder}")
    return json.loads((folder / "result.json").read_text()) | {"first_step_s": first_step_s}


def resumed(folder: Path, record: dict) -> float:
    """Seconds until the first step after the newest checkpoint, which is incremental. The run goes on to its end."""
    newest = max(int(re.findall(r"\d+", path.name)[0]) for path in (folder / "checkpoints").glob("step=*"))
    assert (folder / "checkpoints" / f"step={newest}" / "manifest.json").read_text().count('"base"') == 1, record
    (folder / "result.json").unlink()
    return until_a_step(folder, newest, f"resume={folder}")


def until_a_step(folder: Path, after: int, *words: str) -> float:
    """Seconds from the command until a step after `after` is in the metrics file."""
    began, first_s = time.perf_counter(), 0.0
    process = subprocess.Popen(
        [sys.executable, "run.py", *words], cwd=ROOT, env=os.environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    while process.poll() is None and last_step(folder / "metrics.csv") != after + 1:
        time.sleep(0.01)
    first_s = time.perf_counter() - began
    _, said = process.communicate()
    if process.returncode:
        raise SystemExit(f"{' '.join(words)} ended with {process.returncode}: {said.decode()}")
    return first_s


def last_step(file: Path) -> int:
    """In a metrics file; 0: none."""
    steps = re.findall(r"^(\d+),", file.read_text(), re.MULTILINE) if file.is_file() else []
    return int(steps[-1]) if steps else 0


def updated_share(exponent: float, steps: int) -> float:
    """Of a table's rows, those that so many steps look up, by the power law."""
    probability = np.arange(1, ROWS + 1.0) ** -exponent
    return float(-np.expm1(-steps * BATCH * LOOK_UPS * probability / probability.sum()).mean())


if __name__ == "__main__":
    main()
