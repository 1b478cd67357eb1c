"""Models for the next item, from a log to the best weights: the same line twice, killed and resumed, with one rank and two ranks lost."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recsys_lab.train.checkpoint_folder import latest
from tests.end_to_end.lines import ROOT, bits, default_signals, environment, killed, last_checkpoint, line, result
from tests.end_to_end.test_kills import changed
from tests.end_to_end.test_lost_rank import rank_process

USERS, ITEMS, RANKS = 400, 60, 3
#: Everything that a resume could lose: early stopping, the best weights, a warm-up, AdamW's moments, dropout's random state.
WORDS = (
    "data=interactions",
    "data.batch_size=64",
    "data.max_length=8",
    "model.embedding_dim=16",
    "model.dropout=0.2",
    "optimizer.dense.name=adamw",
    "optimizer.dense.lr=0.01",
    "optimizer.sparse.lr=0.02",
    "optimizer.schedule.warmup_steps=10",
    "trainer.max_epochs=20",
    "trainer.early_stopping.metric=ndcg_10",
    "trainer.early_stopping.patience=2",
    "trainer.restore_best=true",
    "trainer.checkpoint_every_steps=4",
    "launcher.hosts=1",
    f"launcher.ranks_per_host={RANKS}",
    "baselines=false",
    "logger=none",
)
SEQUENCE = ("model=sequence", "model.loss=softmax", "model.temperature=0.1", "sharder=torchrec_row_wise", *WORDS)
#: Of the long tests: a loss each, sharders whose plans differ, and both models.
LINES = {
    "sequence, binary": ("model=sequence", "model.loss=binary", "sharder=flexshard_3tier", *WORDS),
    "hstu, softmax": ("model=hstu", "model.time_bias=true", "model.loss=softmax", "model.temperature=0.1", "sharder=torchrec", *WORDS),
    "hstu, sampled": ("model=hstu", "model.loss=sampled_softmax", "model.temperature=0.1", "sharder=neo_4d", *WORDS),
    "sequence, in batch": ("model=sequence", "model.loss=in_batch_softmax", "model.temperature=0.1", "sharder=torchrec_2d", *WORDS),
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log in no order of users: an item is mostly followed by the next one or two."""
    draw, folder = np.random.default_rng(1), tmp_path_factory.mktemp("log")
    rows = []
    for user in range(USERS):
        steps = draw.choice([1, 2, 17], draw.integers(5, 14), p=[0.6, 0.3, 0.1])
        items = (draw.integers(ITEMS) + np.cumsum(steps)) % ITEMS
        times = 1_600_000_000 + np.cumsum(draw.integers(1, 10**6, len(items)))
        rows += [f"{user},{item},{at}" for item, at in zip(items, times)]
    draw.shuffle(rows)
    (folder / "log.csv").write_text("\n".join(["user_id,item_id,timestamp", *rows]) + "\n")
    return folder


@dataclass(frozen=True)
class End:
    """What must be the same bit for bit: `bits`, and every weight of the best checkpoint."""

    bits: tuple[Any, str, str]
    best: str

    @staticmethod
    def of(folder: Path) -> End:
        digest = hashlib.sha256()
        for file in sorted((folder / "checkpoints" / "best").glob("rank_*.safetensors")):
            digest.update(file.read_bytes())
        return End(bits(folder), digest.hexdigest())


def run(words: tuple[str, ...], root: Path, folder: Path, cache: Path) -> End:
    done = line(*words, f"data.root={root}", f"hydra.run.dir={folder}", cache=cache)
    assert done.code == 0, done.err
    return End.of(folder)


@pytest.fixture(scope="module")
def end(tmp_path_factory: pytest.TempPathFactory, root: Path, cache: Path) -> End:
    """Of an undisturbed run, which stops early, with weights before its last ones as the best."""
    folder = tmp_path_factory.mktemp("end") / "run"
    end = run(SEQUENCE, root, folder, cache)
    steps_of_an_epoch = -(-USERS // 64)
    assert 3 * steps_of_an_epoch <= int(last_checkpoint(folder).name[5:]) < 20 * steps_of_an_epoch
    return end


def resumed(folder: Path, cache: Path) -> End:
    done = line(f"resume={folder}", cache=cache, timeout_s=400)
    assert done.code == 0, done.err
    return End.of(folder)


def kill(words: tuple[str, ...], count: int, root: Path, cache: Path, tmp_path: Path, end: End) -> None:
    """`count` times at a random moment, and again in a new folder where a run has ended before."""
    seed = int(os.environ.get("RECSYS_LAB_KILL_SEED", random.SystemRandom().randrange(10**6)))
    draw, runs, folder = random.Random(seed), 0, tmp_path / "run0"
    for _ in range(count):
        if (folder / "result.json").exists():
            assert End.of(folder) == end, f"seed {seed}"
            runs += 1
            folder = tmp_path / f"run{runs}"
        metrics, last = folder / "metrics.csv", latest(folder / "checkpoints")
        before = changed(metrics)
        given = (f"resume={folder}",) if folder.exists() else (*words, f"data.root={root}", f"hydra.run.dir={folder}")
        trains = draw.random() < 0.7  # else it is killed as it begins

        def is_there(metrics: Path = metrics, before: int = before, last: Path | None = last, trains: bool = trains) -> bool:
            return latest(metrics.parent / "checkpoints") != last if trains else changed(metrics) != before

        killed(*given, cache=cache, when=is_there, pause_s=draw.uniform(0.0, 1.5), timeout_s=400)
    if not (folder / "result.json").exists():
        resumed(folder, cache)
    assert End.of(folder) == end, f"seed {seed}"


def test_the_same_line_twice(root: Path, cache: Path, tmp_path: Path, end: End) -> None:
    assert run(SEQUENCE, root, tmp_path / "again", cache) == end


def test_two_kills_at_random_moments_change_no_bit(root: Path, cache: Path, tmp_path: Path, end: End) -> None:
    kill(SEQUENCE, 2, root, cache, tmp_path, end)


@pytest.mark.parametrize("lost", [pytest.param((2,), marks=pytest.mark.long, id="one"), pytest.param((1, 2), id="two")])
def test_lost_ranks_are_named_and_the_run_resumes_to_the_same_bits(
    root: Path, cache: Path, tmp_path: Path, end: End, lost: tuple[int, ...]
) -> None:
    folder = tmp_path / "run"
    words = (*SEQUENCE, f"data.root={root}", f"hydra.run.dir={folder}")
    process = subprocess.Popen(
        [sys.executable, "run.py", *words],
        cwd=ROOT,
        env=environment(cache),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=default_signals,
    )
    until = time.monotonic() + 120
    while latest(folder / "checkpoints") is None:
        assert time.monotonic() < until and process.poll() is None
        time.sleep(0.02)
    for victim in [rank_process(folder / "logs" / f"rank{rank}.log") for rank in lost]:
        os.kill(victim, signal.SIGKILL)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 4, said
    assert any(f"rank {rank} on host 0 was lost (killed by SIGKILL)" in said for rank in lost), said
    assert f"python run.py resume={folder}" in said and "Traceback" not in said
    assert resumed(folder, cache) == end


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", LINES)
def test_kills_change_no_bit_of_other_models_losses_and_sharders(root: Path, cache: Path, tmp_path: Path, name: str) -> None:
    expected = run(LINES[name], root, tmp_path / "end", cache)
    assert run(LINES[name], root, tmp_path / "again", cache) == expected
    kill(LINES[name], 5, root, cache, tmp_path, expected)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_thirty_kills_at_random_moments_change_no_bit(root: Path, cache: Path, tmp_path: Path, end: End) -> None:
    kill(SEQUENCE, 30, root, cache, tmp_path, end)


@pytest.mark.long
def test_a_run_cut_short_in_an_epoch_trains_for_longer_to_the_same_bits(root: Path, cache: Path, tmp_path: Path) -> None:
    straight = run((*SEQUENCE, "trainer.max_steps=10"), root, tmp_path / "straight", cache)
    run((*SEQUENCE, "trainer.max_steps=3"), root, tmp_path / "longer", cache)
    done = line(f"resume={tmp_path / 'longer'}", "trainer.max_steps=10", cache=cache)
    assert done.code == 0 and result(tmp_path / "longer")["ended_by"]["steps"] == 10, done.err
    assert End.of(tmp_path / "longer") == straight
