"""The executor: a model and a plan become a model that trains on the current process group.

TorchRec exchanges ids and rows, for whole tables and for FlexShard's tiers (`recsys_lab.schemes.tiers.execute.tiered`); tables in towers have
an exchange of their own (`recsys_lab.schemes.towers.execute`). TorchRec's DistributedModelParallel puts the rest under
DistributedDataParallel.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torchrec.distributed import types as tr
from torchrec.distributed.model_parallel import DefaultDataParallelWrapper, DistributedModelParallel
from torchrec.distributed.types import ShardingEnv
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection

from recsys_lab.errors import UserError
from recsys_lab.executor.blocking import block
from recsys_lab.executor.collection import Config, Sharded, configs_of, shard_collection
from recsys_lab.executor.compute import DTYPES, compute_in
from recsys_lab.executor.dense_weights import DenseWeights, in_model_format
from recsys_lab.executor.embedding_rows import SEQUENCE_SCHEMES
from recsys_lab.executor.formats import WireFormats, average_in, wire_formats
from recsys_lab.executor.groups import Groups, groups_of
from recsys_lab.executor.sharded_model import ShardedModel, TableShard
from recsys_lab.executor.sparse_optim import SparseOptimizer, SparseOptimizerConfig
from recsys_lab.executor.threads import keep_apart
from recsys_lab.executor.torchrec_plan import to_torchrec
from recsys_lab.models.click_model import ClickModel
from recsys_lab.models.initial import initialise_dense
from recsys_lab.models.table_weights import initial_rows
from recsys_lab.plan import Placement, Shard, ShardingPlan
from recsys_lab.plan.sharding_plan import FLEXSHARD
from recsys_lab.precision import Precision
from recsys_lab.quiet import quiet_torchrec
from recsys_lab.schemes.tiers.execute.parts import parts_of
from recsys_lab.schemes.tiers.execute.remaps import remaps_of
from recsys_lab.schemes.tiers.execute.split import TierSplit
from recsys_lab.schemes.tiers.execute.tiered import TieredEmbeddings
from recsys_lab.schemes.tiers.execute.watch import TierWatch
from recsys_lab.schemes.towers.execute import SPTT, tower_embeddings
from recsys_lab.schemes.whole.execute.pooled import exchange_by
from recsys_lab.schemes.whole.scatter import check_exchange
from recsys_lab.tables import Table
from recsys_lab.tables.remap import Remap

__all__ = ["ShardedModel", "TableShard", "shard"]

#: (table, rows int64 [n], col_start, col_stop, seed) -> weights [n, cols]
Initial = Callable[[Table, np.ndarray, int, int, int], torch.Tensor]


def shard(
    model: ClickModel,
    plan: ShardingPlan,
    device: torch.device,
    optimizer: tuple[str, float, float, float],
    precision: Precision,
    seed: int,
    initial: Initial = initial_rows,
    hot_rows: Mapping[str, np.ndarray] | None = None,
    *,
    dense_bucket_mib: int = 25,
    exchange: str = "all_to_all",
    overlap: bool = True,
    communication_cores: int = 0,
    pipeline: bool = False,
) -> ShardedModel:
    """Shard `model`'s tables by `plan`, and put the rest under DistributedDataParallel.

    `model` comes from the meta device or from CPU; what weights its tables may have are ignored: every rank makes its own rows by
    `initial` from `seed`. `optimizer` is the tables': (name, learning rate, eps, weight decay). Must be called on every rank of the
    default process group. `hot_rows`: of each table that is sharded by row, the ids of as many of its hottest rows as are not
    row-sharded, in falling frequency (int64); the same on every rank. `dense_bucket_mib`: DistributedDataParallel's buckets. On one
    rank nothing is exchanged, and there is no DistributedDataParallel. `exchange` of whole tables' pooled rows: all_to_all,
    scatter_list or fused_scatter; without `overlap` it and the all-reduce of dense gradients block (recsys_lab.schemes.whole.execute).
    `communication_cores`: of those that a rank may use, for gloo's threads alone; 0: any thread on any.
    `pipeline`: the trainer may have the ids of the next batch on their way while one computes (`ShardedModel.ahead`).

    Raises UserError for a plan that cannot run here, and for `hot_rows` or an `exchange` that do not match it, or cores that are not there.
    """
    _check(plan)
    check_exchange(plan, exchange, overlap)
    formats = wire_formats(precision)
    remaps = remaps_of(plan, hot_rows or {}, device)
    quiet_torchrec()
    path = _tables_of(model)
    if any(p.is_meta for name, p in model.named_parameters() if not name.startswith(path + ".")):
        initialise_dense(model, seed, device)
    first_dense = in_model_format(model, precision.dense, path) if precision.dense != "fp32" else {}
    embeddings, watch = _in_place_of_tables(model, path, plan, remaps, device, dense_bucket_mib, formats)
    exchange_by(embeddings, exchange, overlap, formats)
    model.set_submodule(path, embeddings)
    site_modules = embeddings.modules_here if isinstance(embeddings, SPTT) else None
    compute_in(precision.compute, model, embeddings, site_modules)
    if alone := plan.world_size == 1:
        plan, remaps = _on_one_rank(plan), {}
    wrapped = DistributedModelParallel(
        model,
        env=ShardingEnv.from_process_group(dist.group.WORLD),
        device=device,
        plan=tr.ShardingPlan({}),
        sharders=[],
        init_data_parallel=not alone,
        data_parallel_wrapper=DefaultDataParallelWrapper(bucket_cap_mb=dense_bucket_mib, static_graph=False),
    )
    (average_in if overlap else block)(wrapped._dmp_wrapped_module, formats.gradients)

    def first(name: str, row_start: int, row_stop: int, col_start: int, col_stop: int) -> torch.Tensor:
        rows = np.arange(row_start, row_stop)
        return initial(plan.by_table[name][0], remaps[name].to_id(rows) if name in remaps else rows, col_start, col_stop, seed)

    for batch in embeddings.batches:
        batch.fill(first)
        batch.out_dtype = DTYPES[precision.compute] if alone else torch.float32  # what travels, travels in the formats of exchanges
    sparse = SparseOptimizer(embeddings.batches, SparseOptimizerConfig(*optimizer), device)
    keep_apart(0 if alone else communication_cores)
    made = ShardedModel(wrapped, sparse, plan, path, remaps, watch, site_modules)
    if pipeline and not alone:
        made = replace(made, ahead=embeddings.ahead)
    if first_dense:
        made = replace(made, stored_dense=DenseWeights.of(precision.dense, made.dense_parameters(), first_dense))
    return made


def _in_place_of_tables(
    model: ClickModel,
    path: str,
    plan: ShardingPlan,
    remaps: Mapping[str, Remap],
    device: torch.device,
    bucket_mib: int,
    formats: WireFormats,
) -> tuple[Sharded | TieredEmbeddings | SPTT, TierWatch | None]:
    if plan.has_tower_tables and plan.world_size > 1:
        return tower_embeddings(model, path, plan, device, bucket_mib, formats), None
    return _sharded(model.get_submodule(path), plan, remaps, device, formats)


def _sharded(
    collection: nn.Module, plan: ShardingPlan, remaps: Mapping[str, Remap], device: torch.device, formats: WireFormats
) -> tuple[Sharded | TieredEmbeddings, TierWatch | None]:
    """The collection that takes the place of the model's own."""
    assert isinstance(collection, EmbeddingBagCollection | EmbeddingCollection)
    configs = configs_of(collection)
    placements = {p.table: p for p in plan.placements}
    tiered = [c for c in configs if placements[c.name].scheme == FLEXSHARD]
    split = TierSplit([plan.by_table[c.name][0] for c in tiered], {c.name: placements[c.name].tier_rows for c in tiered}, remaps, device)
    watch = TierWatch(split, device) if tiered else None
    if plan.world_size == 1:
        alone = _whole(configs, _on_one_rank(plan), Groups(None, None, None, None), device, formats)
        if watch is not None:
            alone.register_forward_pre_hook(watch.hook)
        return alone, watch
    groups = groups_of(plan)
    others = [c for c in configs if c not in tiered]
    whole = _whole(others, plan, groups, device, formats) if others else None
    if watch is None:
        assert whole is not None
        return whole, None
    return TieredEmbeddings(configs, parts_of(tiered, placements, groups, device, formats), split, watch, whole), watch


def _whole(configs: Sequence[Config], plan: ShardingPlan, groups: Groups, device: torch.device, formats: WireFormats) -> Sharded:
    """The tables that `plan` places as a whole."""
    parameters = {name: p for name, p in to_torchrec(plan, device.type).items() if name in {c.name for c in configs}}
    replicas = {} if groups.replicas is None else {"data_parallel": groups.replicas}
    return shard_collection(configs, parameters, ShardingEnv.from_process_group(dist.group.WORLD), device, replicas, formats)


def _tables_of(model: nn.Module) -> str:
    """The path of the model's one collection of tables."""
    paths = [path for path, module in model.named_modules() if isinstance(module, EmbeddingBagCollection | EmbeddingCollection)]
    assert len(paths) == 1, f"a model has one collection of tables; this one has them at {paths}"
    return paths[0]


def _on_one_rank(plan: ShardingPlan) -> ShardingPlan:
    """Every table whole, as if replicated: nothing is exchanged. TorchRec would sort ids into one bucket and send them to itself."""
    return replace(plan, placements=tuple(Placement(t.name, "data_parallel", (Shard((0,), 0, t.rows, 0, t.dim),)) for t in plan.tables))


def _check(plan: ShardingPlan) -> None:
    """The plan is for the ranks that run, TorchRec counts hosts as the plan does, and it has the exchanges that the plan needs."""
    if plan.world_size != dist.get_world_size():
        raise UserError("the plan is for another number of ranks", where="launcher", given=dist.get_world_size(), allowed=plan.world_size)
    local = os.environ.setdefault("LOCAL_WORLD_SIZE", str(plan.ranks_per_host))
    if int(local) != plan.ranks_per_host:
        raise UserError(
            "the plan is for another number of ranks per host", where="LOCAL_WORLD_SIZE", given=local, allowed=plan.ranks_per_host
        )
    for table, placement in plan.by_table.values():
        if placement.scheme == "grid_shard" and table.pooling == "mean":
            raise UserError(
                "TorchRec computes mean pooling wrongly under grid_shard", where=f"table {table.name}", remedy="use table_row_wise"
            )
    _check_sequences(plan)


def _check_sequences(plan: ShardingPlan) -> None:
    sequences = [(table, placement) for table, placement in plan.by_table.values() if table.pooling == "none"]
    for table, placement in sequences:
        if placement.scheme not in (*SEQUENCE_SCHEMES, FLEXSHARD):
            raise UserError(
                "TorchRec cannot shard a sequence table in this way",
                where=f"table {table.name}",
                given=placement.scheme,
                allowed=", ".join((*SEQUENCE_SCHEMES, FLEXSHARD)),
            )
    widths = {shard.cols for _, placement in sequences if placement.scheme == "column_wise" for shard in placement.shards}
    if len(widths) > 1:
        raise UserError(
            "TorchRec wants column shards of one width for all sequence tables",
            where="column_wise",
            given=", ".join(map(str, sorted(widths))),
            remedy="use row_wise",
        )
