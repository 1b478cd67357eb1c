"""SIGTERM while a run trains: all ranks end after the same step, with a checkpoint of it."""

from __future__ import annotations

import signal
import threading
import time
from typing import Any

import lightning.pytorch as pl
import torch
import torch.distributed as dist

from recsys_lab.errors import Terminated
from recsys_lab.executor.torch_private import stop_broadcasting_sigterm
from recsys_lab.train.callbacks import Checkpoints

#: So often ranks ask one another whether one of them was asked to end: a small all-reduce, between two steps.
ASK_EVERY_S = 0.5


def ask_less_often(trainer: pl.Trainer) -> None:
    """Takes out Lightning's broadcast before each batch, for which all ranks wait. `EndOnSigterm` asks in its place."""
    stop_broadcasting_sigterm(trainer)


class EndOnSigterm(pl.Callback):
    """To stand behind `checkpoints` among the callbacks. Raises Terminated on every rank.

    A rank that was asked continues until all know it. Outside of training SIGTERM does what it did before.
    """

    def __init__(self, checkpoints: Checkpoints):
        self.checkpoints = checkpoints
        self._received = self._ends = False
        self._before: Any = None
        self._asked, self._asked_step, self._next = 0.0, 0, 0

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self._asked, self._asked_step, self._next = time.monotonic(), trainer.global_step, trainer.global_step + 1
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, self._note)  # in place of Lightning's, which would wait for others in the handler

    def on_train_batch_end(self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int) -> None:
        step = trainer.global_step
        if step < self._next:
            return
        self._ends = self._all_know(step, trainer.strategy.root_device)
        if self._ends and not self.checkpoints.ends_epoch(trainer, batch_idx):
            self.checkpoints.save(trainer, last=True)
            raise Terminated
        if self._ends:
            self.checkpoints.due = True  # until the epoch has been evaluated

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        if self._ends:
            self.checkpoints.save(trainer, last=True)
            raise Terminated

    def on_train_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)

    def _note(self, number: int, frame: object) -> None:
        self._received = True

    def _all_know(self, step: int, device: torch.device) -> bool:
        """Whether a rank was asked to end; collective. Sets at which step to ask again."""
        now = time.monotonic()
        step_s = (now - self._asked) / max(1, step - self._asked_step)
        status = torch.tensor([float(self._received), step_s], dtype=torch.float64, device=device)
        dist.all_reduce(status, op=dist.ReduceOp.MAX)
        received, slowest_s = status.tolist()
        self._asked, self._asked_step = now, step
        self._next = step + max(1, int(ASK_EVERY_S / max(slowest_s, 1e-6)))
        return bool(received)
