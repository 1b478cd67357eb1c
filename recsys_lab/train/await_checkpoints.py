"""Training and the thread that writes its checkpoints: who waits for whom."""

from __future__ import annotations

import contextlib
from typing import Any

import lightning.pytorch as pl

from recsys_lab.train.model_executor import TrainedModel


class AwaitCheckpoints(pl.Callback):
    """To stand behind all callbacks that save. An error of the thread ends training after the step in which it is there.

    The end of training waits for what is under way, an error and SIGTERM too: what they leave is then one checkpoint newer.
    """

    def __init__(self, every_steps: int):
        self.every_steps = every_steps

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        if 0 < self.every_steps < trainer.estimated_stepping_batches:
            _trained(trainer).prepare_copy()

    def on_train_batch_end(self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int) -> None:
        _trained(trainer).writer.check()

    def on_train_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        _trained(trainer).writer.wait()

    def on_exception(self, trainer: pl.Trainer, module: pl.LightningModule, exception: BaseException) -> None:
        if isinstance(trained := getattr(trainer.strategy, "sharded", None), TrainedModel):
            with contextlib.suppress(Exception):  # the first error is the one that is told
                trained.writer.wait()


def _trained(trainer: pl.Trainer) -> TrainedModel:
    trained: TrainedModel = trainer.strategy.sharded  # type: ignore[attr-defined]  # ShardedStrategy's
    return trained
