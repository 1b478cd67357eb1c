"""The training loader as Lightning wants it: epoch after epoch, and able to go on in the middle of one."""

from __future__ import annotations

from collections.abc import Iterator

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
    """Puts `batches` at the epoch that training begins with. After a whole epoch Lightning does not give a loader its state back."""

    def __init__(self, batches: ResumableLoader):
        self.batches = batches

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        if self.batches.epoch < trainer.current_epoch:
            self.batches.load_state_dict({"epoch": trainer.current_epoch, "batch": 0})
