"""Does the input keep up, and what does the framework cost? Prints {"data_wait_share": ..., "overhead_ratio": ..., ...}.

    .venv/bin/python experiments/benchmarks/input_and_overhead.py [--data-root DIR] [--rounds N]

Two programs take turns, each in a process of its own, on the same Criteo rows at batch 2,048 and one rank:
- the framework: `run.py model=dcn data=criteo`, everything on (Lightning, strategy, metrics, recording);
- a bare PyTorch loop over the same modules (model, look-up and table optimizer, loader) without Lightning, TorchRec or DDP.
`overhead_ratio` is the median over rounds of (time of a framework step) / (time of a bare step), both from all steps after the first
ten; `data_wait_share` is the median share of a framework step that waits for data. Without `--data-root`, rows in Criteo's format
are written to a temporary folder first.
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

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
BATCH = 2048
STEPS, WARM_UP = 90, 10
ROWS = BATCH * (STEPS + 15)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path, help="a folder with Criteo's train.tsv or train.txt")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bare", type=Path, help=argparse.SUPPRESS)  # the child that runs the bare loop, on this data
    args = parser.parse_args()
    if args.bare is not None:
        print(json.dumps({"step_ms": bare_step_ms(args.bare)}))
        return
    with tempfile.TemporaryDirectory() as scratch:
        data = args.data_root.resolve() if args.data_root else written_rows(Path(scratch) / "data")
        rounds = [one_round(data, Path(scratch) / f"run{n}") for n in range(args.rounds)]
    ratios = [framework["step_ms"] / bare["step_ms"] for framework, bare in rounds]
    print(
        json.dumps(
            {
                "data_wait_share": statistics.median(framework["data_wait_share"] for framework, _ in rounds),
                "overhead_ratio": statistics.median(ratios),
                "overhead_ratio_range": [min(ratios), max(ratios)],
                "framework_step_ms": [framework["step_ms"] for framework, _ in rounds],
                "bare_step_ms": [bare["step_ms"] for _, bare in rounds],
            }
        )
    )


def one_round(data: Path, folder: Path) -> tuple[dict, dict]:
    """(framework, bare) in turn."""
    return framework_step(data, folder), child("--bare", str(data))


def child(*words: str) -> dict:
    done = subprocess.run([sys.executable, __file__, *words], cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1])


def environment() -> dict[str, str]:
    """Alike for both: one thread, and memory that the allocator keeps. Left to itself it gives buffers back to the system in one
    process and not in the other, and fetching them again cost the bare loop 10 of 41 ms a step.
    """
    return os.environ | {"OMP_NUM_THREADS": "1", "MALLOC_TRIM_THRESHOLD_": "1000000000", "MALLOC_MMAP_THRESHOLD_": "1000000000"}


def overrides(data: Path) -> list[str]:
    return [
        "model=dcn",
        "data=criteo",
        f"data.root={data}",
        f"data.batch_size={BATCH}",
        "launcher.hosts=1",
        "launcher.ranks_per_host=1",
        "mode=train",
        "logger=none",
        f"trainer.max_steps={STEPS}",
        "trainer.max_epochs=100",
        "trainer.evaluate_every_epochs=0",
        "trainer.evaluate_train_rows=0",
    ]


def framework_step(data: Path, folder: Path) -> dict:
    words = [sys.executable, "run.py", *overrides(data), f"hydra.run.dir={folder}"]
    done = subprocess.run(words, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    measured = json.loads((folder / "result.json").read_text())["measured"]
    return {"step_ms": BATCH / measured["examples_per_second"] * 1e3, "data_wait_share": measured["data_wait_share"]}


def bare_step_ms(data: Path) -> float:
    """Mean milliseconds a step of the plain loop, after the first ten."""
    import torch

    from recsys_lab.data.loader import RankLoader
    from recsys_lab.executor.sparse_optim import SparseOptimizer
    from recsys_lab.executor.table_batch import HeldShard, TableBatch
    from recsys_lab.experiment import of_words
    from recsys_lab.kernels import Rule
    from recsys_lab.models.initial import initialise_dense
    from recsys_lab.models.table_weights import initial_weight

    torch.set_num_threads(1)
    experiment = of_words(overrides(data), where="bare step")
    optimizer, dim = experiment.optimizer, experiment.model.embedding_dim
    dataset = experiment.open_data()
    tables = {table.name: table for table in experiment.tables(dataset)}
    model = experiment.build_model(dataset, torch.device("meta"))
    initialise_dense(model, experiment.seed, torch.device("cpu"))
    bags = TableBatch([HeldShard(table.name, 0, table.rows, 0, table.dim, 1) for table in tables.values()], torch.device("cpu"))
    bags.fill(lambda name, *extent: initial_weight(tables[name], *extent, experiment.seed))
    sparse = SparseOptimizer([bags], Rule("adam", optimizer.sparse.rate), torch.device("cpu"))
    dense = [p for name, p in model.named_parameters() if not name.startswith("embeddings.")]
    adam = torch.optim.Adam(dense, lr=optimizer.dense.rate)
    loader = RankLoader(
        dataset.splits["train"], dataset, batch_size=BATCH, rank=0, world_size=1, seed=1, shuffle=True, prefetch_batches=4, pin_memory=False
    )
    step, began, epoch = 0, 0.0, 0
    while step < STEPS:
        loader.set_position(epoch)
        for batch in loader:
            if batch.global_valid < BATCH:
                break
            if step == WARM_UP:
                began = time.perf_counter()
            adam.zero_grad()
            sparse.zero_grad()
            pooled = bags.look_up(batch.sparse.values(), batch.sparse.offsets(), BATCH)
            logits = model.predict(batch.dense, dict(zip(model.features, pooled.split(dim, dim=1))))
            torch.nn.functional.binary_cross_entropy_with_logits(logits, batch.labels).backward()
            adam.step()
            sparse.step()
            step += 1
            if step == STEPS:
                break
        epoch += 1
    return (time.perf_counter() - began) / (STEPS - WARM_UP) * 1e3


def written_rows(folder: Path) -> Path:
    """`ROWS` rows of Criteo's format: counts, missing values and power-law hashes, from a fixed seed."""
    folder.mkdir()
    draw = np.random.default_rng(1)
    counts = draw.geometric(0.05, (ROWS, 13)) - 1
    ids = (draw.zipf(1.2, (ROWS, 26)) * np.arange(1, 27)) % 2**32
    absent = draw.random((ROWS, 39)) < 0.15
    labels = draw.random(ROWS) < 0.25
    with (folder / "train.tsv").open("w") as file:
        for label, count, value, gone in zip(labels, counts, ids, absent):
            fields = [str(c) for c in count] + [f"{v:08x}" for v in value]
            file.write("\t".join([str(int(label)), *("" if missing else f for f, missing in zip(fields, gone))]) + "\n")
    return folder


if __name__ == "__main__":
    main()
