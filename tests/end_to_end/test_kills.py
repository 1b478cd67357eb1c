"""SIGKILL at random moments of a training with frequent checkpoints: each resumes from the last complete one, to the same end."""

from __future__ import annotations

import os
import random
import re
from pathlib import Path

import pytest

from recsys_lab.train.checkpoint_folder import latest
from tests.end_to_end.lines import SMALL, bits, killed, line

LESS = ("data.rows_train=3000", "data.rows_validation=500", "data.rows_test=500", "trainer.evaluate_train_rows=0")
RANKS = ("launcher.hosts=1", "launcher.ranks_per_host=2")
LINE = ("model=dcn", *SMALL, *LESS, *RANKS, "trainer.checkpoint_every_steps=2", "trainer.max_epochs=4")


@pytest.fixture(scope="module")
def end(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> tuple:
    folder = tmp_path_factory.mktemp("end") / "run"
    done = line(*LINE, f"hydra.run.dir={folder}", cache=cache)
    assert done.code == 0, done.err
    return bits(folder)


def changed(file: Path) -> int:
    """When it was last written; 0: never."""
    return file.stat().st_mtime_ns if file.exists() else 0


def finish(folder: Path, cache: Path) -> None:
    """Resumes it to its end, from the newest checkpoint that is there."""
    last = latest(folder / "checkpoints")
    done = line(f"resume={folder}", cache=cache, timeout_s=400)
    assert done.code == 0, done.err
    says = re.search(r"resumes  from (?:step (\d+)|the beginning)", done.out)
    assert says is not None, done.out
    assert says[1] == (None if last is None else last.name.removeprefix("step=")), done.out


def kill(count: int, cache: Path, tmp_path: Path, end: tuple) -> None:
    """`count` times, and again in a new folder where a run has ended before."""
    seed = int(os.environ.get("RECSYS_LAB_KILL_SEED", random.SystemRandom().randrange(10**6)))
    draw, runs = random.Random(seed), 0
    folder = tmp_path / "run0"
    for _ in range(count):
        if (folder / "result.json").exists():
            assert bits(folder) == end, f"seed {seed}"
            runs += 1
            folder = tmp_path / f"run{runs}"
        words = (f"resume={folder}",) if folder.exists() else (*LINE, f"hydra.run.dir={folder}")
        metrics = folder / "metrics.csv"
        before, last = changed(metrics), latest(folder / "checkpoints")
        trains = draw.random() < 0.7  # else it is killed as it begins

        def is_there(metrics: Path = metrics, before: int = before, last: Path | None = last, trains: bool = trains) -> bool:
            return latest(metrics.parent / "checkpoints") != last if trains else changed(metrics) != before

        killed(*words, cache=cache, when=is_there, pause_s=draw.uniform(0.0, 1.0), timeout_s=400)
        now = latest(folder / "checkpoints")
        assert last is None or now is not None and int(now.name[5:]) >= int(last.name[5:]), f"seed {seed}"
    if not (folder / "result.json").exists():
        finish(folder, cache)
    assert bits(folder) == end, f"seed {seed}"


def test_three_kills_at_random_moments_lose_no_checkpoint_and_change_no_bit(cache: Path, tmp_path: Path, end: tuple) -> None:
    kill(3, cache, tmp_path, end)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_thirty_kills_at_random_moments_lose_no_checkpoint_and_change_no_bit(cache: Path, tmp_path: Path, end: tuple) -> None:
    kill(30, cache, tmp_path, end)
