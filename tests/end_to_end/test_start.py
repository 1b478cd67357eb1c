"""A table of the user starts at its logistic regression, and a model that only gets worse from there ends where it started."""

from __future__ import annotations

import csv
import random
from pathlib import Path

import pytest

from tests.end_to_end.lines import bits, killed, line, result

#: Kept as they are, and thrown about.
STILL = ("optimizer.dense.lr=0", "optimizer.sparse.lr=0")
WILD = ("optimizer.dense.lr=3", "optimizer.sparse.lr=30", "trainer.early_stopping.patience=1")


@pytest.fixture(scope="module")
def clicks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1,500 rows of users, shops and a price, each with a linear effect."""
    folder, draw = tmp_path_factory.mktemp("clicks"), random.Random(3)
    mood, charm = ([draw.gauss(0, 1) for _ in range(count)] for count in (60, 9))
    with (folder / "clicks.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["label", "user", "shop", "price"])
        for _ in range(1500):
            user, shop, price = draw.randrange(60), draw.randrange(9), round(draw.uniform(1, 9), 2)
            rows.writerow([int(mood[user] + charm[shop] - 0.2 * price + draw.gauss(0, 1) > -1), f"u{user}", f"s{shop}", price])
    return folder


def words(clicks: Path, folder: Path, *more: str) -> tuple[str, ...]:
    return ("data=table", f"data.root={clicks}", "mode=train", "logger=none", f"hydra.run.dir={folder}", *more)


def test_a_model_starts_as_its_regression_and_ends_no_worse(clicks: Path, cache: Path, tmp_path: Path) -> None:
    """On two by two ranks, in FP32 and with rows in tiers and split weights."""
    for name, more in (
        ("still", (*STILL, "trainer.max_epochs=1")),
        ("wild", WILD),
        ("split", (*STILL, "trainer.max_epochs=1", "precision=split_sgd_bf16", "optimizer.sparse.name=sgd", "sharder=flexshard_3tier")),
    ):
        done = line(*words(clicks, tmp_path / name, *more), cache=cache)
        assert done.code == 0, done.err
        record = result(tmp_path / name)
        assert record["chosen"]["trainer.start_from_baseline"] and "trainer.start_from_baseline=true" in done.out
        for split, regression in record["baselines"]["logistic_regression"].items():
            assert regression["auc"] > 0.65
            near = 1e-3 if name == "split" else 1e-6
            assert record["quality"][split]["auc"] == pytest.approx(regression["auc"], abs=near), (name, split)
        first, *others = csv.DictReader((tmp_path / name / "metrics.csv").open())
        assert (first["step"], first["epoch"]) == ("0", "0") and float(first["validation_auc"]) > 0.65
        assert all(row["step"] != "0" for row in others)


def test_a_killed_run_resumes_to_the_same_end(clicks: Path, cache: Path, tmp_path: Path) -> None:
    more = ("trainer.max_epochs=10", "trainer.early_stopping.patience=0", "trainer.checkpoint_every_steps=2")
    done = line(*words(clicks, tmp_path / "whole", *more), cache=cache)
    assert done.code == 0, done.err
    folder = tmp_path / "cut"
    killed(*words(clicks, folder, *more), cache=cache, when=lambda: any((folder / "checkpoints").glob("step=*")), pause_s=0.1)
    done = line(f"resume={folder}", cache=cache)
    assert done.code == 0, done.err
    assert bits(folder) == bits(tmp_path / "whole")
    assert (folder / "metrics.csv").read_text().count("\n0,") == 1
