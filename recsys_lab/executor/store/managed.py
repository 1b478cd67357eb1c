"""One shard whose rows are in the host's memory, cached on a GPU: FBGEMM's table-batched embeddings (Neo, section 5).

Weights are in unified memory (UVM). `host` reads them where they are. `host_cached` has a software cache in front of them, of sets of 32
ways, LRU or LFU. A row that finds no place in its set is read where it is. So a cache is never too small, only slow. FBGEMM keeps the
optimizer state of rows outside the cache: of row-wise Adagrad on the GPU, of the others in unified memory.

FBGEMM moves rows in its backward pass. It is called in the optimizer's step, after a second look-up that finds the rows in the cache. So
the step has the rate and the number that the optimizer says, gradients of several passes add up, and other look-ups may come between.

Shapes: B samples, F features, D width of the shard, N ids.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from recsys_lab.kernels import Lookups, Rule
from recsys_lab.kernels.rule import WITH_SQUARES
from recsys_lab.kernels.stored import StoredWeights
from recsys_lab.plan.store import HOST, LFU, Store

#: Of a set; FBGEMM has no other number on NVIDIA's GPUs, whose warps have as many lanes.
WAYS = 32
#: FBGEMM's names, by ours; formats are those that its caches hold.
PRECISIONS = {"fp32": "FP32", "fp16": "FP16"}
OPTIMIZERS = {"sgd": "EXACT_SGD", "adagrad": "EXACT_ADAGRAD", "row_wise_adagrad": "EXACT_ROWWISE_ADAGRAD", "adam": "ADAM", "lamb": "LAMB"}
MODES = {"sum": "SUM", "mean": "MEAN", "none": "NONE"}


class ManagedRows:
    """`rows` x `width` of a shard, stored in `format` and pooled by `mode`, on `device`. On a CPU FBGEMM has no cache: tests use that."""

    def __init__(self, store: Store, rows: int, width: int, format: str, mode: str, device: torch.device):
        self._shape, self._format, self._mode = (rows, width), format, mode
        self._store, self._device = store, device
        self._kernels: Any = None

    def open(self, rule: Rule) -> StoredWeights:
        """Makes the kernels, which know their optimizer. Returns the weights, all zero, to be filled before the first look-up."""
        from fbgemm_gpu.split_table_batched_embeddings_ops_training import SplitTableBatchedEmbeddingBagsCodegen

        how = arguments(self._store, *self._shape, self._format, self._mode, rule, self._device)
        self._kernels = SplitTableBatchedEmbeddingBagsCodegen(**how)
        return StoredWeights(self._format, self._kernels.split_embedding_weights()[0], None)

    def states(self, names: list[str]) -> dict[str, torch.Tensor]:
        """The optimizer's, by these `names`, of all rows."""
        return dict(zip(names, self._kernels.split_optimizer_states()[0], strict=True)) if names else {}

    def look_up(self, lookups: Lookups) -> torch.Tensor:
        """Pooled rows [B, F * D], or [N, D] under mode none."""
        width = self._shape[1]
        with torch.no_grad():
            rows = self._kernels(lookups.ids, self._offsets(lookups))
        if lookups.offsets is None:
            return rows
        return rows.view(lookups.features, lookups.samples, width).transpose(0, 1).reshape(lookups.samples, -1)

    def update(self, lookups: Lookups, grad: torch.Tensor, rule: Rule) -> None:
        """One step of the rows that were looked up, by the gradient of what they gave, [B, F * D] or [N, D]."""
        if not len(lookups.ids):
            return
        if lookups.offsets is not None:
            grad = grad.view(lookups.samples, lookups.features, -1).transpose(0, 1).reshape(-1, self._shape[1])
        self._kernels.set_learning_rate(rule.lr)
        if rule.name in WITH_SQUARES:
            self._kernels.iter.fill_(rule.step - 1)
            self._kernels.iter_cpu.fill_(rule.step - 1)
            self._kernels.update_hyper_parameters({"eps": eps_of(rule)})
        with torch.enable_grad():
            self._kernels(lookups.ids, self._offsets(lookups)).backward(grad.float())

    def settle(self) -> None:
        """Writes what the cache holds back, and empties it: who reads or sets the weights next does so in unified memory."""
        self._kernels.flush()
        self._kernels.reset_cache_states()

    def _offsets(self, lookups: Lookups) -> torch.Tensor:
        """As of one feature, whose bags are those of all features one after another."""
        if lookups.offsets is not None:
            return lookups.offsets
        ids = len(lookups.ids)
        ends = torch.tensor([0, ids]) if self._mode == "none" else torch.arange(ids + 1)
        return ends.to(lookups.ids.device)


def arguments(store: Store, rows: int, width: int, format: str, mode: str, rule: Rule, device: torch.device) -> dict[str, Any]:
    """What FBGEMM's table-batched embeddings are made with."""
    from fbgemm_gpu import split_embedding_configs as configs
    from fbgemm_gpu import split_table_batched_embeddings_ops_common as common
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import ComputeDevice

    near, far = (common.EmbeddingLocation.MANAGED_CACHING, common.EmbeddingLocation.MANAGED)
    location = common.EmbeddingLocation.HOST if device.type == "cpu" else far if store.kind == HOST else near
    precision = configs.SparseType[PRECISIONS[format]]
    return {
        "embedding_specs": [(rows, width, location, ComputeDevice.CPU if device.type == "cpu" else ComputeDevice.CUDA)],
        "cache_algorithm": common.CacheAlgorithm.LFU if store.policy == LFU else common.CacheAlgorithm.LRU,
        "cache_sets": sets_of(store, rows),
        "weights_precision": precision,
        "cache_precision": precision,
        "stochastic_rounding": False,
        "optimizer": configs.EmbOptimType[OPTIMIZERS[rule.name]],
        "learning_rate": rule.lr,
        "eps": rule.eps,
        "beta1": rule.beta1,
        "beta2": rule.beta2,
        "pooling_mode": common.PoolingMode[MODES[mode]],
        "bounds_check_mode": common.BoundsCheckMode.FATAL,
        "device": device,
    }


def sets_of(store: Store, rows: int) -> int:
    """Sets of the cache of a shard of so many rows. They hold its share of the rows, and up to a set more."""
    return max(1, math.ceil(store.cached_rows(rows) / WAYS))


def eps_of(rule: Rule) -> float:
    """Adam's as FBGEMM adds it, to the root of the corrected squares. Ours is added before the correction; LAMB's is added as theirs."""
    return rule.eps / math.sqrt(1 - rule.beta2**rule.step) if rule.name == "adam" else rule.eps
