"""A model begins with the weights of a checkpoint, by name and shape. What is taken and what is not is listed."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
import torch.distributed as dist

from recsys_lab.errors import UserError
from recsys_lab.executor.sharded_model import ShardedModel
from recsys_lab.record.started_from import StartedFrom, shortened
from recsys_lab.train import manifest
from recsys_lab.train.checkpoint import Piece, Reader, checked_trainer
from recsys_lab.train.exported import is_export, reader_of
from recsys_lab.train.manifest import broken
from recsys_lab.train.model_executor import TrainedModel, weight_pieces

#: In names of tensors of towers.
TOWER_MODULES = "tower_modules."


class StartFrom(pl.Callback):
    """Training begins with the weights of the checkpoint `folder`; None: with those that it has."""

    def __init__(self, folder: Path | None):
        self.folder = folder
        self.started: StartedFrom | None = None

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        if self.folder is None or self.started is not None:  # a run that resumes has begun so already
            return
        trained: TrainedModel = trainer.strategy.sharded  # type: ignore[attr-defined]  # ShardedStrategy's
        self.started = take_weights(trained.model, self.folder)
        if trainer.is_global_zero:
            print(f"weights: {self.started.sentence()}", flush=True)

    def state_dict(self) -> dict[str, Any]:
        return {"started": None if self.started is None else asdict(self.started)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.started = StartedFrom(**state["started"]) if state["started"] else None


@torch.no_grad()
def take_weights(model: ShardedModel, folder: Path) -> StartedFrom:
    """Sets every weight of `model` that the checkpoint or export in `folder` has by name and shape. Collective.

    A table may have more rows than there: those stay as they are. Raises UserError for a checkpoint that is broken.
    """
    reader, said = checked_reader(folder, dist.get_rank(), dist.get_world_size())
    whole_tables = {f"table.{table.name}.weight": (table.rows, table.dim) for table in model.plan.tables}
    own: dict[str, tuple[bool, str]] = {}
    for piece in weight_pieces(model, model.table_shards()):
        own[piece.key] = _taken(reader, piece, whole_tables.get(piece.key) or tuple(piece.tensor.shape))
    everyone: list[dict[str, tuple[bool, str]]] = [{}] * dist.get_world_size()
    dist.all_gather_object(everyone, own)
    all_own = {key: taken for of_rank in everyone for key, taken in of_rank.items()}
    return StartedFrom(
        folder=f"{folder}{said}",
        taken=sum(taken for taken, _ in all_own.values()),
        partly={key: why for key, (taken, why) in sorted(all_own.items()) if taken and why},
        not_taken={key: why for key, (taken, why) in sorted(all_own.items()) if not taken},
        unused=sorted(key for key in reader.keys() if _is_weight(key, reader) and key not in all_own),
    )


def checked_reader(folder: Path, rank: int, world_size: int) -> tuple[Reader, str]:
    """Of files that are as they were written, this rank's share of them, and what is to be said of their numbers. Raises UserError."""
    if not is_export(folder):
        checked_trainer(folder, "", rank, world_size)
        return Reader(folder), ""
    manifest.check(folder, "", {"manifest": manifest.VERSION}, rank, world_size)
    reader, format = reader_of(folder)
    return reader, f" (an export, tables in {format})"


def check_all_taken(started: StartedFrom) -> None:
    """UserError where the model is another than the one that was trained: its predictions would not be that one's."""
    if started.differing:
        what, remedy = "the model is not the one that was trained", "leave out what makes another: other towers, tables or layers"
        if any(TOWER_MODULES in key for key in (*started.not_taken, *started.unused)):
            what = "tower modules are part of the model, and this one has others than were trained"
            remedy = "keep the run's sharder, and as many towers: a cluster with as many hosts; launcher.hosts may differ then"
        raise UserError(what, where=started.folder, given="; ".join(shortened(started.differing)), remedy=remedy)


def _taken(reader: Reader, piece: Piece, shape: tuple[int, ...]) -> tuple[bool, str]:
    """Whether it is taken, and what is to be said of it. `shape`: of the whole tensor."""
    if piece.key not in reader:
        return False, "not in the checkpoint"
    saved = reader.shape(piece.key)
    rows_are_more = piece.key.startswith("table.") and saved[1:] == shape[1:] and saved[0] < shape[0]
    if saved != shape and not rows_are_more:
        return False, f"{_by(saved)} in the checkpoint, {_by(shape)} here"
    missing, new = reader.copy(piece), 0
    if rows_are_more:
        count, columns = piece.tensor.shape
        ids = np.arange(piece.offset[0], piece.offset[0] + count) if piece.rows is None else piece.rows
        new = int((ids >= saved[0]).sum()) * columns
    if missing != new:
        raise broken(reader.folder, f"{missing - new} elements of {piece.key} are missing")
    return True, f"{shape[0] - saved[0]} of {shape[0]} rows are new" if rows_are_more else ""


def _is_weight(key: str, reader: Reader) -> bool:
    """Neither an optimizer's state nor a generator's."""
    if key.startswith("table."):
        return key.endswith(".weight")
    return key.startswith(("dense.", "buffer.")) and key.rpartition(".")[0] not in reader


def _by(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "a number"
