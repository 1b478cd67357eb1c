"""Our executor under ShardedStrategy: it takes the whole model, brings both optimizers, and writes safetensors and JSON (checkpoint.py).

DistributedDataParallel sits below the LightningModule and averages the dense gradients in its backward pass. Table gradients stay sparse
and are applied in the optimizer's step (docs/decisions/sparse-optimizers.md).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import lightning.pytorch as pl
import torch
import torch.distributed as dist
from lightning.pytorch.strategies import ParallelStrategy
from lightning.pytorch.utilities.types import LRSchedulerConfig
from torch import Tensor
from torch.nn.utils import clip_grads_with_norm_
from torch.optim.lr_scheduler import LambdaLR

from recsys_lab.config.options import OptimizerOptions
from recsys_lab.data.batch import Batch
from recsys_lab.executor.sharded_model import ShardedModel, TableShard
from recsys_lab.executor.some_rows import SomeRows
from recsys_lab.executor.store.row_field import RowField
from recsys_lab.lightning.executor import Optimizers
from recsys_lab.plan import ShardingPlan
from recsys_lab.train import checkpoint as checkpoints
from recsys_lab.train import checkpoint_folder
from recsys_lab.train.checkpoint import Piece, Reader, whole
from recsys_lab.train.checkpoint_writer import Barrier, CheckpointWriter, Saved, Saving, on_any_rank, say_if_long
from recsys_lab.train.column_cuts import column_cuts
from recsys_lab.train.column_state import fill_merged
from recsys_lab.train.host_copy import HostCopy, bytes_of
from recsys_lab.train.memory import lacks_memory
from recsys_lab.train.optimizer import DenseAndTables, dense_optimizer, scheduler
from recsys_lab.train.stored_optimizer import make_state
from recsys_lab.units import human_bytes

#: (model, plan) -> the model sharded by the plan: an executor with everything else bound.
ShardModel = Callable[[torch.nn.Module, ShardingPlan], ShardedModel]
#: Under this key the checkpoint that Lightning passes on has its `Reader`.
READER = "reader"


@dataclass(frozen=True)
class ModelExecutor:
    """Shards `module.model` by `shard_model`, and trains it with `optimizer` over `total_steps`.

    Attributes:
        example: any batch of this rank. It is passed through the model once, before training.
        run: the run's fingerprint, by which its checkpoints are distinguished from those of others.
        data: the fingerprint of what it is trained on.
        whole: a checkpoint whose files have been looked at already.
    """

    shard_model: ShardModel
    optimizer: OptimizerOptions
    total_steps: int
    steps_per_epoch: int
    example: Batch
    run: str = ""
    data: str = ""
    whole: Path | None = None
    whole_model: ClassVar[bool] = True

    def shard(self, module: pl.LightningModule, plan: ShardingPlan, strategy: ParallelStrategy) -> TrainedModel:
        assert isinstance(module.model, torch.nn.Module)
        model = self.shard_model(module.model, plan)
        module.model = model.module
        settle_buckets(model, self.example.to(strategy.root_device))
        dense = dense_optimizer(model, self.optimizer.dense)
        both = DenseAndTables(dense, model.sparse_optimizer, self.optimizer.sparse.rate)
        schedule = scheduler(both, self.optimizer, self.total_steps, self.steps_per_epoch)
        return TrainedModel(
            model, both, [LRSchedulerConfig(schedule, interval="step")], strategy.root_device, self.run, self.data, self.whole
        )


@dataclass(frozen=True)
class TrainedModel:
    """The sharded model with its optimizers. `saved`: what each checkpoint cost."""

    model: ShardedModel
    optimizer: DenseAndTables
    schedules: list[LRSchedulerConfig] = field(default_factory=list)
    device: torch.device = torch.device("cpu")
    run: str = ""
    data: str = ""
    whole: Path | None = None
    writer: CheckpointWriter = field(default_factory=CheckpointWriter)
    host_copy: HostCopy = field(default_factory=HostCopy)
    saved: list[Saved] = field(default_factory=list)

    @property
    def optimizers(self) -> Optimizers:
        return [self.optimizer], self.schedules

    def clip_by_norm(self, parameters: Iterable[Tensor], max_norm: float) -> None:
        """Of the dense arch. Ranks may have different parts of it."""
        clip_grads_with_norm_(parameters, max_norm, self.model.dense_gradient_norm())

    def state_dict(self) -> dict[str, Any]:
        return {}  # `save` writes all weights

    def save(self, checkpoint: dict[str, Any], folder: Path, storage_options: Saving | None = None) -> None:
        """Of replicas one rank writes. Waits for the checkpoint that is under way."""
        began, how, rank = time.perf_counter(), storage_options or Saving(), dist.get_rank()
        self.writer.wait()
        trainer = json_of(checkpoint) | {"sparse_steps": self.model.sparse_optimizer.steps, "data": self.data}
        trainer["columns"] = column_cuts(self.model.plan)
        shards = self._own_shards()
        base_gone = how.base is not None and not how.base.is_dir()
        tracked, base_gone = on_any_rank(self.device, any(shard.updated is not None for shard in shards), base_gone)
        base = how.base if tracked and not base_gone else None
        pieces = self._pieces(shards if base is None else [shard.updated_rows() for shard in shards])
        saved = Saved(folder, how.background and self._fits(pieces), base is not None)
        self.saved.append(saved)
        if saved.background:
            self.host_copy.reserve(bytes_of(pieces), self.device)
            pieces = self.host_copy.of(pieces, self.device)
        if how.is_base:
            self.model.track_updates()

        def write(barrier: Barrier) -> None:
            saved.bytes = checkpoints.save(folder, pieces, trainer, rank, barrier, self.run, base, how.done)
            saved.write_s = time.perf_counter() - began
            say_if_long(saved)

        if saved.background:
            self.writer.start(write)
        else:
            write(dist.barrier)
        saved.stall_s = time.perf_counter() - began

    def prepare_copy(self) -> None:
        """Makes the room for copies beside the first steps. Collective."""
        self.writer.wait()  # the weights that training begins with may be the best so far
        pieces = self._pieces(self._own_shards())
        if self._fits(pieces):
            self.writer.start(lambda barrier: self.host_copy.reserve(bytes_of(pieces), self.device))

    def _fits(self, pieces: list[Piece]) -> bool:
        """Whether checkpoints can be copied. Rank 0 says why not. Collective."""
        in_files = any(isinstance(piece.tensor, RowField) for piece in pieces)
        size = 0 if in_files else bytes_of(pieces)
        any_in_files, any_lacks = on_any_rank(self.device, in_files, lacks_memory(size - self.host_copy.nbytes))
        if any_in_files:
            self.writer.say("rows of tables are in files")
        elif any_lacks:
            self.writer.say(f"their copy takes {human_bytes(size)} a rank, more than the host has left")
        return not any_in_files and not any_lacks

    def _own_shards(self) -> list[TableShard]:
        return [shard for shard in self.model.table_shards() if shard.writes]

    def _pieces(self, shards: list[TableShard]) -> list[Piece]:
        """All that this rank saves."""
        pieces = weight_pieces(self.model, shards, self.model.writes_dense)
        pieces += [piece for shard in shards for piece in _state_pieces(shard)] + self._dense_state(self.model.writes_dense)
        pieces = [replace(piece, updated=isinstance(piece.tensor, SomeRows)) for piece in pieces]
        pieces += [whole(f"rng.{dist.get_rank()}", torch.get_rng_state())]
        if self.device.type == "cuda":
            pieces += [whole(f"rng_cuda.{dist.get_rank()}", torch.cuda.get_rng_state())]
        return pieces

    def load(self, folder: Path, weights_only: bool | None = None) -> dict[str, Any]:
        if folder == self.whole:
            trainer = checkpoints.read_trainer(folder)
        else:
            trainer = checkpoints.checked_trainer(folder, self.run, dist.get_rank(), dist.get_world_size())
        checkpoints.check_data(folder, trainer, self.data)
        return trainer | {READER: Reader(folder)}

    @torch.no_grad()
    def load_weights(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        for piece in weight_pieces(self.model, self.model.table_shards()):
            checkpoint[READER].fill(piece)

    def load_optimizers(self, checkpoint: Mapping[str, Any]) -> None:
        reader = checkpoint[READER]
        for shard in self.model.table_shards():
            for piece in _state_pieces(shard):
                if piece.key in reader or len(piece.tensor.shape) > 1:
                    reader.fill(piece)
                else:
                    fill_merged(reader, piece, self.model.plan.by_table[shard.held.table][0].dim)
        for piece in self._dense_state():
            reader.fill(piece)
        self._set_rates(checkpoint)
        self.model.sparse_optimizer.steps = int(checkpoint["sparse_steps"])
        load_random_state(reader, dist.get_rank(), self.device)

    def remove(self, folder: Path) -> None:
        checkpoint_folder.remove(folder)

    def restore(self, folder: Path) -> None:
        """Sets the weights from another checkpoint of this run. Optimizers stay as they are."""
        self.load_weights(self.load(folder))

    def _dense_state(self, wanted: Callable[[str], bool] = lambda _: True) -> list[Piece]:
        """Of the dense optimizer. What is missing is made first."""
        dense, pieces = self.optimizer.dense, list[Piece]()
        make_state(dense)
        for name, parameter in self.model.dense_parameters():
            if wanted(name):
                pieces += [whole(f"dense.{name}.{key}", v) for key, v in dense.state[parameter].items() if isinstance(v, Tensor)]
        return pieces

    def _set_rates(self, checkpoint: Mapping[str, Any]) -> None:
        """Of the next step. torch's scheduler sets them after a step alone."""
        for config, saved in zip(self.schedules, checkpoint.get("lr_schedulers", [])):
            schedule = config.scheduler
            assert isinstance(schedule, LambdaLR)
            for group, rate, ratio in zip(schedule.optimizer.param_groups, schedule.base_lrs, schedule.lr_lambdas):
                group["lr"] = rate * ratio(saved["last_epoch"])


def weight_pieces(model: ShardedModel, shards: list[TableShard], wanted: Callable[[str], bool] = lambda _: True) -> list[Piece]:
    """Of these shards of tables, and of what is wanted of the dense arch, by name."""
    pieces = [Piece(f"table.{s.held.table}.weight", (s.held.row_start, s.held.col_start), s.weights, s.rows) for s in shards]
    pieces += [whole(f"dense.{name}", weights) for name, weights in model.dense_weights() if wanted(name)]
    return pieces + [whole(f"buffer.{name}", buffer) for name, buffer in model.buffers() if wanted(name)]


def settle_buckets(model: ShardedModel, example: Batch) -> None:
    """One pass that trains nothing.

    DistributedDataParallel lays its buckets out again after its first backward pass, and the order of a sum follows the layout. Without
    this, the step after a resume would differ in its last bits.
    """
    state = torch.get_rng_state()
    (model.module(example.values, example.sparse).sum() * 0.0).backward()
    model.sparse_optimizer.zero_grad()
    model.watch.lookups(reset=True)
    for _, parameter in model.dense_parameters():
        parameter.grad = None
    torch.set_rng_state(state)


def load_random_state(reader: Reader, rank: int, device: torch.device) -> None:
    """Of a rank that was there when the checkpoint was written, on such a device. Another one keeps what its seed gave it."""
    if f"rng.{rank}" in reader:
        state = torch.get_rng_state()
        reader.fill(whole(f"rng.{rank}", state))
        torch.set_rng_state(state)
    if device.type == "cuda" and f"rng_cuda.{rank}" in reader:
        state = torch.cuda.get_rng_state()
        reader.fill(whole(f"rng_cuda.{rank}", state))
        torch.cuda.set_rng_state(state)


def json_of(value: Any) -> Any:
    """Lightning's checkpoint as plain JSON: one-element tensors as numbers. Nothing else that is not plain is expected."""
    if isinstance(value, dict):
        return {str(k): json_of(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_of(v) for v in value]
    if isinstance(value, Tensor):
        return value.item()
    if isinstance(value, Path):
        return str(value)
    json.dumps(value)
    return value


def _state_pieces(shard: TableShard) -> list[Piece]:
    """Of the tables' optimizer, by the same extents as the weights."""
    offset = shard.held.row_start, shard.held.col_start
    return [Piece(_state_key(shard, name, state), offset[: state.dim()], state, shard.rows) for name, state in shard.state.items()]


def _state_key(shard: TableShard, name: str, state: Tensor | RowField | SomeRows) -> str:
    """Row-wise state belongs to a row of a shard: column shards keep one each."""
    held = shard.held
    columns = f".columns_{held.col_start}_{held.col_stop}" if state.dim() == 1 and shard.is_column_shard else ""
    return f"table.{held.table}.{name}{columns}"
