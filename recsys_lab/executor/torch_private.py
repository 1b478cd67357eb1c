"""Every private name of torch, TorchRec and Lightning that we use, for torch 2.13, TorchRec 1.8 and Lightning 2.6.

Other files call the functions below. An update of either library is checked here first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._shard.sharded_tensor import ShardedTensor
from torch.nn.parallel import DistributedDataParallel
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.sharding.grid_sharding import GridPooledEmbeddingDist
from torchrec.distributed.sharding.rw_sharding import RwPooledEmbeddingDist
from torchrec.distributed.sharding.tw_sharding import TwPooledEmbeddingDist
from torchrec.distributed.sharding.twrw_sharding import TwRwPooledEmbeddingDist
from torchrec.distributed.types import QuantizedCommCodecs

# --- Process groups ---------------------------------------------------------------------------------------------------------------------

#: Older names of a process group's methods, by which torch still calls: old name -> new name.
OLDER_METHODS = {
    "alltoall_base": "all_to_all_single",
    "_allgather_base": "all_gather_single",
    "allgather_into_tensor_coalesced": "all_gather_single_coalesced",
    "_reduce_scatter_base": "reduce_scatter_single",
    "reduce_scatter_tensor_coalesced": "reduce_scatter_single_coalesced",
}


def gloo(store: dist.Store, rank: int, size: int, timeout: timedelta, sockets_of: Any = None) -> Any:
    """Gloo for a group. `sockets_of`: a group whose sockets it shares; None: it opens its own. Each socket keeps a thread awake."""
    kind: Any = dist.ProcessGroupGloo
    if sockets_of is None:
        return kind(store, rank, size, timeout=timeout)
    options = kind._Options()
    options._devices = sockets_of._get_backend(torch.device("cpu")).options._devices
    options._timeout, options._threads = timeout, 1
    return kind(store, rank, size, options)


def nccl(store: dist.Store, rank: int, size: int, timeout: timedelta) -> Any:
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = timeout
    return dist.ProcessGroupNCCL(store, rank, size, options)


def add_backends(group: Any, backends: Iterable[tuple[str, Any, Any]]) -> None:
    """Has `group` use each backend for its device: (device, type, backend). The last type is the group's default."""
    for device, kind, backend in backends:
        group._register_backend(torch.device(device), kind, backend)
        group._set_default_backend(kind)


# --- Autograd ---------------------------------------------------------------------------------------------------------------------------


def in_backward_pass() -> bool:
    """Whether this thread is inside of a backward pass."""
    return torch._C._current_graph_task_id() >= 0


def after_backward_pass(callback: Callable[[], object]) -> None:
    """Has `callback` run when the current backward pass ends, before callbacks that were queued earlier have waited."""
    engine: Any = torch.autograd.Variable._execution_engine
    engine.queue_callback(callback)


def copy_each(targets: Sequence[torch.Tensor], sources: Sequence[torch.Tensor]) -> None:
    """Each source into its target, in one call."""
    torch._foreach_copy_(list(targets), list(sources))


# --- DistributedDataParallel and DistributedModelParallel -------------------------------------------------------------------------------


def average_in_cpp(module: DistributedDataParallel) -> None:
    """Has C++ average gradients, a bucket at once. The usual way divides parameter by parameter."""
    module._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)


def wrapped_module(model: DistributedModelParallel) -> nn.Module:
    """What `model` runs: DistributedDataParallel, or the module itself where nothing is averaged."""
    return model._dmp_wrapped_module


# --- TorchRec's sharded collections -----------------------------------------------------------------------------------------------------


class OpenCollection:
    """Mixed in before one of TorchRec's sharded collections. It gives names to what TorchRec keeps private, and makes the look-ups.

    The collection has no parameters and no state of torch's.
    """

    @property
    def lookups(self: Any) -> Any:
        return self._lookups

    @property
    def env(self: Any) -> Any:
        """TorchRec's ShardingEnv."""
        return self._env

    @property
    def sharding_types(self: Any) -> list[str]:
        return self._sharding_types

    @property
    def shardings(self: Any) -> list[Any]:
        """TorchRec's EmbeddingSharding of each sharding type."""
        if hasattr(self, "_embedding_shardings"):  # of pooled tables
            return list(self._embedding_shardings)
        return list(self._sharding_type_to_sharding.values())

    @property
    def output_dists(self: Any) -> Any:
        """By sharding type. Entries may be replaced."""
        return self._output_dists

    def make_lookup(self, scheme: str, tables: Any) -> nn.Module:
        """The look-up of this rank's `tables` (GroupedEmbeddingConfig) under one sharding type."""
        raise NotImplementedError

    def _create_lookups(self) -> None:
        rank = self.env.rank
        for scheme, sharding in zip(self.sharding_types, self.shardings):
            self.lookups.append(self.make_lookup(scheme, tables_of_ranks(sharding)[rank]))

    def _initialize_torch_state(self, skip_registering: bool = False) -> None:
        """Checkpoints are made from our look-ups."""


def tables_of_ranks(sharding: Any) -> list[Any]:
    """By rank, the tables that it holds under this sharding (lists of GroupedEmbeddingConfig)."""
    return sharding._grouped_embedding_configs_per_rank


def group_in_host(sharding: Any) -> dist.ProcessGroup | None:
    """The ranks of this host, of a sharding that tells hosts apart."""
    return getattr(sharding, "_intra_pg", None)


def pooled_collectives(exchange: Any) -> list[tuple[dist.ProcessGroup, list[int] | None]]:
    """The collectives of one of TorchRec's exchanges of pooled rows, in order.

    Args:
        exchange: a BaseEmbeddingDist.

    Returns:
        Their groups; with the columns of each rank it is an all-to-all, with None a reduce-scatter. Empty for an exchange of another kind.
    """
    match exchange:
        case TwPooledEmbeddingDist():
            return [(exchange._pg, list(exchange._dim_sum_per_rank))]
        case RwPooledEmbeddingDist():
            return [(exchange._pg, None)]
        case TwRwPooledEmbeddingDist() | GridPooledEmbeddingDist():
            return [(exchange._intra_pg, None), (exchange._cross_pg, list(exchange._dim_sum_per_node))]
    return []


def set_sequence_codecs(exchange: Any, codecs: QuantizedCommCodecs) -> None:
    """Has one of TorchRec's exchanges of sequences' rows, if it is one, encode them so."""
    if hasattr(exchange, "_dist"):
        exchange._dist._codecs = codecs


def pooled_callbacks(exchange: Any) -> list[Callable[[torch.Tensor], torch.Tensor]]:
    """What TorchRec does with the rows of this exchange when they have arrived."""
    return list(getattr(exchange, "_callbacks", None) or [])


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
