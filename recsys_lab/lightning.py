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
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
import torch.distributed as dist
from lightning.pytorch.callbacks import StochasticWeightAveraging
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
from recsys_lab.plan import ShardingPlan
from recsys_lab.torchrec_plans import collections_of, to_torchrec

PRECISIONS = ("32-true", "bf16-mixed")
#: Under this key a checkpoint says for which plan it is.
PLAN_KEY = "recsys_lab_plan"


class _Bags(EmbeddingBagCollectionSharder):
    """TorchRec's own list leaves out row blocks for the CPU, on which they work."""

    def sharding_types(self, compute_device_type: str) -> list[str]:
        return [kind.value for kind in ShardingType]


class _Embeddings(EmbeddingCollectionSharder):
    def sharding_types(self, compute_device_type: str) -> list[str]:
        return [kind.value for kind in ShardingType]


class ShardedStrategy(DDPStrategy):
    """Shards every EmbeddingBagCollection and EmbeddingCollection of a LightningModule by `plan`, and trains it.

    A checkpoint is a folder under the name that ModelCheckpoint chose, with a file for each rank. It resumes on as many ranks under the
    same plan.

    Args:
        plan: of the module's tables, by name, with TorchRec's schemes. Its hosts are Lightning's `num_nodes`, its ranks `devices`.
        ddp: what DistributedDataParallel takes, such as `find_unused_parameters`.

    Raises:
        UserError: in `setup`, for a plan of other tables or ranks, and for what of Lightning cannot work with shards, with the reason.
    """

    def __init__(self, plan: ShardingPlan, **ddp: Any):
        super().__init__(**ddp)
        self.plan = plan

    def setup(self, trainer: pl.Trainer) -> None:
        assert self.accelerator is not None and self.model is not None
        check_trainer(trainer)
        self.accelerator.setup(trainer)
        self._shard(self.model)
        self.model_to_device()
        if trainer.state.fn == TrainerFn.FITTING:
            self.configure_ddp()
            self.setup_optimizers(trainer)
        self.setup_precision_plugin()

    def _shard(self, module: nn.Module) -> None:
        """Puts TorchRec's sharded collections in the place of whole ones. Those of an earlier call stay."""
        if any(isinstance(part, ShardedModule) for part in module.modules()):
            return
        given = f"{self.num_nodes} hosts of {self.num_processes} ranks"
        if (self.plan.hosts, self.plan.ranks_per_host) != (self.num_nodes, self.num_processes):
            allowed = f"{self.plan.hosts} hosts of {self.plan.ranks_per_host} ranks"
            raise UserError("the plan is for other ranks", where="Trainer(num_nodes, devices)", given=given, allowed=allowed)
        os.environ.setdefault("LOCAL_WORLD_SIZE", str(self.num_processes))  # TorchRec groups the ranks of a host by it
        placed = to_torchrec(self.plan, module, self.root_device.type, kernel="dense")
        env = ShardingEnv.from_process_group(dist.group.WORLD)
        for path, collection in collections_of(module):
            whole = {name: self._of_first_rank(value) for name, value in collection.state_dict().items()}
            sharder: Any = _Bags() if isinstance(collection, EmbeddingBagCollection) else _Embeddings()
            sharded = sharder.shard(collection, placed.get_plan_for_module(path), env, self.root_device, path)
            _check_one_shard_each(sharded, path)
            fill(sharded, whole)
            _have_rows(sharded)
            parent, _, name = path.rpartition(".")
            setattr(module.get_submodule(parent), name, sharded)

    def _of_first_rank(self, value: Tensor) -> Tensor | None:
        """As DistributedDataParallel begins: with the values of rank 0. None on the meta device: TorchRec draws them."""
        if value.is_meta:
            return None
        here = value.detach().to(self.root_device)
        dist.broadcast(here, 0)
        return here

    def _setup_model(self, model: nn.Module) -> DistributedDataParallel:
        sharded = [name for name, part in model.named_modules() if isinstance(part, ShardedModule)]
        apart = [name for name, _ in (*model.named_parameters(), *model.named_buffers()) if any(name.startswith(f"{s}.") for s in sharded)]
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, apart)
        return super()._setup_model(model)

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
        return {name: held(value) for name, value in self.lightning_module.state_dict().items()}

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        assert self.lightning_module is not None
        with torch.no_grad():
            for name, value in self.lightning_module.state_dict().items():
                for own, kept in zip(held(value), checkpoint["state_dict"][name], strict=True):
                    own.copy_(kept)

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any = None) -> None:
        """Every rank writes its file. The folder has its name when all are there."""
        whole, partial = Path(filepath), Path(f"{filepath}.partial")
        if self.is_global_zero:
            for path in (whole, partial):
                _remove(path)
            partial.mkdir(parents=True)
        self.barrier()
        said = checkpoint | {PLAN_KEY: self.plan.fingerprint}
        self.checkpoint_io.save_checkpoint(said, partial / self._own_file(), storage_options)
        self.barrier()
        if self.is_global_zero:
            partial.rename(whole)
        self.barrier()

    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> dict[str, Any]:
        path = Path(checkpoint_path) / self._own_file()
        if not path.is_file():
            remedy = f"give a checkpoint of a ShardedStrategy with {self.world_size} ranks"
            raise UserError("no checkpoint of this rank", where=checkpoint_path, given=f"no {path.name}", remedy=remedy)
        found = dict(self.checkpoint_io.load_checkpoint(path, weights_only=weights_only))
        if found.pop(PLAN_KEY, None) != self.plan.fingerprint:
            raise UserError(
                "the checkpoint is of another plan", where=checkpoint_path, remedy="resume under the plan that it was written with"
            )
        return found

    def remove_checkpoint(self, filepath: Any) -> None:
        if self.is_global_zero:
            _remove(Path(filepath))

    def _own_file(self) -> str:
        return f"rank_{self.global_rank}_of_{self.world_size}.ckpt"


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


def check_trainer(trainer: Any) -> None:
    """Raises UserError for what of Lightning gives wrong weights when each rank has other shards."""
    norm = trainer.gradient_clip_val and str(trainer.gradient_clip_algorithm or "norm").endswith("norm")
    averages = any(isinstance(one, StochasticWeightAveraging) for one in trainer.callbacks)
    by_hand = not trainer.lightning_module.automatic_optimization
    cannot = (
        (norm, "gradient_clip_val", "each rank would clip by the norm of its own shards", 'gradient_clip_algorithm="value"'),
        (trainer.accumulate_grad_batches > 1, "accumulate_grad_batches", "their gradients travel in every backward pass", "1"),
        (by_hand, "automatic_optimization", "it was tested with Lightning's loop alone", "True"),
        (trainer.precision not in PRECISIONS, "precision", "they have no such format here", " or ".join(PRECISIONS)),
        (averages, "callbacks", "shards cannot be copied", "no averaging of weights"),
    )
    for is_asked, where, why, allowed in cannot:
        if is_asked:
            raise UserError(f"not with sharded tables: {why}", where=f"Trainer({where})", allowed=allowed)


def held(value: Any) -> list[Tensor]:
    """What this rank has of an entry of a state dict. Changing it changes the module."""
    return [shard.tensor for shard in value.local_shards()] if isinstance(value, ShardedTensor) else [value]


def fill(sharded: nn.Module, whole: Mapping[str, Tensor | None]) -> None:
    """Copies to each shard its part of the whole tables."""
    with torch.no_grad():
        for name, value in sharded.state_dict().items():
            if (table := whole[name]) is None:
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
            given, remedy = (
                f"{len(value.local_shards())} shards of {name}",
                "plan with wider columns, such as sharder.planner.column_shard_width",
            )
            raise UserError("a rank holds several shards of one table", where=path, given=given, remedy=remedy)


def _have_rows(sharded: nn.Module) -> None:
    """A table of which this rank has nothing is a parameter without rows, for optimizers that look at rows."""
    for part in sharded.modules():
        for name, parameter in list(part.named_parameters(recurse=False)):
            if not parameter.numel() and parameter.dim() == 1:
                setattr(part, name, nn.Parameter(parameter.new_empty(0, 1)))


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


__all__ = ["ShardedStrategy"]
