"""The Lightning strategy: process groups, shards, both optimizers, checkpoints. The module it trains knows of none of them."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
import torch.distributed as dist
from lightning.pytorch.plugins.environments import TorchElasticEnvironment
from lightning.pytorch.strategies import ParallelStrategy
from lightning.pytorch.utilities.types import LRSchedulerConfig
from torch import Tensor

from recsys_lab.config.options import OptimizerOptions
from recsys_lab.data.batch import Batch
from recsys_lab.executor import groups, recorded
from recsys_lab.executor.sharded_model import ShardedModel, TableShard
from recsys_lab.executor.store.row_field import RowField
from recsys_lab.train import checkpoint as checkpoints
from recsys_lab.train import checkpoint_folder
from recsys_lab.train.checkpoint import Piece, Reader, whole
from recsys_lab.train.clip import ClipTogether
from recsys_lab.train.meeting import meet
from recsys_lab.train.optimizer import DenseAndTables, dense_optimizer, scheduler
from recsys_lab.train.stored_optimizer import make_state

#: How long ranks wait at least for one another to start. They import for a while, and longer on a busy machine.
JOIN = timedelta(seconds=120)
#: model -> its sharded form: an executor with everything but the model bound.
Shard = Callable[[torch.nn.Module], ShardedModel]


class ShardedStrategy(ParallelStrategy):
    """Shards `module.model` by `shard`, trains it with `optimizer` over `total_steps`, and writes sharded checkpoints.

    `example` is any batch of this rank: it is passed through the model once, before training. `run`: the run's fingerprint, by which its
    checkpoints are distinguished from those of others. `data`: that of what it is trained on. `has_begun`: all that a checkpoint holds has
    been read.

    Automatic optimization: DistributedDataParallel sits below the module and averages the dense gradients in its backward pass.
    Table gradients stay sparse and are applied in the optimizer's step (docs/decisions/sparse-optimizers.md).
    """

    def __init__(
        self,
        shard: Shard,
        optimizer: OptimizerOptions,
        total_steps: int,
        steps_per_epoch: int,
        example: Batch,
        run: str = "",
        data: str = "",
    ):
        clipping = ClipTogether(lambda: self.sharded.dense_gradient_norm())
        super().__init__(cluster_environment=TorchElasticEnvironment(), precision_plugin=clipping)
        self._shard, self._options, self._example = shard, optimizer, example
        self._total_steps, self._steps_per_epoch = total_steps, steps_per_epoch
        self._run, self._data, self.has_begun = run, data, False
        self._reader: Reader | None = None
        self.checkpoint_s: list[float] = []  # of each one written
        self.sharded: ShardedModel

    # processes -------------------------------------------------------------------------------------------------------

    @property
    def root_device(self) -> torch.device:
        assert self.parallel_devices is not None
        return self.parallel_devices[self.local_rank]

    def setup_environment(self) -> None:
        super().setup_environment()
        start_process_group()

    def barrier(self, name: str | None = None) -> None:
        dist.barrier()

    def broadcast(self, obj: Any, src: int = 0) -> Any:
        box = [obj]
        dist.broadcast_object_list(box, src)
        return box[0]

    def reduce(self, tensor: Any, group: Any = None, reduce_op: Any = "mean") -> Any:
        if not isinstance(tensor, Tensor):
            return tensor
        total = tensor.detach().clone()
        dist.all_reduce(total)
        return total / self.world_size if str(reduce_op).lower() in ("mean", "avg", "reduceop.avg") else total

    # model and optimizers --------------------------------------------------------------------------------------------

    def setup(self, trainer: pl.Trainer) -> None:
        assert self.accelerator is not None and self.lightning_module is not None
        self.accelerator.setup(trainer)
        model = self.lightning_module.model
        assert isinstance(model, torch.nn.Module)
        self.sharded = self._shard(model)
        self.lightning_module.model = self.sharded.module
        self.model = self.lightning_module
        self._settle_buckets()
        dense = dense_optimizer(self.sharded, self._options.dense)
        both = DenseAndTables(dense, self.sharded.sparse_optimizer, self._options.sparse.rate)
        self.optimizers = [both]
        schedule = scheduler(both, self._options, self._total_steps, self._steps_per_epoch)
        self.lr_scheduler_configs = [LRSchedulerConfig(schedule, interval="step")]
        self.setup_precision_plugin()

    def _settle_buckets(self) -> None:
        """One pass that trains nothing.

        DistributedDataParallel lays its buckets out again after its first backward pass, and the order of a sum follows the layout. Without
        this, the step after a resume would differ in its last bits.
        """
        state = torch.get_rng_state()
        batch = self._example.to(self.root_device)
        (self.sharded.module(batch.dense, batch.sparse).sum() * 0.0).backward()
        self.sharded.sparse_optimizer.zero_grad()
        self.sharded.watch.lookups(reset=True)
        for _, parameter in self.sharded.dense_parameters():
            parameter.grad = None
        torch.set_rng_state(state)

    def on_train_start(self) -> None:
        self.has_begun = True

    def model_to_device(self) -> None:
        """The executor puts every shard where it belongs."""

    def teardown(self) -> None:
        """The model stays where it is: it is evaluated after training."""

    # checkpoints -----------------------------------------------------------------------------------------------------

    @property
    def restore_checkpoint_after_setup(self) -> bool:
        return True

    def lightning_module_state_dict(self) -> dict[str, Any]:
        return {}  # in our own files

    def optimizer_state(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        return {}  # in our own files

    def _weights(self, shards: list[TableShard], wanted: Callable[[str], bool] = lambda _: True) -> list[Piece]:
        """Of these shards of tables, and of what is wanted of the dense arch, by name."""
        pieces = [Piece(f"table.{s.held.table}.weight", (s.held.row_start, s.held.col_start), s.weights, s.rows) for s in shards]
        pieces += [whole(f"dense.{name}", weights) for name, weights in self.sharded.dense_weights() if wanted(name)]
        return pieces + [whole(f"buffer.{name}", buffer) for name, buffer in self.sharded.buffers() if wanted(name)]

    def _optimizer_pieces(self, shards: list[TableShard], wanted: Callable[[str], bool] = lambda _: True) -> list[Piece]:
        """The state of both optimizers, by the same extents as the weights. Missing dense state is made first."""
        pieces = []
        for shard in shards:
            for name, state in shard.state.items():
                place = (shard.held.row_start, shard.held.col_start)[: state.dim()]
                pieces.append(Piece(_state_key(shard, name, state), place, state, shard.rows))
        both = self.optimizers[0]
        assert isinstance(both, DenseAndTables)
        make_state(both.dense)
        for name, parameter in self.sharded.dense_parameters():
            if wanted(name):
                kept = both.dense.state[parameter].items()
                pieces += [whole(f"dense.{name}.{key}", value) for key, value in kept if isinstance(value, Tensor)]
        return pieces

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any = None) -> None:
        """Of replicas one rank writes. How long it took is kept in `checkpoint_s`."""
        began = time.perf_counter()
        trainer = json_of(checkpoint) | {"sparse_steps": self.sharded.sparse_optimizer.steps, "data": self._data}
        own = [shard for shard in self.sharded.table_shards() if shard.writes]
        wanted = self.sharded.writes_dense
        pieces = self._weights(own, wanted) + self._optimizer_pieces(own, wanted)
        pieces += [whole(f"rng.{self.global_rank}", torch.get_rng_state())]
        if self.root_device.type == "cuda":
            pieces += [whole(f"rng_cuda.{self.global_rank}", torch.cuda.get_rng_state())]
        checkpoints.save(Path(filepath), pieces, trainer, self.global_rank, self.barrier, self._run)
        self.checkpoint_s.append(time.perf_counter() - began)

    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> dict[str, Any]:
        trainer = checkpoints.checked_trainer(Path(checkpoint_path), self._run, self.global_rank, self.world_size)
        checkpoints.check_data(Path(checkpoint_path), trainer, self._data)
        self._reader = Reader(Path(checkpoint_path))
        return trainer

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        assert self._reader is not None
        with torch.no_grad():
            for piece in self._weights(self.sharded.table_shards()):
                self._reader.fill(piece)

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        assert self._reader is not None
        for piece in self._optimizer_pieces(self.sharded.table_shards()):
            self._reader.fill(piece)
        self.sharded.sparse_optimizer.steps = int(checkpoint["sparse_steps"])
        self._load_random_state()
        self._reader = None  # while files are mapped, they take their place on the disk

    def _load_random_state(self) -> None:
        """Of a rank that was there when the checkpoint was written, on such a device. Another one keeps what its seed gave it."""
        assert self._reader is not None
        if f"rng.{self.global_rank}" in self._reader:
            state = torch.get_rng_state()
            self._reader.fill(whole(f"rng.{self.global_rank}", state))
            torch.set_rng_state(state)
        if self.root_device.type == "cuda" and f"rng_cuda.{self.global_rank}" in self._reader:
            state = torch.cuda.get_rng_state()
            self._reader.fill(whole(f"rng_cuda.{self.global_rank}", state))
            torch.cuda.set_rng_state(state)

    def load_weights(self, folder: Path) -> None:
        """The weights of another checkpoint of this run. Optimizers stay as they are."""
        checkpoints.checked_trainer(folder, self._run, self.global_rank, self.world_size)
        self._reader = Reader(folder)
        self.load_model_state_dict({})
        self._reader = None

    def remove_checkpoint(self, filepath: Any) -> None:
        if self.is_global_zero:
            checkpoint_folder.remove(Path(filepath))


def start_process_group() -> None:
    """Joins the process group that the environment names (torchrun's variables), through the backend that records collectives."""
    if dist.is_initialized():
        return
    store, rank, world_size = _meeting_place(max(groups.timeout(), JOIN))
    store.set_timeout(groups.timeout())
    if "TORCHELASTIC_RUN_ID" in os.environ:
        store = meet(store, rank, world_size, max(groups.timeout(), JOIN))
    dist.init_process_group(recorded.register(), store=store, rank=rank, world_size=world_size, timeout=groups.timeout())


def wait_at_most(seconds: float) -> None:
    """How long collectives wait for the others from now on, also those of the process group that is there already."""
    os.environ[groups.TIMEOUT] = str(seconds)
    if dist.is_initialized():
        dist.distributed_c10d._set_pg_timeout(groups.timeout())


def _meeting_place(timeout: timedelta) -> tuple[dist.Store, int, int]:
    """The store that the environment names, this rank and the world's size. A rank that was given a listening socket serves it there."""
    listener = os.environ.pop("RECSYS_LAB_LISTENER", None)
    if listener is None:
        return next(dist.rendezvous("env://", timeout=timeout))
    address, world_size = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), int(os.environ["WORLD_SIZE"])
    return dist.TCPStore(*address, world_size, is_master=True, timeout=timeout, master_listen_fd=int(listener)), 0, world_size


def seed_rank(seed: int, rank: int) -> None:
    """Every generator of this process. Ranks draw apart (dropout). First weights do not come from here: see models/table_weights.py."""
    mixed = (seed * 1_000_003 + rank) % 2**32
    random.seed(mixed)
    np.random.seed(mixed)
    torch.manual_seed(mixed)


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


def _state_key(shard: TableShard, name: str, state: Tensor | RowField) -> str:
    """Row-wise state belongs to a row of a shard: column shards keep one each."""
    held = shard.held
    own = f".columns_{held.col_start}_{held.col_stop}" if state.dim() == 1 and shard.is_column_shard else ""
    return f"table.{held.table}.{name}{own}"
