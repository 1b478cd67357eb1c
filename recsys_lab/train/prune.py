"""Cuts a run short that a search has no more use for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import lightning.pytorch as pl

from recsys_lab.record.result import Pruned


class Prune(pl.Callback):
    """Stops after an epoch whose `metric` of the validation split is worse than `bounds` has for it; None is no bound.

    Every rank sees the same figure and stops at the same place.
    """

    def __init__(self, metric: str, higher: bool, bounds: Sequence[float | None]):
        self.metric, self.higher, self.bounds = metric, higher, bounds
        self.pruned: Pruned | None = None

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        epoch, figure = trainer.current_epoch, trainer.callback_metrics.get(f"validation_{self.metric}")
        bound = self.bounds[epoch] if epoch < len(self.bounds) else None
        if figure is None or bound is None or trainer.global_step == 0:
            return
        value = float(figure)
        if value < bound if self.higher else value > bound:
            self.pruned = Pruned(self.metric, epoch + 1, value, bound)
            trainer.should_stop = True

    def state_dict(self) -> dict[str, Any]:
        """For a run that is killed after it was asked to stop."""
        return {"pruned": None if self.pruned is None else vars(self.pruned)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.pruned = Pruned(**state["pruned"]) if state["pruned"] else None

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        trainer.should_stop = trainer.should_stop or self.pruned is not None
