"""What happens around a step: checkpoints, the best weights, the metrics file, the progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import EarlyStopping

from recsys_lab.base.progress import Progress
from recsys_lab.data.batch import Batch
from recsys_lab.errors import UserError
from recsys_lab.train import checkpoint_folder
from recsys_lab.train.checkpoint_writer import Saving

#: Figures that the progress shows, by their name there.
SHOWN = {"AUC": "validation_auc", "NDCG@10": "validation_ndcg_10"}
#: A row of the metrics file: column -> number.
Log = Callable[[Mapping[str, Any]], None]


class Checkpoints(pl.Callback):
    """A checkpoint every `every_steps` steps, at the end of an epoch in which one fell due, and at the end. Keeps the last `keep`.

    One that falls due on an epoch's last step waits until the epoch has been evaluated. So a resumed run evaluates it neither twice nor
    never. Every `full_every`th is full; the others have the rows that were updated since. The last of a run is written while it waits.
    """

    def __init__(self, folder: Path, every_steps: int, keep: int = 2, full_every: int = 1):
        self.folder, self.every_steps, self.keep, self.full_every = folder, every_steps, keep, full_every
        self.due = False
        self._saved = -1
        self._base: Path | None = None
        self._since_base = 0

    def on_train_batch_end(self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self.every_steps and trainer.global_step % self.every_steps == 0:
            self.due = True
        if self.due and not self.ends_epoch(trainer, batch_idx):
            self.save(trainer)

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        if self.due:
            self.save(trainer)

    def on_train_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.save(trainer, last=True)

    def ends_epoch(self, trainer: pl.Trainer, batch_idx: int) -> bool:
        return batch_idx + 1 == trainer.num_training_batches or trainer.global_step == trainer.max_steps

    def save(self, trainer: pl.Trainer, last: bool = False) -> None:
        """A checkpoint of this step, unless there is one. Collective. The `last` of a process is on disk when this returns."""
        self.due, step = False, trainer.global_step
        if self._saved == step:
            return
        self._saved, folder = step, self.folder / f"step={step}"
        self._since_base += 1
        base = self._base if self._since_base < self.full_every else None
        is_base = base is None and self.full_every > 1
        if is_base:
            self._base, self._since_base = folder, 0
        how = Saving(background=not last, base=base, is_base=is_base, done=lambda: self._written(step))
        trainer.save_checkpoint(folder, storage_options=how)

    def _written(self, step: int) -> None:
        """Of rank 0, once the checkpoint of `step` is there."""
        checkpoint_folder.progressed(self.folder.parent, step)
        checkpoint_folder.remove_old(self.folder, self.keep)

    def state_dict(self) -> dict[str, Any]:
        return {"saved": self._saved}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._saved = int(state["saved"])


class BestWeights(pl.Callback):
    """Keeps a checkpoint of the best evaluation in `folder`/best. `higher` says which way `metric` is better.

    `margin`: by how much others must beat the weights that training begins with, where these were learnt elsewhere. Their log loss must
    then be no higher either: weights that order a few rows better and are too sure of it have been overfitted.
    """

    LOG_LOSS = "validation_log_loss"

    def __init__(self, folder: Path, metric: str, higher: bool, margin: float = 0.0):
        self.path, self.metric, self.higher, self.margin = folder / "best", metric, higher, margin
        self.best: float | None = None
        self.most_log_loss: float | None = None

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        metric = trainer.callback_metrics.get(self.metric)
        if trainer.sanity_checking or metric is None:
            return
        value = float(metric)
        if self.most_log_loss is not None and float(trainer.callback_metrics[self.LOG_LOSS]) > self.most_log_loss:
            return
        if self.best is None or (value > self.best if self.higher else value < self.best):
            self.best = value
            if self.margin and trainer.global_step == 0:
                self.best += self.margin if self.higher else -self.margin
                self.most_log_loss = float(trainer.callback_metrics[self.LOG_LOSS])
            trainer.save_checkpoint(self.path, storage_options=Saving(background=True))

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best, "most_log_loss": self.most_log_loss}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.best, self.most_log_loss = state["best"], state.get("most_log_loss")
        if self.best is not None and not (self.path / checkpoint_folder.TRAINER_FILE).is_file():
            raise UserError(
                "the best weights of this run are gone", where=self.path, remedy="put them back, or start again in another folder"
            )


class JudgeStart(pl.Callback):
    """Evaluates the weights that training begins with like those of an epoch. They can be the best, so a model ends no worse than them."""

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        if trainer.global_step:
            return
        trainer.validating = True
        trainer.fit_loop.epoch_loop.val_loop.run()
        trainer.training = True


class ResumableEarlyStopping(EarlyStopping):
    """Lightning's, but for one thing: that it has decided to stop survives a checkpoint.

    To be made with `check_on_train_epoch_end=False`: it must have judged an epoch before that epoch's checkpoint is written.
    """

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"best_score": float(self.best_score)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """A run that resumes may have more patience than before."""
        own = {"patience": self.patience, "stopped_epoch": 0} if state["patience"] != self.patience else {}
        super().load_state_dict(state | {"best_score": torch.tensor(state["best_score"])} | own)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.stopped_epoch or self.wait_count >= self.patience:
            trainer.should_stop = True


class TimeLimit(pl.Callback):
    """Ends training after `seconds` of it, evaluations included. Looks at the clock every `every_steps` steps: rank 0's decides.

    Where it ends an epoch before its last row, that part of it is evaluated like a whole one.
    """

    def __init__(self, seconds: float, every_steps: int):
        self.seconds, self.every_steps = seconds, every_steps
        self.reached = False
        self._before, self._since = 0.0, time.monotonic()

    @property
    def spent(self) -> float:
        return self._before + time.monotonic() - self._since

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self._since = time.monotonic()
        self._end(trainer)

    def on_train_batch_end(self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int) -> None:
        if trainer.global_step % self.every_steps == 0 and not self.reached:
            self.reached = trainer.strategy.broadcast(self.spent >= self.seconds)
            self._end(trainer)

    def _end(self, trainer: pl.Trainer) -> None:
        if self.reached:
            trainer.should_stop = True

    def state_dict(self) -> dict[str, Any]:
        return {"spent": self.spent, "reached": self.reached}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._before = float(state["spent"])
        self.reached = bool(state["reached"]) and self._before >= self.seconds  # a run that resumes may have more time than before


class MetricsLog(pl.Callback):
    """A row every `every_steps` steps and one an evaluation. The loss is the mean over ranks, so all ranks take part."""

    def __init__(self, every_steps: int, write_row: Log | None):
        self.every_steps, self.write_row = every_steps, write_row
        self._since, self._examples = time.perf_counter(), 0
        self.examples = 0

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self._since, self._examples = time.perf_counter(), 0

    def on_train_batch_end(self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Batch, batch_idx: int) -> None:
        self.examples += batch.global_valid
        self._examples += batch.global_valid
        step = trainer.global_step
        if step % self.every_steps and step != 1:
            return
        loss = trainer.strategy.reduce(outputs["loss"] if isinstance(outputs, Mapping) else outputs)
        now = time.perf_counter()
        rate, self._since, self._examples = self._examples / (now - self._since), now, 0
        row = {
            "step": step,
            "epoch": trainer.current_epoch,
            "examples": self.examples,
            "train_loss": float(loss),
            "learning_rate": trainer.optimizers[0].param_groups[0]["lr"],
            "examples_per_second": rate,
        }
        self._write(trainer, row, ("train_loss", "learning_rate", "examples_per_second"))

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        metrics = {k: float(v) for k, v in trainer.callback_metrics.items() if k.startswith("validation_")}
        row = {"step": trainer.global_step, "epoch": trainer.current_epoch, "examples": self.examples, **metrics}
        self._write(trainer, row, ())
        self._since, self._examples = time.perf_counter(), 0  # an evaluation is not training time

    def _write(self, trainer: pl.Trainer, row: dict[str, Any], to_logger: tuple[str, ...]) -> None:
        if self.write_row is not None:
            self.write_row(row)
        for logger in trainer.loggers:
            logger.log_metrics({key: row[key] for key in to_logger}, step=row["step"])

    def state_dict(self) -> dict[str, Any]:
        return {"examples": self.examples}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.examples = int(state["examples"])


class StepProgress(pl.Callback):
    """Steps done, with examples a second over all ranks and the last figures of the validation split."""

    def __init__(self) -> None:
        self._shown, self._since, self._examples = Progress(0, "training", "steps"), 0.0, 0

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self._shown, self._since, self._examples = Progress(trainer.estimated_stepping_batches, "training", "steps"), time.perf_counter(), 0

    def on_train_batch_end(self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Batch, batch_idx: int) -> None:
        self._examples += batch.global_valid
        rate = self._examples / max(time.perf_counter() - self._since, 1e-9)
        figures = {name: trainer.callback_metrics[key] for name, key in SHOWN.items() if key in trainer.callback_metrics}
        note = ", ".join((f"{rate:,.0f} examples/s", *(f"{name} {float(figure):.4f}" for name, figure in figures.items())))
        self._shown.advance_to(trainer.global_step, note=note)

    def on_train_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self._shown.stop()

    def on_exception(self, trainer: pl.Trainer, module: pl.LightningModule, exception: BaseException) -> None:
        self._shown.stop()
