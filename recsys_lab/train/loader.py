"""The training loader as Lightning wants it: epoch after epoch, and able to go on in the middle of one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import lightning.pytorch as pl
import torch

from recsys_lab.data.batch import Batch
from recsys_lab.data.loader import RankLoader


class ResumableLoader:
    """Batches of `loader`, one epoch an iteration. Its state is the position alone: (epoch, batches taken).

    With `ahead_on`, a device, it has each batch there before the one before it is given out: `upcoming`, None after the epoch's last.
    """

    def __init__(self, loader: RankLoader, ahead_on: torch.device | None = None):
        self.loader, self.ahead_on = loader, ahead_on
        self.upcoming: Batch | None = None
        self.epoch = 0
        self.batch = 0

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Batch]:
        if self.batch >= len(self.loader):
            self.epoch, self.batch = self.epoch + 1, 0
        self.loader.set_position(self.epoch, self.batch)
        batches = iter(self.loader) if self.ahead_on is None else self._looking_ahead(self.ahead_on)
        for batch in batches:
            self.batch += 1
            yield batch

    def _looking_ahead(self, device: torch.device) -> Iterator[Batch]:
        batches = (batch.to(device, non_blocking=True) for batch in self.loader)
        self.upcoming = next(batches, None)
        while (batch := self.upcoming) is not None:
            self.upcoming = next(batches, None)
            yield batch

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch, "batch": self.batch}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.epoch, self.batch = int(state["epoch"]), int(state["batch"])


class NextEpoch(pl.Callback):
    """Puts `batches` where training goes on.

    After a whole epoch Lightning does not give a loader its state back. An epoch that a limit cut short counts as whole to Lightning, and
    what is left of it would not be read. So a checkpoint at its end is taken for one in the middle.
    """

    def __init__(self, batches: ResumableLoader):
        self.batches = batches

    def on_load_checkpoint(self, trainer: pl.Trainer, module: pl.LightningModule, checkpoint: dict[str, Any]) -> None:
        loops = checkpoint["loops"]["fit_loop"]
        epochs = [loops["epoch_progress"][of] for of in ("total", "current")]
        (loader,) = loops["state_dict"].get("combined_loader") or [{"epoch": 0, "batch": 0}]
        if 0 < loader["batch"] < len(self.batches) and all(epoch["processed"] == epoch["started"] for epoch in epochs):
            for epoch in epochs:
                epoch["processed"] = epoch["completed"] = epoch["started"] - 1
            loops["epoch_loop.val_loop.batch_progress"]["total"] |= dict.fromkeys(("ready", "started", "processed", "completed"), 0)

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        if self.batches.epoch < trainer.current_epoch:
            self.batches.load_state_dict({"epoch": trainer.current_epoch, "batch": 0})
