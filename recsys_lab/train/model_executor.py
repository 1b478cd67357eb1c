"""Our executor under ShardedStrategy: it takes the whole model, brings both optimizers, and writes safetensors and JSON (checkpoint.py).

DistributedDataParallel sits below the LightningModule and averages the dense gradients in its backward pass. Table gradients stay sparse
and are applied in the optimizer's step (docs/decisions/sparse-optimizers.md).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
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
from recsys_lab.executor.store.row_field import RowField
from recsys_lab.lightning.executor import Optimizers
from recsys_lab.plan import ShardingPlan
from recsys_lab.train import checkpoint as checkpoints
from recsys_lab.train import checkpoint_folder
from recsys_lab.train.checkpoint import Piece, Reader, whole
from recsys_lab.train.column_cuts import column_cuts
from recsys_lab.train.column_state import fill_merged
from recsys_lab.train.optimizer import DenseAndTables, dense_optimizer, scheduler
from recsys_lab.train.stored_optimizer import make_state

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
    """The sharded model with its optimizers. `checkpoint_s`: how long each checkpoint took to write."""

    model: ShardedModel
    optimizer: DenseAndTables
    schedules: list[LRSchedulerConfig] = field(default_factory=list)
    device: torch.device = torch.device("cpu")
    run: str = ""
    data: str = ""
    whole: Path | None = None
    checkpoint_s: list[float] = field(default_factory=list)

    @property
    def optimizers(self) -> Optimizers:
        return [self.optimizer], self.schedules

    def clip_by_norm(self, parameters: Iterable[Tensor], max_norm: float) -> None:
        """Of the dense arch. Ranks may have different parts of it."""
        clip_grads_with_norm_(parameters, max_norm, self.model.dense_gradient_norm())

    def state_dict(self) -> dict[str, Any]:
        return {}  # `save` writes all weights

    def save(self, checkpoint: dict[str, Any], folder: Path, storage_options: Any = None) -> None:
        """Of replicas one rank writes."""
        began, rank = time.perf_counter(), dist.get_rank()
        trainer = json_of(checkpoint) | {"sparse_steps": self.model.sparse_optimizer.steps, "data": self.data}
        trainer["columns"] = column_cuts(self.model.plan)
        shards = [shard for shard in self.model.table_shards() if shard.writes]
        pieces = weight_pieces(self.model, shards, self.model.writes_dense)
        pieces += [piece for shard in shards for piece in _state_pieces(shard)] + self._dense_state(self.model.writes_dense)
        pieces += [whole(f"rng.{rank}", torch.get_rng_state())]
        if self.device.type == "cuda":
            pieces += [whole(f"rng_cuda.{rank}", torch.cuda.get_rng_state())]
        checkpoints.save(folder, pieces, trainer, rank, dist.barrier, self.run)
        self.checkpoint_s.append(time.perf_counter() - began)

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
    (model.module(example.dense, example.sparse).sum() * 0.0).backward()
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


def _state_key(shard: TableShard, name: str, state: Tensor | RowField) -> str:
    """Row-wise state belongs to a row of a shard: column shards keep one each."""
    held = shard.held
    columns = f".columns_{held.col_start}_{held.col_stop}" if state.dim() == 1 and shard.is_column_shard else ""
    return f"table.{held.table}.{name}{columns}"
