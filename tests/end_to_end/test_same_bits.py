"""Same config, same seed, same machine: the same bits, disturbed or not."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest
import torch

from recsys_lab.train.checkpoint import Reader, whole
from recsys_lab.train.manifest import base_of
from tests.end_to_end.lines import SMALL, bits, killed, last_checkpoint, line, processes_in, result

LINE = ("model=dcn", "sharder=torchrec", "cluster=h100x64", *SMALL)


def has_checkpoint(folder: Path) -> bool:
    return any((folder / "checkpoints").glob("step=*"))


def kill_and_resume(folder: Path, cache: Path, pause_s: float, *more: str) -> None:
    killed(*LINE, *more, f"hydra.run.dir={folder}", cache=cache, when=lambda: has_checkpoint(folder), pause_s=pause_s)
    done = line(f"resume={folder}", cache=cache)
    assert done.code == 0, done.err


def test_the_same_line_twice(undisturbed, cache, tmp_path):
    done = line(*LINE, f"hydra.run.dir={tmp_path / 'again'}", cache=cache)
    assert done.code == 0, done.err
    assert bits(tmp_path / "again") == bits(undisturbed[0])


def test_a_later_job_of_a_sweep_whose_processes_are_warm(undisturbed, cache, tmp_path):
    """It follows one of another model in the same launcher and agent."""
    done = line("-m", "model=dlrm,dcn", *LINE[1:], f"hydra.sweep.dir={tmp_path}", cache=cache)
    assert done.code == 0, done.err
    assert result(tmp_path / "1")["choices"]["model"] == "dcn" and bits(tmp_path / "1") == bits(undisturbed[0])


def test_a_killed_run_resumes_to_the_same_end(undisturbed, cache, tmp_path):
    folder = tmp_path / "run"
    kill_and_resume(folder, cache, pause_s=0.3)
    assert bits(folder) == bits(undisturbed[0])
    steps = [row.split(",")[0] for row in (folder / "metrics.csv").read_text().splitlines()]
    assert steps == [row.split(",")[0] for row in (undisturbed[0] / "metrics.csv").read_text().splitlines()]
    assert processes_in(str(folder)) == []


@pytest.mark.long
@pytest.mark.timeout(900)
def test_killed_after_an_incremental_checkpoint(undisturbed, cache, tmp_path):
    """It reads with its base as the full one of an undisturbed run does."""
    folder, more = tmp_path / "run", ("trainer.checkpoint_full_every=3", "trainer.keep=3")
    fourth = folder / "checkpoints" / "step=20"
    killed(*LINE, *more, f"hydra.run.dir={folder}", cache=cache, when=fourth.is_dir, pause_s=0.0)
    done = line(f"resume={folder}", cache=cache)
    assert done.code == 0, done.err
    ours, theirs = (Reader(last_checkpoint(run)) for run in (folder, undisturbed[0]))
    assert set(ours.keys()) == set(theirs.keys()) and base_of(last_checkpoint(folder)) is not None
    for key in theirs.keys():
        dtype = torch.uint8 if key.startswith("rng.") else torch.float32
        read = [torch.zeros(theirs.shape(key), dtype=dtype) for _ in range(2)]
        for reader, tensor in zip((ours, theirs), read):
            reader.fill(whole(key, tensor))
        assert torch.equal(*read), key
    assert result(folder)["quality"] == result(undisturbed[0])["quality"]
    written = result(folder)["measured"]["checkpoints"]
    assert written["incremental"] >= 2 and 0 < written["incremental_bytes_share"] < 1


@pytest.mark.long
@pytest.mark.timeout(900)
def test_ids_that_travel_ahead_change_no_bit_of_a_killed_and_resumed_run(undisturbed, cache, tmp_path):
    kill_and_resume(tmp_path / "run", cache, 0.3, "sharder.executor.pipeline=true")
    assert bits(tmp_path / "run") == bits(undisturbed[0])


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "words",
    [
        ("precision=split_sgd_bf16", "sharder=flexshard_2tier", "optimizer.dense.name=sgd", "optimizer.dense.momentum=0.9"),
        ("precision=bf16", "sharder=dmt", "optimizer.sparse.name=row_wise_adagrad"),
    ],
)
def test_training_in_bf16_resumes_to_the_same_end(cache, tmp_path, words):
    given, folder = ("model=dcn", *SMALL, *words, "trainer.max_epochs=1", "trainer.gradient_clip_norm=1"), tmp_path / "run"
    done = line(*given, f"hydra.run.dir={tmp_path / 'undisturbed'}", cache=cache)
    assert done.code == 0, done.err
    killed(*given, f"hydra.run.dir={folder}", cache=cache, when=lambda: has_checkpoint(folder), pause_s=0.2)
    done = line(f"resume={folder}", cache=cache)
    assert done.code == 0, done.err
    assert bits(folder) == bits(tmp_path / "undisturbed")


def test_killed_after_an_evaluation_that_counts_towards_stopping(cache, tmp_path):
    """With a rate of zero no evaluation gets better: patience 2 stops a run after its third epoch, disturbed or not."""
    still = ("optimizer.dense.lr=0", "optimizer.sparse.lr=0", "trainer.early_stopping.patience=2", "trainer.restore_best=true")
    words = (*LINE, *still, "trainer.max_epochs=6", "trainer.checkpoint_every_steps=8")
    folder = tmp_path / "run"
    second_epoch = folder / "checkpoints" / "step=48"
    killed(*words, f"hydra.run.dir={folder}", cache=cache, when=second_epoch.is_dir, pause_s=0.0)
    done = line(f"resume={folder}", cache=cache)
    assert done.code == 0, done.err
    assert last_checkpoint(folder).name == "step=72"


@pytest.mark.long
@pytest.mark.timeout(900)
def test_killed_at_random_points(undisturbed, cache, tmp_path):
    seed = int(os.environ.get("RECSYS_LAB_KILL_SEED", random.SystemRandom().randrange(10**6)))
    pauses = random.Random(seed)
    for attempt in range(5):
        pause_s = pauses.uniform(0.0, 2.5)
        kill_and_resume(tmp_path / f"run{attempt}", cache, pause_s)
        assert bits(tmp_path / f"run{attempt}") == bits(undisturbed[0]), f"killed {pause_s:.2f} s after the first checkpoint, seed {seed}"


def test_a_finished_run_is_not_trained_again(undisturbed, cache):
    before = bits(undisturbed[0])
    done = line(f"resume={undisturbed[0]}", cache=cache)
    assert done.code == 0 and "measured" in done.out, done.err
    assert bits(undisturbed[0]) == before


def test_another_config_is_refused_with_the_fields_that_differ(undisturbed, cache):
    done = line(f"resume={undisturbed[0]}", "optimizer.dense.lr=0.5", "model.cross_layers=1", cache=cache)
    assert done.code == 2
    assert "optimizer.dense.lr: None -> 0.5" in done.err and "model.cross_layers: 2 -> 1" in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert shutil.os.path.isfile(undisturbed[0] / "result.json")
