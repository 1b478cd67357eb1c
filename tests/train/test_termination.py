"""SIGTERM while a run trains: the step is finished, a checkpoint written, and an epoch's last step waits for its evaluation."""

from __future__ import annotations

import inspect
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
import torch.distributed as dist

from recsys_lab.errors import Terminated
from recsys_lab.train.callbacks import Checkpoints, TimeLimit
from recsys_lab.train.termination import EndOnSigterm, ask_less_often

STEPS_PER_EPOCH = 10
NOTHING: Any = None


class Trainer(SimpleNamespace):
    """Of Lightning's only what the callbacks look at. `saved`: the steps of its checkpoints, `how` they are saved."""

    def __init__(self, folder: Path):
        super().__init__(global_step=0, num_training_batches=STEPS_PER_EPOCH, max_steps=-1, is_global_zero=False, saved=[], how=[])
        self.strategy = SimpleNamespace(root_device=torch.device("cpu"))
        self.folder = folder

    def save_checkpoint(self, path: Path, storage_options: Any) -> None:
        self.saved.append(path.name)
        self.how.append(storage_options)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[bool, float]]]:
    """What this rank said of itself, each time that ranks asked one another; one that no other rank contradicts."""
    output: list[tuple[bool, float]] = []
    monkeypatch.setattr(dist, "all_reduce", lambda tensor, op: output.append((bool(tensor[0]), float(tensor[1]))))
    before = signal.getsignal(signal.SIGTERM)
    yield output
    signal.signal(signal.SIGTERM, before)


def begun(folder: Path) -> tuple[Trainer, Checkpoints, EndOnSigterm]:
    trainer, checkpoints = Trainer(folder), Checkpoints(folder, 0)
    ending = EndOnSigterm(checkpoints)
    ending.on_train_start(trainer, NOTHING)  # type: ignore[arg-type]
    return trainer, checkpoints, ending


def step(trainer: Trainer, *callbacks: Any) -> None:
    trainer.global_step += 1
    for callback in callbacks:
        callback.on_train_batch_end(trainer, NOTHING, NOTHING, NOTHING, (trainer.global_step - 1) % STEPS_PER_EPOCH)


def test_a_rank_that_was_told_writes_a_checkpoint_of_the_step_it_is_at(tmp_path: Path, asked: list) -> None:
    trainer, checkpoints, ending = begun(tmp_path)
    step(trainer, checkpoints, ending)
    assert asked[-1][0] is False and trainer.saved == []
    os.kill(os.getpid(), signal.SIGTERM)
    ending._next = 0  # half a second is over
    with pytest.raises(Terminated):
        step(trainer, checkpoints, ending)
    assert asked[-1][0] is True and trainer.saved == ["step=2"]


@pytest.mark.parametrize(("full_every", "bases"), [(1, [None] * 7), (3, [None, 1, 1, None, 4, 4, None])], ids=["full", "a third"])
def test_every_nth_checkpoint_is_full_and_the_next_ones_depend_on_it(tmp_path: Path, full_every: int, bases: list[int | None]) -> None:
    trainer, checkpoints = Trainer(tmp_path), Checkpoints(tmp_path, 1, keep=3, full_every=full_every)
    for _ in range(6):
        step(trainer, checkpoints)
    trainer.global_step += 1
    checkpoints.on_train_end(trainer, NOTHING)  # type: ignore[arg-type]
    assert [how.base and how.base.name for how in trainer.how] == [base and f"step={base}" for base in bases]
    assert [how.is_base for how in trainer.how] == [full_every > 1 and base is None for base in bases]
    assert [how.background for how in trainer.how] == [True] * 6 + [False]


def test_at_the_end_of_an_epoch_it_waits_for_the_evaluation(tmp_path: Path, asked: list) -> None:
    trainer, checkpoints, ending = begun(tmp_path)
    trainer.global_step = STEPS_PER_EPOCH - 1
    os.kill(os.getpid(), signal.SIGTERM)
    step(trainer, checkpoints, ending)
    assert trainer.saved == []
    checkpoints.on_train_epoch_end(trainer, NOTHING)  # type: ignore[arg-type]
    with pytest.raises(Terminated):
        ending.on_train_epoch_end(trainer, NOTHING)  # type: ignore[arg-type]
    assert trainer.saved == [f"step={STEPS_PER_EPOCH}"]


def test_another_rank_that_was_told_ends_this_one_too(tmp_path: Path, asked: list, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, checkpoints, ending = begun(tmp_path)
    monkeypatch.setattr(dist, "all_reduce", lambda tensor, op: tensor.copy_(torch.tensor([1.0, 0.1])))
    with pytest.raises(Terminated):
        step(trainer, checkpoints, ending)
    assert trainer.saved == ["step=1"]


def test_quick_steps_ask_seldom_and_slow_ones_every_time(tmp_path: Path, asked: list, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the slowest rank's time for a step, so that all ask after the same one."""
    trainer, checkpoints, ending = begun(tmp_path)
    for seconds, steps_between in ((0.01, 50), (0.4, 1), (30.0, 1)):
        monkeypatch.setattr(dist, "all_reduce", lambda tensor, op, s=seconds: tensor.copy_(torch.tensor([0.0, s])))
        ending._next = 0
        step(trainer, checkpoints, ending)
        assert ending._next == trainer.global_step + steps_between


def test_outside_of_training_the_signal_does_what_it_did(tmp_path: Path, asked: list) -> None:
    before = signal.getsignal(signal.SIGTERM)
    trainer, _, ending = begun(tmp_path)
    assert signal.getsignal(signal.SIGTERM) != before
    ending.on_train_end(trainer, NOTHING)  # type: ignore[arg-type]
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_limit_of_time_ends_training_at_the_next_look_and_outlives_a_checkpoint() -> None:
    def trainer(step: int) -> Any:
        return SimpleNamespace(global_step=step, should_stop=False, strategy=SimpleNamespace(broadcast=lambda value: value))

    limit, calm, over = TimeLimit(seconds=1e-9, every_steps=4), trainer(3), trainer(4)
    limit.on_train_start(calm, NOTHING)
    for one in (calm, over):
        limit.on_train_batch_end(one, NOTHING, NOTHING, NOTHING, 0)
    assert (calm.should_stop, over.should_stop) == (False, True)
    kept = limit.state_dict()
    for seconds, ends in ((1e-9, True), (1e9, False)):  # a run that resumes may have more time
        resumed, again = TimeLimit(seconds, every_steps=4), trainer(4)
        resumed.load_state_dict(kept)
        resumed.on_train_start(again, NOTHING)
        assert again.should_stop == ends and resumed.spent >= kept["spent"] > 0


def test_lightning_has_the_broadcast_that_is_taken_out() -> None:
    """A later Lightning may call it otherwise; each batch would then wait for all ranks again."""
    trainer = pl.Trainer(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    loop = trainer.fit_loop.epoch_loop
    assert f"self.{loop._broadcast_sigterm_tensor.__name__}()" in inspect.getsource(type(loop).advance)
    ask_less_often(trainer)
    assert loop._broadcast_sigterm_tensor() is None
