"""What a ShardedStrategy is given and what it drives: how the tables of a module are executed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import lightning.pytorch as pl
from lightning.pytorch.strategies import ParallelStrategy
from lightning.pytorch.utilities.types import LRSchedulerConfig
from torch import Tensor
from torch.optim import Optimizer

from recsys_lab.plan import ShardingPlan

#: Optimizers and their schedules, as Lightning keeps them.
Optimizers: TypeAlias = tuple[list[Optimizer], list[LRSchedulerConfig]]


class Sharded(Protocol):
    """A module whose tables are sharded, as one rank has it.

    Attributes:
        optimizers: those that the executor brings; None: those of the module's `configure_optimizers`.
    """

    @property
    def optimizers(self) -> Optimizers | None: ...

    def clip_by_norm(self, parameters: Iterable[Tensor], max_norm: float) -> None:
        """Scales the gradients of `parameters` by the norm over all ranks. Collective."""

    def state_dict(self) -> dict[str, Any]:
        """The weights that Lightning puts into its checkpoint."""

    def save(self, checkpoint: dict[str, Any], folder: Path, storage_options: Any = None) -> None:
        """Writes a checkpoint of all ranks. Collective."""

    def load(self, folder: Path, weights_only: bool | None = None) -> dict[str, Any]:
        """Reads what `save` wrote, on any number of ranks and under any plan of the same tables. Collective."""

    def load_weights(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        """Sets the weights from what `load` returned."""

    def load_optimizers(self, checkpoint: Mapping[str, Any]) -> None:
        """Sets the state of the executor's own `optimizers` from what `load` returned."""

    def remove(self, folder: Path) -> None:
        """Deletes a checkpoint. Of one rank."""


class Executor(Protocol):
    """Executes the tables of a module.

    Attributes:
        whole_model: True: it also places the dense arch, averages its gradients and brings the optimizers. False: the strategy wraps the
            module in DistributedDataParallel, and the module has its own optimizers.
    """

    @property
    def whole_model(self) -> bool: ...

    def shard(self, module: pl.LightningModule, plan: ShardingPlan, strategy: ParallelStrategy) -> Sharded:
        """Shards the tables of `module` in place. Collective."""
