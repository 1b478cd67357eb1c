"""Checkpoints that a thread writes while training goes on: the bits of the step that they are of, whole or not at all."""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from recsys_lab.errors import UserError
from recsys_lab.train import checkpoint, model_executor
from recsys_lab.train.checkpoint_folder import PARTIAL, clear_partial, latest
from recsys_lab.train.checkpoint_writer import Saving
from tests.executor.reference import Sample, samples
from tests.executor.seen_part import SPLIT
from tests.ranks import RankFailed, run_ranks
from tests.train.test_checkpoint_formats import DENSE, FP32, ROWS, TABLES, Run

IN_BACKGROUND = Saving(background=True)
write_tensors = checkpoint.write_tensors


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


class SlowDisk:
    """In place of `write_tensors`: writes once `goes_on` is set."""

    def __init__(self) -> None:
        self.goes_on, self.begun = threading.Event(), threading.Event()
        checkpoint.write_tensors = self

    def __call__(self, *arguments: Any) -> int:
        self.begun.set()
        assert self.goes_on.wait(60)
        return write_tensors(*arguments)


def saved_beside_training(folder: Path, batches: list[Sample]) -> dict[str, Any]:
    """Two formats in turn: full and incremental checkpoints, each once while training waits and once while it goes on."""
    read: dict[str, Any] = {}
    for name, precision in (("fp32", FP32), ("split", SPLIT)):
        run, at = Run(precision), folder / name
        run.train(batches[:1]).trained.save({}, at / "waited", Saving())
        run.trained.save({}, at / "step=1", Saving(is_base=True))
        disk = SlowDisk()
        run.trained.save({}, at / "beside", IN_BACKGROUND)
        assert disk.begun.wait(60)
        run.train(batches[1:2])
        assert not (at / "beside").exists()
        disk.goes_on.set()
        run.trained.save({}, at / "step=2", Saving(background=True, base=at / "step=1"))  # waits for the one before
        run.train(batches[2:3])
        run.trained.writer.wait()
        checkpoint.write_tensors = write_tensors
        again = Run(precision).train(batches[:2])
        again.trained.save({}, at / "full", Saving())
        read[name] = [Run(precision).load(at / which).weights() for which in ("full", "step=2")]
        read[f"{name}, figures"] = [(one.background, one.incremental, one.bytes > 0, one.write_s > 0) for one in run.trained.saved]
    return read


def read_by_one(folder: Path) -> list[Any]:
    return [Run(FP32).load(folder / which).weights() for which in ("full", "step=2")]


def test_bits_are_those_of_the_step_whatever_training_does_meanwhile(tmp_path: Path) -> None:
    ranks = run_ranks(saved_beside_training, 2, 1, tmp_path, samples(TABLES, 3, ROWS, DENSE), timeout_s=200)
    for name in ("fp32", "split"):
        assert files_of(tmp_path / name / "waited") == files_of(tmp_path / name / "beside")
        assert b"updated" in (tmp_path / name / "step=2" / "rank_0.safetensors").read_bytes()
        for rank in ranks:
            full, incremental = rank[name]
            assert full.keys() == incremental.keys() and all(torch.equal(full[key], incremental[key]) for key in full)
            expected = [(False, False), (False, False), (True, False), (True, True)]
            assert rank[f"{name}, figures"] == [(*kind, True, True) for kind in expected]
    (full, incremental), *_ = run_ranks(read_by_one, 1, 1, tmp_path / "fp32")
    assert all(torch.equal(full[key], incremental[key]) for key in full)


def dies_while_it_writes(folder: Path) -> None:
    run = Run(FP32)
    run.trained.save({}, folder / "step=1", Saving())
    disk = SlowDisk()
    run.trained.save({}, folder / "step=2", IN_BACKGROUND)
    assert disk.begun.wait(60)
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    disk.goes_on.set()
    time.sleep(1.0)
    run.trained.writer.wait()


def test_a_kill_of_one_writer_leaves_the_checkpoint_before(tmp_path: Path) -> None:
    """Rank 0 has written all of its files by then."""
    with pytest.raises(RankFailed):
        run_ranks(dies_while_it_writes, 2, 1, tmp_path, timeout_s=60)
    assert latest(tmp_path) == tmp_path / "step=1" and (tmp_path / f"{PARTIAL}step=2" / "rank_0.safetensors").exists()
    clear_partial(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["step=1"]


def full_disk(folder: Path) -> list[str]:
    """What goes wrong in the thread, and without room for a copy."""
    run, messages = Run(FP32), []

    def refuses(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    checkpoint.write_tensors = refuses
    for look in (run.trained.writer.check, run.trained.writer.wait):
        run.trained.save({}, folder / "step=1", IN_BACKGROUND)
        while run.trained.writer._thread is not None and run.trained.writer._thread.is_alive():
            time.sleep(0.01)
        try:
            look()
        except UserError as error:
            messages.append(str(error))
    run.trained.writer.wait()
    checkpoint.write_tensors = write_tensors
    model_executor.lacks_memory = lambda size: True
    run.trained.save({}, folder / "step=1", IN_BACKGROUND)
    assert (folder / "step=1").is_dir() and not run.trained.saved[-1].background
    return messages


def test_an_error_of_the_thread_is_one_line_of_the_next_step(tmp_path: Path) -> None:
    (messages,) = run_ranks(full_disk, 1, 1, tmp_path)
    assert len(messages) == 2 and all("No space left on device" in one and "\n" not in one for one in messages), messages
