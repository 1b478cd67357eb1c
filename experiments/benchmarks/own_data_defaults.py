"""Default settings on tables of clicks, beside the logistic regression: generated tables, and folders with a clicks.csv of yours.

python experiments/benchmarks/own_data_defaults.py --work DIR [--tables avazu_9k,rare_9k] [--models dcn,dlrm] [--seeds 1,2,3] [--data DIR]
    [-- key=value ...]

Each run has no key but `data.root` and `data.label`, and trains in this process, as one rank. A line of JSON a run goes to DIR/runs.jsonl.
At the end it prints one JSON object: by table and model, AUC less the regression's on the validation and the test split, by seed.
`--data`: a folder whose folders have a clicks.csv each, with a column `label`. `rows300` has so few rows that figures mean little.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

#: Values of Avazu's 21 columns, about.
AVAZU = (3000, 2500, 1200, 800, 700, 400, 300, 200, 150, 100, 60, 40, 24, 20, 12, 8, 7, 7, 5, 4, 3)


def main() -> None:
    line = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    line.add_argument("--work", type=Path, required=True, help="where tables, runs and figures go")
    line.add_argument("--tables", default=",".join(GENERATED))
    line.add_argument("--models", default="dcn,dlrm")
    line.add_argument("--seeds", default="1,2,3")
    line.add_argument("--data", type=Path, help="folders with a clicks.csv")
    line.add_argument("keys", nargs="*", help="of run.py")
    given = line.parse_args()
    rows = []
    given.work.mkdir(parents=True, exist_ok=True)
    with (given.work / "runs.jsonl").open("a") as file:
        for name in given.tables.split(","):
            root = given.data / name if given.data and (given.data / name).is_dir() else generated(given.work / "tables" / name, name)
            for model in given.models.split(","):
                for seed in given.seeds.split(","):
                    rows.append({"table": name, "model": model, "seed": int(seed)} | run(given.work, root, model, seed, given.keys))
                    print(json.dumps(rows[-1]), file=file, flush=True)
    found: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        own = found.setdefault(f"{row['table']}, {row['model']}", {"validation": [], "test": []})
        for split, gaps in own.items():
            gaps.append(round(row[split] - row[f"{split}_regression"], 4))
    print(json.dumps(found))


def run(work: Path, root: Path, model: str, seed: str, keys: list[str]) -> dict[str, Any]:
    """AUC of one run on both splits, with the regression's, the validation AUC of each evaluation, and seconds."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    rank = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    os.environ.update(rank | {"MASTER_PORT": os.environ.get("MASTER_PORT", str(port))})
    from recsys_lab import pipeline
    from recsys_lab.experiment import of_words
    from recsys_lab.record.metrics_csv import read_metrics
    from recsys_lab.report import say

    say.CONSOLE.quiet = True
    folder = work / f"run_{os.getpid()}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    words = ["data=table", f"data.root={root}", f"model={model}", f"seed={seed}", f"data.cache={work / 'cache'}", *keys]
    words += [
        "logger=none",
        "mode=train",
        "trainer.progress_bar=false",
        "launcher=torchrun",
        "launcher.hosts=1",
        "launcher.ranks_per_host=1",
    ]
    began = time.monotonic()
    record = pipeline.run(of_words(words, "own_data_defaults"), folder)
    assert record is not None, "one process is rank 0"
    figures: dict[str, Any] = {"seconds": round(time.monotonic() - began, 1)}
    for split in ("validation", "test"):
        figures[split] = record["quality"][split]["auc"]
        figures[f"{split}_regression"] = record["baselines"]["logistic_regression"][split]["auc"]
    figures["curve"] = [round(row["validation_auc"], 4) for row in read_metrics(folder) if row["validation_auc"] is not None]
    shutil.rmtree(folder)
    return figures


def generated(root: Path, name: str) -> Path:
    """The table `name` in the folder `root`, made unless it is there."""
    if not (root / "clicks.csv").is_file():
        root.mkdir(parents=True, exist_ok=True)
        GENERATED[name]().write_csv(root / "clicks.csv")
    return root


def zipf(draw: np.random.Generator, values: int, rows: int, skew: float = 1.1) -> np.ndarray:
    """int64 [rows]: small values are frequent."""
    share = np.arange(1.0, values + 1) ** -skew
    return draw.choice(values, rows, p=share / share.sum())


def clicks(draw: np.random.Generator, logits: np.ndarray, **columns: Any) -> pl.DataFrame:
    """Labels that follow `logits` [rows], with columns: integers are categories, other numbers are rounded."""
    labels = (draw.random(len(logits)) < 1 / (1 + np.exp(-logits))).astype(np.int8)
    texts = {name: [f"v{x}" for x in own] if own.dtype.kind == "i" else own.round(4) for name, own in columns.items()}
    return pl.DataFrame({"label": labels} | texts)


def avazu(rows: int, seed: int, bias: float) -> pl.DataFrame:
    """21 categories with small effects each, and of eight pairs of them. Few clicks where `bias` is low."""
    draw, logits, columns = np.random.default_rng(seed), np.full(rows, bias), {}
    for place, values in enumerate(AVAZU):
        columns[f"c{place}"] = zipf(draw, values, rows)
        logits += draw.normal(0, 0.28, values)[columns[f"c{place}"]]
    for _ in range(8):
        a, b = draw.choice(len(AVAZU), 2, replace=False)
        logits += draw.normal(0, 0.35, (AVAZU[a], AVAZU[b]))[columns[f"c{a}"], columns[f"c{b}"]]
    return clicks(draw, logits, **columns)


def rare(rows: int, users: int, items: int, seed: int, dim: int = 0) -> pl.DataFrame:
    """User and item, most of them rare. With `dim`, a dot product of so many dimensions is part of the logit."""
    draw = np.random.default_rng(seed)
    user, item = zipf(draw, users, rows, 0.7), zipf(draw, items, rows, 0.9)
    logits = draw.normal(0, 1.0, users)[user] + draw.normal(0, 0.8, items)[item] - 0.3
    if dim:
        logits += (draw.normal(0, 1, (users, dim))[user] * draw.normal(0, 1, (items, dim))[item]).sum(1) * 1.2 / dim**0.5
    return clicks(draw, logits, user=user, item=item)


def dense(rows: int, width: int, seed: int, bent: bool) -> pl.DataFrame:
    """Numbers, and one category without an effect. `bent`: their effects are not all linear."""
    draw = np.random.default_rng(seed)
    x = draw.normal(0, 1, (rows, width))
    logits = x @ draw.normal(0, 0.4, width) - 0.5
    if bent:
        logits += 0.8 * x[:, 0] * x[:, 1] - 0.5 * np.abs(x[:, 2])
    return clicks(draw, logits, **{f"x{place}": x[:, place] for place in range(width)}, site=draw.integers(0, 5, rows))


def interactions(rows: int, seed: int) -> pl.DataFrame:
    """Six categories that count by pairs and threes alone, nearly."""
    draw = np.random.default_rng(seed)
    own = [draw.integers(0, values, rows) for values in (12, 12, 12, 30, 50, 10)]
    pairs = draw.normal(0, 1.2, (12, 12))[own[0], own[1]] + draw.normal(0, 1.2, (12, 12))[own[1], own[2]]
    threes = draw.normal(0, 1.0, (6, 6, 6))[own[0] % 6, own[1] % 6, own[2] % 6]
    return clicks(draw, pairs + threes + draw.normal(0, 0.3, 30)[own[3]], **{f"c{place}": ids for place, ids in enumerate(own)})


def one_column() -> pl.DataFrame:
    draw = np.random.default_rng(7)
    item = zipf(draw, 800, 9000, 0.8)
    return clicks(draw, draw.normal(0, 1, 800)[item] - 1, item=item)


def few() -> pl.DataFrame:
    draw = np.random.default_rng(8)
    a, b, c = (draw.integers(0, values, 300) for values in (20, 8, 3))
    logits = draw.normal(0, 1, 20)[a] + draw.normal(0, 0.6, 8)[b] + draw.normal(0, 0.6, 3)[c]
    return clicks(draw, logits, a=a, b=b, c=c, x=draw.normal(0, 1, 300))


GENERATED: dict[str, Callable[[], pl.DataFrame]] = {
    "avazu_9k": lambda: avazu(9_000, 1, -1.6),
    "clicks_1pct_30k": lambda: avazu(30_000, 2, -5.2),
    "clicks_1pct_9k": lambda: avazu(9_000, 3, -5.2),
    "rare_9k": lambda: rare(9_000, 3_000, 2_000, 4),
    "rare_50k": lambda: rare(50_000, 12_000, 8_000, 1),
    "rare_1m": lambda: rare(1_000_000, 20_000, 5_000, 9, dim=4),
    "dense_2k": lambda: dense(2_000, 8, 6, bent=False),
    "dense_20k": lambda: dense(20_000, 10, 5, bent=True),
    "one_column": one_column,
    "rows300": few,
    "interactions_9k": lambda: interactions(9_000, 11),
    "interactions_60k": lambda: interactions(60_000, 10),
    "interactions_200k": lambda: interactions(200_000, 12),
}

if __name__ == "__main__":
    main()
