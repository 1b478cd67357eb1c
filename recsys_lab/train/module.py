"""What is trained and how its loss is made. Knows nothing of ranks, shards or optimizers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from recsys_lab.data.batch import Batch

#: (logits, labels) of every valid row of a split, in any order, from what this process saw -> metrics of the whole split.
Judge = Callable[[Tensor, Tensor], dict[str, float]]


def click_loss(logits: Tensor, batch: Batch, parts: int) -> Tensor:
    """Binary cross entropy of logits [B], as this process's share of `parts`.

    Padding rows count nothing, and the mean over `parts` processes is the exact mean over the global batch.
    """
    per_row = binary_cross_entropy_with_logits(logits[: batch.valid], batch.labels[: batch.valid], reduction="sum")
    if batch.valid < len(batch.labels):
        per_row = per_row + 0.0 * logits[batch.valid :].sum()  # keeps every rank's graph whole, so that all take part in the exchange
    return per_row * (parts / batch.global_valid)


class ClickModule(pl.LightningModule):
    """A click model under Lightning. `model(dense [B, K] | None, sparse) -> logits [B]`; `judge` turns predictions into metrics."""

    def __init__(self, model: nn.Module, judge: Judge):
        super().__init__()
        self.model = model
        self.judge = judge
        self._seen: list[tuple[Tensor, Tensor]] = []

    def forward(self, batch: Batch) -> Tensor:
        return self.model(batch.dense, batch.sparse)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        return click_loss(self(batch), batch, self.trainer.world_size)

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self._seen.append((self(batch)[: batch.valid].float(), batch.labels[: batch.valid]))

    def on_validation_epoch_end(self) -> None:
        logits, labels = (torch.cat(part) for part in zip(*self._seen))
        self._seen.clear()
        metrics = self.judge(logits, labels)
        self.log_dict({f"validation_{name}": value for name, value in metrics.items() if name != "examples"}, prog_bar=False)

    def configure_optimizers(self) -> Any:
        """The strategy owns the optimizers: which parameters there are depends on the shards."""
        return None
