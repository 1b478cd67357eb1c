"""The Lightning strategy: shards a module's tables by a plan, and trains it. `recsys_lab.lightning.executor` says how tables are executed.

from recsys_lab.lightning import ShardedStrategy

plan = recsys_lab.plan(torchrec_plans.experiment(module, "cluster=local", "sharder=neo_4d")).plan
Trainer(strategy=ShardedStrategy(plan), accelerator="cpu", devices=4).fit(module, data)
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
import torch.distributed as dist
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from recsys_lab.errors import UserError
from recsys_lab.lightning import refusals
from recsys_lab.lightning.executor import Executor, Sharded
from recsys_lab.lightning.precision import with_norm_of_all_ranks
from recsys_lab.plan import ShardingPlan
from recsys_lab.units import grid


class ShardedStrategy(DDPStrategy):
    """Shards the tables of a LightningModule by `plan`, and trains it.

    A checkpoint is a folder under the name that the callback chose, with a file for each rank. It resumes on any number of ranks, and
    under any plan of the same tables. On as many ranks under the same plan it resumes with the same bits.

    Args:
        plan: of the module's tables, by name. Its hosts are Lightning's `num_nodes`, its ranks `devices`.
        executor: how the tables are executed. None: every EmbeddingBagCollection and EmbeddingCollection becomes TorchRec's sharded one,
            DistributedDataParallel has the dense arch, and optimizers are those of the module.
        ddp: what DDPStrategy takes, such as `find_unused_parameters`.

    Raises:
        UserError: for what of Lightning cannot work with shards, with the reason; in `setup` also for a plan of other tables or ranks.
    """

    def __init__(self, plan: ShardingPlan, executor: Executor | None = None, **ddp: Any):
        refusals.check_options(ddp)
        super().__init__(**ddp)
        self.plan, self.executor = plan, executor or _torchrec()
        self.has_begun = False  # once all of a checkpoint has been read
        self._settles = not ddp.get("static_graph")  # which takes DistributedDataParallel's first pass for every later one
        self.sharded: Sharded

    # model and optimizers --------------------------------------------------------------------------------------------

    def setup(self, trainer: pl.Trainer) -> None:
        refusals.check_trainer(trainer)
        if (self.plan.hosts, self.plan.ranks_per_host) != (self.num_nodes, self.num_processes):
            ranks, planned = grid(self.num_nodes, self.num_processes), grid(self.plan.hosts, self.plan.ranks_per_host)
            raise UserError("the plan is for other ranks", where="Trainer(num_nodes, devices)", given=f"{ranks}", allowed=f"{planned}")
        super().setup(trainer)

    def model_to_device(self) -> None:
        """Shards the module first. The executor puts every shard on its device."""
        assert self.lightning_module is not None
        self.sharded = self.executor.shard(self.lightning_module, self.plan, self)
        if not self.executor.whole_model:
            super().model_to_device()

    def configure_ddp(self) -> None:
        if self.executor.whole_model:
            return
        super().configure_ddp()
        assert isinstance(self.model, DistributedDataParallel) and self.lightning_module is not None
        if self._settles:
            settle_buckets(self.model, self.lightning_module)

    def setup_optimizers(self, trainer: pl.Trainer) -> None:
        if self.sharded.optimizers is None:
            super().setup_optimizers(trainer)
        else:
            self.optimizers, self.lr_scheduler_configs = self.sharded.optimizers

    def setup_precision_plugin(self) -> None:
        self.precision_plugin = with_norm_of_all_ranks(self.precision_plugin, self.sharded.clip_by_norm)
        super().setup_precision_plugin()

    def teardown(self) -> None:
        if not self.executor.whole_model:  # which is evaluated after training, where it is
            super().teardown()

    def reduce(self, tensor: Any, group: Any = None, reduce_op: Any = "mean") -> Any:
        """Means as a sum that is divided: gloo has no mean, and Lightning does not see it behind a backend of another name."""
        if not isinstance(tensor, Tensor) or str(reduce_op).lower() not in ("mean", "avg", "redoptype.avg"):
            return super().reduce(tensor, group, reduce_op)
        total = tensor.detach().clone()
        dist.all_reduce(total, group=group)
        return total / dist.get_world_size(group)

    # checkpoints -----------------------------------------------------------------------------------------------------

    @property
    def restore_checkpoint_after_setup(self) -> bool:
        return True

    def lightning_module_state_dict(self) -> dict[str, Any]:
        return self.sharded.state_dict()

    def optimizer_state(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        return super().optimizer_state(optimizer) if self.sharded.optimizers is None else {}  # the executor saves that of its own

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any = None) -> None:
        folder = Path(self.broadcast(str(filepath)))  # a monitored figure in its name can differ between ranks
        self.sharded.save(checkpoint, folder, storage_options)

    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> dict[str, Any]:
        return self.sharded.load(Path(self.broadcast(str(checkpoint_path))), weights_only)

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        self.sharded.load_weights(checkpoint, strict)

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        if self.sharded.optimizers is None:
            super().load_optimizer_state_dict(checkpoint)
        else:
            self.sharded.load_optimizers(checkpoint)

    def remove_checkpoint(self, filepath: Any) -> None:
        if self.is_global_zero:
            self.sharded.remove(Path(filepath))

    # what Lightning leaves to a strategy ---------------------------------------------------------------------------

    def on_train_start(self) -> None:
        self.has_begun = True
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


def _torchrec() -> Executor:
    """Imported here: run.py's ranks start without it and what it imports."""
    from recsys_lab.lightning.torchrec_executor import TorchRecExecutor

    return TorchRecExecutor()


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


__all__ = ["ShardedStrategy"]
