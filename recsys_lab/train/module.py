"""What is trained, under Lightning. Knows nothing of ranks, shards or optimizers."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
from torch import Tensor, nn

from recsys_lab.data.batch import Batch
from recsys_lab.train.evaluate import Evaluation
from recsys_lab.train.objective import Loss


class ClickModule(pl.LightningModule):
    """A model under Lightning: `model(dense [B, K] | None, sparse)` goes into `loss`. `evaluation` judges the validation split, which is
    the one that Lightning is given the loader of; None: it cannot be judged."""

    def __init__(self, model: nn.Module, loss: Loss, evaluation: Evaluation | None):
        super().__init__()
        self.model, self.loss, self.evaluation = model, loss, evaluation

    def forward(self, batch: Batch) -> Tensor:
        return self.model(batch.values, batch.sparse)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        return self.loss(self(batch), batch, self.trainer.world_size)

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        if self.evaluation is not None:
            self.evaluation.add(self.model, batch, batch_idx)

    def on_validation_epoch_end(self) -> None:
        if self.evaluation is not None:
            self.log_dict(loggable(self.evaluation.result(self.model).quality), prog_bar=False)

    def configure_optimizers(self) -> Any:
        """The strategy owns the optimizers: which parameters there are depends on the shards."""
        return None


def loggable(figures: dict[str, Any]) -> dict[str, float]:
    """The validation metrics by the names that logs have. How many rows or users they are of is no metric."""
    sizes = ("examples", "users")
    return {f"validation_{name}": float(value) for name, value in figures.items() if name not in sizes and value is not None}
