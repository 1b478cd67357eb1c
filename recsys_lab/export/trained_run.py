"""What a run trained: its tables, its dense arch with the weights of its best or newest checkpoint, and where the rest can be read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from recsys_lab.config.composition import code_of
from recsys_lab.config.folders import VOCABULARY, stored
from recsys_lab.errors import UserError
from recsys_lab.experiment import Experiment, resolve
from recsys_lab.models.click_model import ClickModel
from recsys_lab.plan import ShardingPlan
from recsys_lab.record.run_folder import Run as RunFolder
from recsys_lab.record.run_folder import read_run
from recsys_lab.train.checkpoint import Reader, checked_trainer, whole
from recsys_lab.train.checkpoint_folder import trained
from recsys_lab.train.manifest import broken

TABLES = "embeddings"


@dataclass(frozen=True)
class TrainedRun:
    """A run that has ended.

    Attributes:
        record: what it left beside its weights.
        experiment: its config.
        plan: by which it trained here. It has the tables as they were trained.
        checkpoint: the folder of the weights.
        reader: of all tensors in it.
    """

    record: RunFolder
    experiment: Experiment
    plan: ShardingPlan
    checkpoint: Path
    reader: Reader

    @staticmethod
    def of(folder: Path, words: Sequence[str] = ()) -> TrainedRun:
        """`words`: say where the config's own code is from. Raises UserError where the run left no weights, or these are broken."""
        record = read_run(folder)
        experiment = resolve(stored(folder, code_of(words)))
        plan = record.plan_here or record.plan
        if plan is None or not experiment.trains:
            raise UserError(
                "no model was trained here", where=folder, given=f"mode={experiment.mode}", remedy="name a run that has trained"
            )
        checkpoint = trained(folder)
        checked_trainer(checkpoint)
        return TrainedRun(record, experiment, plan, checkpoint, Reader(checkpoint))

    @property
    def vocabulary(self) -> Path | None:
        """The folder with what the run knows of raw values; None of data that have none, or of an earlier version."""
        folder = self.record.folder / VOCABULARY
        return folder if folder.is_dir() else None

    def dense_arch(self, dense_width: int) -> ClickModel:
        """The model without its tables, on the CPU in FP32, for K = `dense_width`. Raises UserError where the checkpoint is another's."""
        towers = self.experiment.sharder.modules(self.plan.towers)
        chosen = {key.removeprefix("model."): v for key, v in (self.record.result.get("chosen") or {}).items() if key.startswith("model.")}
        completed = bool(chosen)
        choice = self.experiment.model.able_to_begin() if completed else self.experiment.model
        choice = choice.with_keys({key: value for key, value in chosen.items() if key in choice.keys})
        model = choice.build(self.plan.tables, dense_width, torch.device("meta"), towers)
        setattr(model, TABLES, nn.Module())
        model = model.to_empty(device="cpu").float()
        own = {f"dense.{name}": weight.data for name, weight in model.named_parameters()}
        own |= {f"buffer.{name}": buffer for name, buffer in model.named_buffers()}
        for key, tensor in own.items():
            if key not in self.reader or self.reader.shape(key) != tuple(tensor.shape):
                has = self.reader.shape(key) if key in self.reader else "no such tensor"
                raise broken(self.checkpoint, f"{key} is {has}, {tuple(tensor.shape)} in the model of its config")
            self.reader.fill(whole(key, tensor))
        return model.requires_grad_(False).eval()
