"""How a scheme's tables run: what its `execute` gives, and what the executor asks of it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import nn
from torchrec.modules.embedding_configs import EmbeddingBagConfig, EmbeddingConfig
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor, KeyedTensor

from recsys_lab.executor.formats import WireFormats
from recsys_lab.executor.input_dist_prefetch import InputDistPrefetch, PendingInput
from recsys_lab.executor.table_batch import TableBatch
from recsys_lab.plan import Placement, ShardingPlan
from recsys_lab.plan.context import GRADIENTS
from recsys_lab.plan.scheme import Scheme, scheme_of
from recsys_lab.plan.store import UNCACHED, Store
from recsys_lab.tables import Table
from recsys_lab.tables.remap import Remap

Config: TypeAlias = EmbeddingBagConfig | EmbeddingConfig


@dataclass(frozen=True)
class Request:
    """Tables to run, and everything that may matter to how.

    Attributes:
        configs: TorchRec's configs of the tables to run.
        plan: the whole one.
        model: a scheme may take more of it than the tables.
        path: of the model's tables.
        hot_rows: by table, ids of its most frequent rows (int64, falling).
        device: of this rank.
        bucket_mib: DistributedDataParallel's buckets.
        formats: of ids, rows and gradients on the wire.
        exchange: how pooled rows of whole tables travel, of `EXCHANGES`.
        overlap: whether that exchange runs beside compute.
        pipeline: whether ids may come ahead of their batch.
        sync: what copies of tables in groups of ranks average, of `SYNCS`.
        dedup: whether equal ids of a rank's batch travel once, where rows of sequences travel.
    """

    configs: Sequence[Config]
    plan: ShardingPlan
    model: nn.Module
    path: str
    hot_rows: Mapping[str, np.ndarray]
    device: torch.device
    bucket_mib: int
    formats: WireFormats
    exchange: str
    overlap: bool
    pipeline: bool = False
    sync: str = GRADIENTS
    dedup: bool = False

    @property
    def stores(self) -> dict[str, Store]:
        """By table, of those whose rows are not with the others. A CPU's memory is its host's."""
        on_cpu = self.device.type == "cpu"
        return {p.table: p.store for _, p in self.placed if p.store is not None and not (on_cpu and p.store.kind in UNCACHED)}

    @property
    def placed(self) -> list[tuple[Table, Placement]]:
        return [self.plan.by_table[config.name] for config in self.configs]

    @property
    def pooled(self) -> bool:
        return isinstance(self.configs[0], EmbeddingBagConfig)

    @property
    def dims(self) -> dict[str, int]:
        """D by feature, in the order of the tables."""
        return {feature: config.embedding_dim for config in self.configs for feature in config.feature_names}


class Part(nn.Module):
    """Runs some of a model's tables, in and out like their unsharded collection: a KeyedTensor, or a JaggedTensor a feature.

    `start_input_dist`, `send` of what it returns, and `start_output_dist` only issue collectives. So those of several parts overlap.
    """

    @property
    def batches(self) -> list[TableBatch]:
        """The shards of this rank."""
        raise NotImplementedError

    @cached_property
    def input_dist_prefetch(self) -> InputDistPrefetch:
        return InputDistPrefetch(self.start_input_dist)

    def start_input_dist(self, sparse: KeyedJaggedTensor) -> Any:
        """Starts to send the ids of a batch. Collective.

        Args:
            sparse: this rank's batch.

        Returns:
            The input distribution under way (`PendingInput`).
        """
        raise NotImplementedError

    def start_output_dist(self, pending: Any) -> Callable[[], Any]:
        """Looks up the ids that have arrived and sends the rows. Collective.

        Args:
            pending: what `start_input_dist` returned.

        Returns:
            A function that waits for the rows and returns them: a KeyedTensor, or a JaggedTensor a feature.
        """
        raise NotImplementedError

    def forward(self, sparse: KeyedJaggedTensor) -> Any:
        return self.start_output_dist(self.input_dist_prefetch.get(sparse))()


def keyed(rows: Mapping[str, torch.Tensor], dims: Mapping[str, int]) -> KeyedTensor:
    """Pooled `rows` [B, D] by feature, in the order of `dims`."""
    return KeyedTensor(list(dims), list(dims.values()), torch.cat([rows[feature] for feature in dims], dim=1))


@dataclass(frozen=True)
class PendingParts:
    """The input distributions of all parts, under way."""

    parts: list[PendingInput]

    def send(self) -> None:
        for part in self.parts:
            part.send()


class Parts(Part):
    """All tables of `whole`: every exchange of a pass is issued before one is waited for. Each of `parts`, which run the requests beside
    them, gets the features of its own tables.
    """

    _parts: list[tuple[Part, list[str]]]

    def __init__(self, whole: Request, parts: Sequence[tuple[Request, Part]]):
        super().__init__()
        self._pooled, self._dims = whole.pooled, whole.dims
        # In a plain attribute, which torch does not search: their buffers are none of the model's.
        self.__dict__["_parts"] = [(part, list(request.dims)) for request, part in parts]

    @property
    def batches(self) -> list[TableBatch]:
        return [batch for part, _ in self._parts for batch in part.batches]

    def start_input_dist(self, sparse: KeyedJaggedTensor) -> PendingParts:
        return PendingParts([part.start_input_dist(only(sparse, features)) for part, features in self._parts])

    def start_output_dist(self, pending: PendingParts) -> Callable[[], Any]:
        return partial(self._put_together, [part.start_output_dist(own) for (part, _), own in zip(self._parts, pending.parts)])

    def _put_together(self, waits: list[Callable[[], Any]]) -> Any:
        rows: dict[str, Any] = {}
        for wait in waits:
            arrived = wait()
            rows |= arrived.to_dict() if self._pooled else arrived
        return keyed(rows, self._dims) if self._pooled else {feature: rows[feature] for feature in self._dims}


def only(batch: KeyedJaggedTensor, features: list[str]) -> KeyedJaggedTensor:
    """Those features of `batch`, in this order."""
    keys = batch.keys()
    return batch if keys == features else batch.permute([keys.index(feature) for feature in features])


class Watch:
    """What training looked up in tables that are placed row by row, for the plan to be judged by. Of this one there is none."""

    def lookups(self, reset: bool = False) -> dict[str, dict[str, int]]:
        """How many look-ups this rank's training batches had in each tier of each table, since the last reset."""
        return {}

    def keep_ids(self, limit: int) -> None:
        """From now on keep about the last `limit` ids that this rank looks up in each table."""

    def kept_ids(self) -> dict[str, torch.Tensor]:
        """Those ids by table, int64 [at most `limit`], as the data have them: before the remapping. The latest is last."""
        return {}


class LocalModules(nn.Module):
    """Parts of the model that only a group of ranks has.

    Attributes:
        own: the modules of this rank.
        prefix: where they are in the unsharded model.
        ranks: how many ranks have them.
        writes: whether this rank saves them.
    """

    own: nn.Module
    prefix: str
    ranks: int
    writes: bool


@dataclass(frozen=True)
class Running:
    """What a request has become.

    Attributes:
        part: runs the tables.
        remaps: by table, where its ids are renumbered.
        watch: counts look-ups of tables that are placed row by row.
        local_modules: parts of the model that were taken from it.
    """

    part: Part
    remaps: Mapping[str, Remap] = field(default_factory=dict)
    watch: Watch | None = None
    local_modules: LocalModules | None = None


@dataclass(frozen=True)
class Execution:
    """How a scheme's tables run.

    Attributes:
        run: runs the tables on several ranks. Schemes with the same function run together.
        finish: called for each scheme after `run`.
        watch: notes look-ups on a rank that is alone, where `collection` holds all tables whole; None: nothing is noted.
    """

    run: Callable[[Request], Running]
    finish: Callable[[Part, Request], None] | None = None
    watch: Callable[[Request, nn.Module], Watch | None] | None = None


def execution_of(scheme: Scheme) -> Execution:
    """Imported by the name that the scheme gives."""
    module, _, name = scheme.execution.partition(":")
    return getattr(importlib.import_module(module), name)


def together(request: Request) -> list[tuple[Request, list[Execution]]]:
    """The tables that run together, with their schemes' executions. The order is that in which the model has the first of each."""
    groups: dict[Callable, tuple[list[Config], list[Execution]]] = {}
    for config in request.configs:
        execution = execution_of(scheme_of(request.plan.by_table[config.name][1]))
        own, executions = groups.setdefault(execution.run, ([], []))
        own.append(config)
        if execution not in executions:
            executions.append(execution)
    return [(replace(request, configs=own), executions) for own, executions in groups.values()]
