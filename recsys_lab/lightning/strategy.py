"""The Lightning strategy for a module of the user's own.

It shards the module's embedding collections by a plan and leaves the rest as it is.

    from recsys_lab.lightning import ShardedStrategy

    made = recsys_lab.plan(torchrec_plans.experiment(module, "cluster=local", "sharder=neo_4d")).plan
    Trainer(strategy=ShardedStrategy(made), accelerator="cpu", devices=4).fit(module, data)

TorchRec executes the plan; DistributedDataParallel has the dense arch below the module. Optimizers are the user's own: they see this
rank's shards among `self.parameters()`, with dense gradients.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import lightning.pytorch as pl
import torch
import torch.distributed as dist
from lightning.pytorch.overrides.distributed import _sync_module_states
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor, nn
from torch.distributed._shard.sharded_tensor import ShardedTensor
from torch.nn.parallel import DistributedDataParallel
from torchrec.distributed.embedding import EmbeddingCollectionSharder
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.types import ShardedModule, ShardingEnv, ShardingType
from torchrec.modules.embedding_modules import EmbeddingBagCollection

from recsys_lab.errors import UserError
from recsys_lab.interop.torchrec_plans import as_placed, collections_of
from recsys_lab.lightning import refusals
from recsys_lab.lightning.clip import clip_by_whole_norm
from recsys_lab.lightning.pieces import Layout, local_tensors, moved, names_of_tables
from recsys_lab.lightning.rows import look_up_by_torch
from recsys_lab.plan import ShardingPlan
from recsys_lab.units import grid

#: Under this key a rank's file says where its shards stand.
LAYOUT = "recsys_lab_layout"
#: By sharded collection: the fingerprint of its plan.
_PLAN_OF: WeakKeyDictionary[nn.Module, str] = WeakKeyDictionary()


class _Bags(EmbeddingBagCollectionSharder):
    """TorchRec's own list leaves out row blocks for the CPU, on which they work."""

    def sharding_types(self, compute_device_type: str) -> list[str]:
        return [kind.value for kind in ShardingType]


class _Embeddings(EmbeddingCollectionSharder):
    def sharding_types(self, compute_device_type: str) -> list[str]:
        return [kind.value for kind in ShardingType]


class ShardedStrategy(DDPStrategy):
    """Shards every EmbeddingBagCollection and EmbeddingCollection of a LightningModule by `plan`, and trains it.

    A checkpoint is a folder under the name that ModelCheckpoint chose, with a file for each rank. It resumes on any number of ranks, and
    under any plan of the same tables. On as many ranks under the same plan it resumes with the same bits.

    Args:
        plan: of the module's tables, by name, with TorchRec's schemes. Its hosts are Lightning's `num_nodes`, its ranks `devices`.
        ddp: what DDPStrategy takes, such as `find_unused_parameters`.

    Raises:
        UserError: for what of Lightning cannot work with shards, with the reason; in `setup` also for a plan of other tables or ranks.
    """

    def __init__(self, plan: ShardingPlan, **ddp: Any):
        refusals.check_options(ddp)
        super().__init__(**ddp)
        self.plan = plan

    def setup(self, trainer: pl.Trainer) -> None:
        assert self.accelerator is not None and self.model is not None
        refusals.check_trainer(trainer)
        self.accelerator.setup(trainer)
        fits = trainer.state.fn == TrainerFn.FITTING
        if fits and self._layer_sync:
            self.model = self._layer_sync.apply(self.model)
        self._shard(self.model)
        self.model_to_device()
        if fits:
            self.configure_ddp()
            self.setup_optimizers(trainer)
        else:
            _sync_module_states(self.model)
        self.setup_precision_plugin()
        vars(self.precision_plugin)["clip_grad_by_norm"] = self._clip_by_norm  # Lightning's own knows this rank's gradients only

    def _shard(self, module: nn.Module) -> None:
        """Puts TorchRec's sharded collections in the place of whole ones. Those of an earlier call stay."""
        given = f"{grid(self.num_nodes, self.num_processes)}"
        if (self.plan.hosts, self.plan.ranks_per_host) != (self.num_nodes, self.num_processes):
            allowed = f"{grid(self.plan.hosts, self.plan.ranks_per_host)}"
            raise UserError("the plan is for other ranks", where="Trainer(num_nodes, devices)", given=given, allowed=allowed)
        if sharded := [part for part in module.modules() if isinstance(part, ShardedModule)]:
            if any(_PLAN_OF.get(part) != self.plan.fingerprint for part in sharded):
                remedy = "make a new module; a checkpoint brings its weights"
                raise UserError("the module is sharded by another plan", where=type(module).__name__, remedy=remedy)
        else:
            refusals.check_module(module)
            self._shard_collections(module)
        tables = names_of_tables(module)
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, list(tables))

    def _shard_collections(self, module: nn.Module) -> None:
        os.environ.setdefault("LOCAL_WORLD_SIZE", str(self.num_processes))  # TorchRec groups the ranks of a host by it
        torchrec_plan = as_placed(self.plan, module, self.root_device.type, kernel="dense")
        env = ShardingEnv.from_process_group(dist.group.WORLD)
        paths = [(path, part) for path, part in module.named_modules(remove_duplicate=False)]
        for path, collection in list(collections_of(module)):
            tables = {name: self._of_first_rank(value) for name, value in collection.state_dict().items()}
            sharder: Any = _Bags() if isinstance(collection, EmbeddingBagCollection) else _Embeddings()
            sharded = sharder.shard(collection, torchrec_plan.get_plan_for_module(path), env, self.root_device, path)
            _check_one_shard_each(sharded, path)
            if self.root_device.type == "cpu":
                look_up_by_torch(sharded)
            fill(sharded, tables)
            _have_rows(sharded)
            _PLAN_OF[sharded] = self.plan.fingerprint
            for full_name in (full_name for full_name, part in paths if part is collection):  # a module may have it under two names
                parent, _, name = full_name.rpartition(".")
                setattr(module.get_submodule(parent), name, sharded)

    def _of_first_rank(self, value: Tensor) -> Tensor | None:
        """As DistributedDataParallel begins: with the values of rank 0. None on the meta device: TorchRec draws them."""
        if value.is_meta:
            return None
        local = value.detach().to(self.root_device)
        dist.broadcast(local, 0)
        return local

    def configure_ddp(self) -> None:
        super().configure_ddp()
        assert isinstance(self.model, DistributedDataParallel) and self.lightning_module is not None
        if not self._ddp_kwargs.get("static_graph"):  # it takes its first pass for every later one
            settle_buckets(self.model, self.lightning_module)

    # checkpoints -----------------------------------------------------------------------------------------------------

    @property
    def restore_checkpoint_after_setup(self) -> bool:
        return True

    def lightning_module_state_dict(self) -> dict[str, Any]:
        assert self.lightning_module is not None
        return {name: local_tensors(value) for name, value in self.lightning_module.state_dict().items()}

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        assert self.lightning_module is not None
        state, weights = self.lightning_module.state_dict(), checkpoint["state_dict"]
        if strict and (differ := sorted(set(state) ^ set(weights))):
            what = "the checkpoint lacks a weight" if differ[0] in state else "the checkpoint has a weight more"
            raise UserError(
                what, where=type(self.lightning_module).__name__, given=differ[0], remedy="strict_loading = False loads the rest"
            )
        with torch.no_grad():
            for name in state.keys() & weights.keys():
                values = weights[name] if isinstance(weights[name], list) else [weights[name]]
                for tensor, value in zip(local_tensors(state[name]), values, strict=True):
                    tensor.copy_(value)

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any = None) -> None:
        """Every rank writes its file. The folder has its name when all are there."""
        filepath = self.broadcast(str(filepath))  # a monitored figure in its name can differ between ranks
        final, partial = Path(filepath), Path(f"{filepath}.partial")
        if self.is_global_zero:
            for path in (final, partial):
                _remove(path)
            partial.mkdir(parents=True)
        self.barrier()
        with_layout = checkpoint | {LAYOUT: self._layout().plain()}
        self.checkpoint_io.save_checkpoint(with_layout, partial / _file_of(self.global_rank, self.world_size), storage_options)
        self.barrier()
        if self.is_global_zero:
            partial.rename(final)
        self.barrier()

    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> dict[str, Any]:
        folder = Path(self.broadcast(str(checkpoint_path)))

        def read(path: Path) -> dict[str, Any]:
            return self.checkpoint_io.load_checkpoint(path, weights_only=weights_only)

        own = self._layout()
        path = folder / _file_of(self.global_rank, self.world_size)
        if path.is_file():
            layout, part = _read(path, read)
            if layout.plan == own.plan:
                return part
        return moved(lambda: _files_of(folder, read), own, folder)

    def _layout(self) -> Layout:
        assert self.lightning_module is not None
        return Layout.of(self.lightning_module, self.optimizers, self.world_size, self.plan.fingerprint)

    def remove_checkpoint(self, filepath: Any) -> None:
        if self.is_global_zero:
            _remove(Path(filepath))

    # what Lightning leaves to a strategy ---------------------------------------------------------------------------

    def _clip_by_norm(self, optimizer: torch.optim.Optimizer, clip_val: float) -> None:
        assert self.lightning_module is not None
        state = self.lightning_module.state_dict()
        tables = {name for name in names_of_tables(self.lightning_module) if isinstance(state[name], ShardedTensor)}
        table_ids = {id(parameter) for name, parameter in self.lightning_module.named_parameters() if name in tables}
        parameters = list(self.precision_plugin.main_params(optimizer))
        clip_by_whole_norm(
            [one for one in parameters if id(one) not in table_ids],
            [one for one in parameters if id(one) in table_ids],
            clip_val,
            self.root_device,
        )

    def on_train_start(self) -> None:
        self._check_batches("num_training_batches", "train")

    def on_validation_start(self) -> None:
        self._check_batches("num_sanity_val_batches" if self._trainer.sanity_checking else "num_val_batches", "val")

    def on_test_start(self) -> None:
        self._check_batches("num_test_batches", "test")

    def on_predict_start(self) -> None:
        self._check_batches("num_predict_batches", "predict")

    def _check_batches(self, attribute: str, where: str) -> None:
        refusals.check_batches(getattr(self._trainer, attribute), where, self.root_device)

    @property
    def _trainer(self) -> pl.Trainer:
        assert self.lightning_module is not None
        return self.lightning_module.trainer


def whole_weights(checkpoint: Path | str) -> dict[str, Tensor]:
    """The weights of a checkpoint of ShardedStrategy, with whole tables: for `load_state_dict` of the module that is not sharded.

    Args:
        checkpoint: the folder that ModelCheckpoint wrote.

    Returns:
        A state dict on the CPU. All tables must fit into memory.

    Raises:
        UserError: for a folder that is no checkpoint of ShardedStrategy, or that lacks a rank's file.
    """
    folder = Path(checkpoint)

    def read(path: Path) -> dict[str, Any]:
        return torch.load(path, map_location="cpu", weights_only=True)

    layout, _ = next(_files_of(folder, read))
    weights = moved(lambda: _files_of(folder, read, ("state_dict",)), layout.whole(), folder)["state_dict"]
    return {name: value[0] if isinstance(value, list) else value for name, value in weights.items()}


def _file_of(rank: int, world_size: int) -> str:
    return f"rank_{rank}_of_{world_size}.ckpt"


def _files_of(
    folder: Path, read: Callable[[Path], dict[str, Any]], keys: tuple[str, ...] | None = None
) -> Iterator[tuple[Layout, dict[str, Any]]]:
    """The files of all ranks that wrote `folder`, one at a time; of each the entries `keys`, or all."""
    first = sorted(folder.glob("rank_0_of_*.ckpt"))
    if len(first) != 1:
        given = "a folder without it" if folder.is_dir() else "a file" if folder.exists() else "nothing"
        raise UserError("no checkpoint of a ShardedStrategy", where=folder, given=given, allowed="a folder with rank_0_of_N.ckpt")
    world_size = int(first[0].stem.rpartition("_")[2])
    for rank in range(world_size):
        layout, part = _read(folder / _file_of(rank, world_size), read)
        yield layout, part if keys is None else {key: part[key] for key in keys}


def _read(path: Path, read: Callable[[Path], dict[str, Any]]) -> tuple[Layout, dict[str, Any]]:
    if not path.is_file():
        raise UserError("a rank's file is missing", where=path, remedy="copy the whole folder of the checkpoint")
    part = dict(read(path))
    if (layout := part.pop(LAYOUT, None)) is None:
        raise UserError("it does not say where its shards stand", where=path, remedy="resume with the version that wrote it")
    return Layout(**layout), part


def settle_buckets(parallel: DistributedDataParallel, module: nn.Module) -> None:
    """One backward pass of zeros through every parameter of `parallel`, which wraps `module`.

    DistributedDataParallel lays its buckets out again after its first backward pass, and the order of a sum follows the layout. Without
    this pass, the step after a resume differs in its last bits.
    """
    averaged = [value for name, value in module.named_parameters() if name not in parallel.parameters_to_ignore and value.requires_grad]
    module.forward = lambda: sum((value * 0.0).sum() for value in averaged)
    try:
        parallel().backward()
    finally:
        del module.forward
    for value in averaged:
        value.grad = None


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
            shards, remedy = (
                f"{len(value.local_shards())} shards of {name}",
                "plan with wider columns, such as sharder.planner.column_shard_width",
            )
            raise UserError("a rank holds several shards of one table", where=path, given=shards, remedy=remedy)


def _have_rows(sharded: nn.Module) -> None:
    """A table of which this rank has nothing is a parameter without rows, for optimizers that look at rows."""
    for part in sharded.modules():
        for name, parameter in list(part.named_parameters(recurse=False)):
            if not parameter.numel() and parameter.dim() == 1:
                setattr(part, name, nn.Parameter(parameter.new_empty(0, 1)))


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


__all__ = ["ShardedStrategy", "whole_weights"]
