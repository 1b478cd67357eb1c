"""Sends the ids of the next batch while this one computes, where the executor's `pipeline` asks for it."""

from __future__ import annotations

import lightning.pytorch as pl
from torch import Tensor

from recsys_lab.data.batch import Batch
from recsys_lab.executor.input_dist_prefetch import InputDistPrefetch
from recsys_lab.train.loader import ResumableLoader


class PrefetchInputDist(pl.Callback):
    """Before a batch's forward pass the next one's input distribution starts. Before its backward pass the ids leave.

    `loader` reads one batch ahead. An epoch's first batch sends its own ids in its forward pass, and during its last nothing leaves.
    """

    def __init__(self, loader: ResumableLoader):
        self.loader = loader
        self._leaves, self._steady = False, True

    def steady(self) -> bool:
        """Whether this batch's collectives are those of one iteration. Its own ids then came ahead, and those of a batch like it leave."""
        return self._steady

    def on_train_batch_start(self, trainer: pl.Trainer, module: pl.LightningModule, batch: Batch, batch_idx: int) -> None:
        prefetch, upcoming = _prefetch(trainer), self.loader.upcoming
        if prefetch is None:
            return
        came, ends = self._leaves, trainer.max_steps != -1 and trainer.global_step + 1 >= trainer.max_steps
        self._leaves = upcoming is not None and not ends
        self._steady = came and self._leaves and upcoming is not None and upcoming.global_valid == batch.global_valid
        if upcoming is not None and not ends:
            prefetch.start(upcoming.sparse)

    def on_before_backward(self, trainer: pl.Trainer, module: pl.LightningModule, loss: Tensor) -> None:
        if self._leaves and (prefetch := _prefetch(trainer)) is not None:
            prefetch.send()


def _prefetch(trainer: pl.Trainer) -> InputDistPrefetch | None:
    prefetch: InputDistPrefetch | None = trainer.strategy.sharded.model.input_dist_prefetch  # type: ignore[attr-defined]  # the executor is ours
    return prefetch
