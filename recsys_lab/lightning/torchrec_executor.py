"""TorchRec executes the tables of a user's module; DistributedDataParallel has the dense arch below the module.

Optimizers are the user's own: they see this rank's shards among `self.parameters()`, with dense gradients.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import lightning.pytorch as pl
import numpy as np
import torch
import torch.distributed as dist
from lightning.pytorch.strategies import ParallelStrategy
from torch import Tensor, nn
from torchrec.distributed.embedding import EmbeddingCollectionSharder
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.types import ShardedModule, ShardingEnv, ShardingType
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys_lab.base.id_range import check_ids
from recsys_lab.errors import UserError
from recsys_lab.executor.torch_private import ShardedTensor, leave_to_others
from recsys_lab.interop.torchrec_plans import as_placed, collections_of
from recsys_lab.lightning import checkpoint as checkpoints
from recsys_lab.lightning.clip import clip_by_whole_norm
from recsys_lab.lightning.pieces import Layout, local_tensors, names_of_tables
from recsys_lab.lightning.refusals import check_module
from recsys_lab.lightning.rows import look_up_by_torch
from recsys_lab.plan import ShardingPlan

#: By sharded collection: the fingerprint of its plan.
_PLAN_OF: WeakKeyDictionary[nn.Module, str] = WeakKeyDictionary()


class BagSharder(EmbeddingBagCollectionSharder):
    """TorchRec's own list leaves out row blocks for the CPU, on which they work."""

    def sharding_types(self, compute_device_type: str) -> list[str]:
        return [kind.value for kind in ShardingType]


class SequenceSharder(EmbeddingCollectionSharder):
    """The same for sequences."""

    def sharding_types(self, compute_device_type: str) -> list[str]:
        return [kind.value for kind in ShardingType]


@dataclass(frozen=True)
class TorchRecExecutor:
    """Shards every EmbeddingBagCollection and EmbeddingCollection of a module."""

    whole_model: ClassVar[bool] = False

    def shard(self, module: pl.LightningModule, plan: ShardingPlan, strategy: ParallelStrategy) -> ShardedCollections:
        """Collections that an earlier call sharded stay."""
        if sharded := [part for part in module.modules() if isinstance(part, ShardedModule)]:
            if any(_PLAN_OF.get(part) != plan.fingerprint for part in sharded):
                remedy = "make a new module; a checkpoint brings its weights"
                raise UserError("the module is sharded by another plan", where=type(module).__name__, remedy=remedy)
        else:
            check_module(module)
            shard_collections(module, plan, strategy.root_device)
        leave_to_others(module, names_of_tables(module))
        return ShardedCollections(module, plan, strategy)


@dataclass(frozen=True)
class ShardedCollections:
    """A module with TorchRec's sharded collections. Each rank writes what it has with Lightning's CheckpointIO (checkpoint.py)."""

    module: pl.LightningModule
    plan: ShardingPlan
    strategy: ParallelStrategy
    optimizers: ClassVar[None] = None

    def clip_by_norm(self, parameters: Iterable[Tensor], max_norm: float) -> None:
        state = self.module.state_dict()
        tables = {name for name in names_of_tables(self.module) if isinstance(state[name], ShardedTensor)}
        table_ids = {id(parameter) for name, parameter in self.module.named_parameters() if name in tables}
        parameters = list(parameters)
        replicated = [one for one in parameters if id(one) not in table_ids]
        sharded = [one for one in parameters if id(one) in table_ids]
        clip_by_whole_norm(replicated, sharded, max_norm, self.strategy.root_device)

    def state_dict(self) -> dict[str, Any]:
        return {name: local_tensors(value) for name, value in self.module.state_dict().items()}

    def save(self, checkpoint: dict[str, Any], folder: Path, storage_options: Any = None) -> None:
        checkpoints.save(checkpoint, folder, self._layout(), self.strategy, storage_options)

    def load(self, folder: Path, weights_only: bool | None = None) -> dict[str, Any]:
        def read(path: Path) -> dict[str, Any]:
            return self.strategy.checkpoint_io.load_checkpoint(path, weights_only=weights_only)

        return checkpoints.load(folder, self._layout(), self.strategy.global_rank, read)

    def load_weights(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        state, weights = self.module.state_dict(), checkpoint["state_dict"]
        if strict and (differ := sorted(set(state) ^ set(weights))):
            what = "the checkpoint lacks a weight" if differ[0] in state else "the checkpoint has a weight more"
            raise UserError(what, where=type(self.module).__name__, given=differ[0], remedy="strict_loading = False loads the rest")
        with torch.no_grad():
            for name in state.keys() & weights.keys():
                values = weights[name] if isinstance(weights[name], list) else [weights[name]]
                for tensor, value in zip(local_tensors(state[name]), values, strict=True):
                    tensor.copy_(value)

    def load_optimizers(self, checkpoint: Mapping[str, Any]) -> None:
        """Lightning loads the state of the module's own."""

    def remove(self, folder: Path) -> None:
        checkpoints.remove(folder)

    def _layout(self) -> Layout:
        return Layout.of(self.module, self.strategy.optimizers, self.strategy.world_size, self.plan.fingerprint)


def shard_collections(module: nn.Module, plan: ShardingPlan, device: torch.device) -> None:
    """Puts TorchRec's sharded collections in the place of whole ones. Collective."""
    os.environ.setdefault("LOCAL_WORLD_SIZE", str(plan.ranks_per_host))  # TorchRec groups the ranks of a host by it
    torchrec_plan = as_placed(plan, module, device.type, kernel="dense")
    env = ShardingEnv.from_process_group(dist.group.WORLD)
    paths = [(path, part) for path, part in module.named_modules(remove_duplicate=False)]
    for path, collection in list(collections_of(module)):
        tables = {name: _of_first_rank(value, device) for name, value in collection.state_dict().items()}
        sharder: Any = BagSharder() if isinstance(collection, EmbeddingBagCollection) else SequenceSharder()
        sharded = sharder.shard(collection, torchrec_plan.get_plan_for_module(path), env, device, path)
        _check_one_shard_each(sharded, path)
        if device.type == "cpu":  # on a GPU a check would wait for it, and an assertion of the kernel ends the process
            look_up_by_torch(sharded)
            sharded.register_forward_pre_hook(partial(_check_ids, path, _table_rows(collection)))
        fill(sharded, tables)
        _have_rows(sharded)
        _PLAN_OF[sharded] = plan.fingerprint
        for full_name in (full_name for full_name, part in paths if part is collection):  # a module may have it under two names
            parent, _, name = full_name.rpartition(".")
            setattr(module.get_submodule(parent), name, sharded)


def _of_first_rank(value: Tensor, device: torch.device) -> Tensor | None:
    """As DistributedDataParallel begins: with the values of rank 0. None on the meta device: TorchRec draws them."""
    if value.is_meta:
        return None
    local = value.detach().to(device)
    dist.broadcast(local, 0)
    return local


def _table_rows(collection: EmbeddingBagCollection | EmbeddingCollection) -> dict[str, int]:
    """Of each feature of `collection`."""
    bags = isinstance(collection, EmbeddingBagCollection)
    configs = collection.embedding_bag_configs() if bags else collection.embedding_configs()
    return {feature: config.num_embeddings for config in configs for feature in config.feature_names}


def _check_ids(path: str, table_rows: Mapping[str, int], _: nn.Module, inputs: tuple[KeyedJaggedTensor, ...]) -> None:
    """A forward pre-hook: before ids leave for other ranks. UserError for an id outside its table."""
    features = inputs[0]
    check_ids(features.keys(), np.array(features.length_per_key()), features.values().numpy(), table_rows, path)


def fill(sharded: nn.Module, tables: Mapping[str, Tensor | None]) -> None:
    """Copies to each shard its part of the whole tables."""
    with torch.no_grad():
        for name, value in sharded.state_dict().items():
            if (table := tables[name]) is None:
                continue
            if not isinstance(value, ShardedTensor):
                value.copy_(table)
                continue
            for shard in value.local_shards():
                (row, col), (rows, cols) = shard.metadata.shard_offsets, shard.metadata.shard_sizes
                shard.tensor.copy_(table[row : row + rows, col : col + cols])


def _check_one_shard_each(sharded: nn.Module, path: str) -> None:
    """TorchRec shows an optimizer one shard of a table a rank: of others it would never learn."""
    for name, value in sharded.state_dict().items():
        if isinstance(value, ShardedTensor) and len(value.local_shards()) > 1:
            shards = f"{len(value.local_shards())} shards of {name}"
            remedy = "plan with wider columns, such as sharder.planner.column_shard_width"
            raise UserError("a rank holds several shards of one table", where=path, given=shards, remedy=remedy)


def _have_rows(sharded: nn.Module) -> None:
    """A table of which this rank has nothing is a parameter without rows, for optimizers that look at rows."""
    for part in sharded.modules():
        for name, parameter in list(part.named_parameters(recurse=False)):
            if not parameter.numel() and parameter.dim() == 1:
                setattr(part, name, nn.Parameter(parameter.new_empty(0, 1)))
