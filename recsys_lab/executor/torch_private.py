"""Private names of torch, TorchRec and Lightning. Other files call the functions below. An update is checked here first."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch import nn
from torch.distributed._shard.sharded_tensor import ShardedTensor
from torch.nn.parallel import DistributedDataParallel

# --- ShardedStrategy: torch 2.13, TorchRec 1.8, Lightning 2.6 ---------------------------------------------------------------------------


def wait_for_others(timeout: timedelta) -> None:
    """How long collectives of the process group that is there already wait for other ranks from now on."""
    dist.distributed_c10d._set_pg_timeout(timeout)


def leave_to_others(module: nn.Module, names: Iterable[str]) -> None:
    """Has DistributedDataParallel, when it wraps `module`, neither broadcast nor average these parameters and buffers."""
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, list(names))


def has_optimizer_in_backward(parameter: nn.Parameter) -> bool:
    """Whether TorchRec's `apply_optimizer_in_backward` was called for it."""
    return bool(getattr(parameter, "_in_backward_optimizers", None))


def lookup_modules(sharded: Any) -> list[nn.Module]:
    """All modules that look rows up for a collection that TorchRec sharded. They are no modules of the collection itself."""
    return [part for lookup in sharded._lookups for part in lookup.modules()]


def stop_broadcasting_sigterm(trainer: Any) -> None:
    """Takes Lightning's broadcast before each batch, for which all ranks wait, out of this trainer."""
    trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor = lambda: None


__all__ = [
    "ShardedTensor",
    "has_optimizer_in_backward",
    "leave_to_others",
    "lookup_modules",
    "stop_broadcasting_sigterm",
    "wait_for_others",
]
