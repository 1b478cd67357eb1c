"""How `shard` does what it says: a model and a plan become a model that trains on the current process group.

Each scheme says how its tables run (`recsys_lab.executor.execution`). Those that TorchRec exchanges run together as one collection.
TorchRec's DistributedModelParallel puts the rest under DistributedDataParallel.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torchrec.distributed import types as tr
from torchrec.distributed.model_parallel import DefaultDataParallelWrapper, DistributedModelParallel
from torchrec.distributed.types import ShardingEnv
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection

from recsys_lab.base.quiet import quiet_torchrec
from recsys_lab.errors import UserError
from recsys_lab.executor import collection
from recsys_lab.executor.compute import compute_in
from recsys_lab.executor.cpu.scattered_mean import average_scattered
from recsys_lab.executor.cpu.threads import keep_apart
from recsys_lab.executor.dense_weights import DenseWeights, in_model_format
from recsys_lab.executor.execution import Parts, Request, Running, Watch, together
from recsys_lab.executor.formats import DTYPES, average_in, wire_formats
from recsys_lab.executor.sharded_model import ShardedModel
from recsys_lab.executor.sparse_optim import SparseOptimizer
from recsys_lab.executor.store.check import check_stores
from recsys_lab.executor.torch_private import wrapped_module
from recsys_lab.kernels import Rule
from recsys_lab.models.click_model import ClickModel
from recsys_lab.models.first_order import FirstOrder
from recsys_lab.models.initial import initialise_dense
from recsys_lab.models.table_weights import FirstValues, initial_rows
from recsys_lab.plan import Placement, Shard, ShardingPlan
from recsys_lab.plan.dense import ALL_REDUCE
from recsys_lab.plan.lower import check_sequences
from recsys_lab.plan.scheme import check_exchange, home_scheme, known_schemes
from recsys_lab.precision import Precision
from recsys_lab.precision.policy import STOCHASTIC
from recsys_lab.tables import Table

#: (table, rows int64 [n], col_start, col_stop, seed) -> weights [n, cols]
Initial = Callable[[Table, np.ndarray, int, int, int], torch.Tensor]


def sharded(
    model: ClickModel,
    plan: ShardingPlan,
    device: torch.device,
    optimizer: tuple[str, float, float, float],
    precision: Precision,
    seed: int,
    initial: Initial,
    hot_rows: Mapping[str, np.ndarray],
    scratch: str,
    start: FirstOrder | None,
    dedup: bool,
    *,
    dense_bucket_mib: int,
    exchange: str,
    overlap: bool,
    communication_cores: int,
    pipeline: bool,
    sync: str,
    dense_sync: str,
    row_update: str,
) -> ShardedModel:
    """What `executor/shard.py` says, which this room's other files need not import."""
    _check(plan)
    rule = Rule(*optimizer, stochastic=precision.rounding == STOCHASTIC)
    check_stores(plan, device, rule)
    check_exchange(plan, exchange, overlap)
    if dense_sync != ALL_REDUCE and device.type != "cpu":
        raise UserError("NCCL's all-reduce is one already", where="sharder.executor.dense_sync", given=dense_sync, allowed=ALL_REDUCE)
    formats = wire_formats(precision)
    quiet_torchrec()
    path = _tables_of(model)
    if any(p.is_meta for name, p in model.named_parameters() if not name.startswith(path + ".")):
        initialise_dense(model, seed, device)
    if start is not None:
        model.begin_with(start)
    first_dense = in_model_format(model, precision.dense, path) if precision.dense != "fp32" else {}
    alone, configs = plan.world_size == 1, collection.configs_of(model.get_submodule(path))
    request = Request(configs, plan, model, path, hot_rows, device, dense_bucket_mib, formats, exchange, overlap, pipeline, sync, dedup)
    running = _alone(request) if alone else _on_ranks(request)
    embeddings, remaps = running.part, running.remaps
    model.set_submodule(path, embeddings)
    compute_in(precision.compute, model, embeddings, running.local_modules)
    if alone:
        plan = _on_one_rank(plan)
    wrapped = DistributedModelParallel(
        model,
        env=ShardingEnv.from_process_group(dist.group.WORLD),
        device=device,
        plan=tr.ShardingPlan({}),
        sharders=[],
        init_data_parallel=not alone,
        data_parallel_wrapper=DefaultDataParallelWrapper(bucket_cap_mb=dense_bucket_mib, static_graph=False),
    )
    averaged = average_in if dense_sync == ALL_REDUCE else average_scattered
    averaged(wrapped_module(wrapped), formats.gradients, overlap)

    share = getattr(model, "initial_share", 1.0)
    first_values = partial(_first_values, share, getattr(model, "first_order_column", 0), start)

    def of_rows(name: str, col_start: int, col_stop: int, rows: np.ndarray) -> torch.Tensor:
        ids = remaps[name].to_id(rows) if name in remaps else rows
        return first_values(ids, initial(plan.by_table[name][0], ids, col_start, col_stop, seed), name, col_start)

    for batch in embeddings.batches:
        if batch.managed is not None:
            batch.weights = batch.managed.open(rule)
        if batch.cached is None:
            batch.fill(lambda name, start, stop, col_start, col_stop: of_rows(name, col_start, col_stop, np.arange(start, stop)))
        batch.out_dtype = DTYPES[precision.compute] if alone else torch.float32  # what travels, travels in the formats of exchanges
    sparse = SparseOptimizer(embeddings.batches, rule, device, row_update)
    for batch, state in zip(embeddings.batches, sparse.states):
        if batch.cached is not None:
            only, table = batch.shards[0], plan.by_table[batch.shards[0].table][0]
            drawn_by_us = initial is initial_rows and start is None and only.table not in remaps
            origin = FirstValues(table.name, table.rows, table.dim, seed, share) if drawn_by_us else None
            batch.cached.open(scratch, partial(of_rows, only.table, only.col_start, only.col_stop), state, origin)
    keep_apart(0 if alone else communication_cores)
    prefetch = embeddings.input_dist_prefetch if pipeline and not alone else None
    result = ShardedModel(
        wrapped, sparse, plan, path, remaps, running.watch or Watch(), running.local_modules, input_dist_prefetch=prefetch
    )
    if first_dense:
        result = replace(result, stored_dense=DenseWeights.of(precision.dense, result.dense_parameters(), first_dense))
    return result


def _first_values(
    share: float, column: int, start: FirstOrder | None, ids: np.ndarray, drawn: torch.Tensor, table: str, col_start: int
) -> torch.Tensor:
    """What the rows `ids` begin with, in columns from `col_start` on: `share` of `drawn` values. `column` has the weights of `start`."""
    values = drawn if share == 1.0 else drawn.mul_(share)
    if start is not None and col_start <= column < col_start + drawn.shape[1]:
        values[:, column - col_start] = torch.from_numpy(start.of_rows(table, ids))
    return values


def _on_ranks(request: Request) -> Running:
    """The tables as their schemes run them, several parts as one."""
    parts: list[tuple[Request, Running]] = []
    for own, executions in together(request):
        parts.append((own, executions[0].run(own)))
        for execution in executions:
            if execution.finish is not None:
                execution.finish(parts[-1][1].part, own)
    running = [one for _, one in parts]
    if len(running) == 1:
        return running[0]
    remaps = {table: remap for one in running for table, remap in one.remaps.items()}
    whole = Parts(request, [(own, one.part) for own, one in parts])
    return Running(whole, remaps, _the_one(one.watch for one in running), _the_one(one.local_modules for one in running))


def _alone(request: Request) -> Running:
    """All tables whole on the one rank there is. Their look-ups are noted as their schemes would have it."""
    whole, watches = collection.run(replace(request, plan=_on_one_rank(request.plan))).part, []
    for own, executions in together(request):
        watches += [execution.watch(own, whole) for execution in executions if execution.watch is not None]
    return Running(whole, watch=_the_one(watches))


def _the_one(parts: Iterable[Any]) -> Any:
    """Of what at most one scheme of a plan has, that one's. Else None."""
    present = [part for part in parts if part is not None]
    assert len(present) <= 1, "two schemes of one plan watch look-ups, or have parts of the model"
    return present[0] if present else None


def _tables_of(model: nn.Module) -> str:
    """The path of the model's one collection of tables."""
    paths = [path for path, module in model.named_modules() if isinstance(module, EmbeddingBagCollection | EmbeddingCollection)]
    assert len(paths) == 1, f"a model has one collection of tables; this one has them at {paths}"
    return paths[0]


def _on_one_rank(plan: ShardingPlan) -> ShardingPlan:
    """Every table whole, as if replicated: nothing is exchanged. TorchRec would sort ids into one bucket and send them to itself."""
    home = home_scheme().name
    whole = {t.name: (Shard((0,), 0, t.rows, 0, t.dim),) for t in plan.tables}
    return replace(plan, placements=tuple(Placement(p.table, home, whole[p.table], p.store) for p in plan.placements))


def _check(plan: ShardingPlan) -> None:
    """The plan is for the ranks that run. TorchRec counts hosts as the plan does, and it has the exchanges that the plan needs."""
    if plan.world_size != dist.get_world_size():
        raise UserError("the plan is for another number of ranks", where="launcher", given=dist.get_world_size(), allowed=plan.world_size)
    local = os.environ.setdefault("LOCAL_WORLD_SIZE", str(plan.ranks_per_host))
    if int(local) != plan.ranks_per_host:
        raise UserError(
            "the plan is for another number of ranks per host", where="LOCAL_WORLD_SIZE", given=local, allowed=plan.ranks_per_host
        )
    check_sequences(plan)
    for scheme in known_schemes().values():
        members = [(table, placement) for table, placement in plan.by_table.values() if placement.scheme == scheme.name]
        if members and scheme.check_execution is not None:
            scheme.check_execution(members)
