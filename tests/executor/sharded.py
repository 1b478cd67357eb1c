"""The same training as `reference`, on the ranks of a process group, and its shards put together again."""

from __future__ import annotations

import os

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.functional import binary_cross_entropy_with_logits

from recsys_lab.cluster import Cluster, Device, Link
from recsys_lab.config.options import DenseOptimizer
from recsys_lab.executor.groups import close_groups
from recsys_lab.executor.shard import shard
from recsys_lab.executor.sharded_model import ShardedModel, TableShard
from recsys_lab.plan import ShardingPlan, Workload
from recsys_lab.plan.tiers import is_tiered, tier_rows
from recsys_lab.plan.validate import validate
from recsys_lab.precision import Precision
from recsys_lab.sharders.base import PlanInputs
from recsys_lab.sharders.torchrec import TorchRec
from recsys_lab.tables import AccessStatistics, Table, power_law_access
from recsys_lab.train.optimizer import dense_optimizer
from tests.executor.reference import EPS, LR, SEED, Concat, Outcome, Sample
from tests.plan.plans import flexshard, placement

FP32 = Precision("fp32")


def small_cluster(hosts: int, ranks_per_host: int, kind: str = "cpu", memory_gb: float = 16.0) -> Cluster:
    link = Link("test", bandwidth_gb_s=10.0, latency_us=5.0, source="test")
    return Cluster("test", hosts, ranks_per_host, Device("test", kind, memory_gb, 100.0, {"fp32": 1.0}, "test"), link, link)


def statistics(tables: tuple[Table, ...]) -> AccessStatistics:
    return AccessStatistics({t.name: power_law_access(t.name, t.rows, 1.5, 1.0) for t in tables})


def workload(optimizer: str = "sgd", batch_size: int = 8) -> Workload:
    return Workload(batch_size, 1000, 1e3, 2e3, 1e3, optimizer, "sgd")


def here(tables: tuple[Table, ...], force: dict[str, str]) -> ShardingPlan:
    """The plan for the ranks that run."""
    local = int(os.environ["LOCAL_WORLD_SIZE"])
    where = small_cluster(dist.get_world_size() // local, local)
    return TorchRec(force=force).plan(PlanInputs(tables, statistics(tables), where, FP32, workload()))


#: How each table is placed: one of TorchRec's schemes, or (replicated, host-sharded rows).
How = dict[str, str | tuple[int, int]]


def placed(tables: tuple[Table, ...], how: How) -> ShardingPlan:
    """The plan for the ranks that run, as TorchRec and FlexShard lay their shards."""
    local = int(os.environ["LOCAL_WORLD_SIZE"])
    hosts = dist.get_world_size() // local
    placements = []
    for index, table in enumerate(tables):
        way = how[table.name] if table.name in how else how["*"]
        placement_of_table = placement(table, way, index, hosts, local) if isinstance(way, str) else flexshard(table, *way, hosts, local)
        placements.append(placement_of_table)
    plan = ShardingPlan("by_hand", hosts, local, tables, tuple(placements))
    validate(plan)
    return plan


def hottest(table: Table, rows: int) -> np.ndarray:
    """Some `rows` of its ids, in an order that has nothing to do with theirs."""
    return np.random.default_rng(table.rows + len(table.name)).permutation(table.rows)[:rows]


def hot_rows_of(plan: ShardingPlan) -> dict[str, np.ndarray]:
    rows = {t.name: tier_rows(p) for t, p in plan.by_table.values() if is_tiered(p)}
    return {name: hottest(plan.by_table[name][0], r["replicated"] + r["host_sharded"]) for name, r in rows.items()}


def build(
    tables: tuple[Table, ...],
    plan: ShardingPlan,
    optimizer: str,
    dense_width: int,
    hot: dict[str, np.ndarray] | None = None,
    precision: Precision = FP32,
    pipeline: bool = False,
    sync: str = "gradients",
    dedup: bool = False,
) -> ShardedModel:
    model, hot, how = Concat(tables, dense_width, torch.device("meta")), hot or hot_rows_of(plan), (optimizer, LR, EPS, 0.0)
    return shard(model, plan, torch.device("cpu"), how, precision, SEED, hot_rows=hot, dedup=dedup, pipeline=pipeline, sync=sync)


def step(sharded: ShardedModel, dense_optimizer: torch.optim.Optimizer, batch: Sample) -> torch.Tensor:
    """One training step on this rank's part of the global batch; its logits."""
    dense_optimizer.zero_grad()
    sharded.sparse_optimizer.zero_grad()
    part = batch.part(dist.get_rank(), dist.get_world_size())
    logits = sharded.module(part.dense, part.sparse)
    binary_cross_entropy_with_logits(logits, part.labels).backward()
    dense_optimizer.step()
    sharded.sparse_optimizer.step()
    return logits.detach()


def dense_optimizer_of(sharded: ShardedModel) -> torch.optim.Optimizer:
    return dense_optimizer(sharded, DenseOptimizer(name="sgd", lr=LR, eps=EPS, weight_decay=0.0, momentum=0.0))


def dense_of(sharded: ShardedModel) -> dict[str, torch.Tensor]:
    """The dense part's weights in FP32, by name."""
    stored = sharded.dense_weights()
    return {name: weights.clone() if isinstance(weights, torch.Tensor) else weights.read().clone() for name, weights in stored}


def gathered(sharded: ShardedModel, tables: tuple[Table, ...]) -> tuple[dict[str, torch.Tensor], dict[str, dict[str, torch.Tensor]]]:
    """Whole tables and their optimizer state, put together from every rank. Replicas must be the same bits."""
    parts: list[list[TableShard]] = [[] for _ in range(dist.get_world_size())]
    dist.all_gather_object(parts, sharded.table_shards())
    whole = {t.name: torch.full((t.rows, t.dim), torch.nan) for t in tables}
    state: dict[str, dict[str, torch.Tensor]] = {t.name: {} for t in tables}
    for piece in (piece for rank in parts for piece in rank):
        extent = piece.held
        rows = torch.arange(extent.row_start, extent.row_stop) if piece.rows is None else torch.from_numpy(piece.rows)
        cols = torch.arange(extent.col_start, extent.col_stop)
        _put(whole[extent.table], (rows[:, None], cols), piece.weights.read())
        for name, value in piece.state.items():
            if value.dim() == 1 and piece.is_column_shard:
                continue  # one element a row of each column shard: there is no whole to put together
            into = state[extent.table].setdefault(name, torch.full(whole[extent.table].shape[: value.dim()], torch.nan))
            _put(into, (rows[:, None], cols) if value.dim() == 2 else (rows,), value)
    assert not any(w.isnan().any() for w in whole.values()), "the shards do not cover the tables"
    return whole, state


def _put(into: torch.Tensor, where: tuple[torch.Tensor, ...], value: torch.Tensor) -> None:
    there = into[where]
    present = ~there.isnan()
    assert torch.equal(there[present], value[present]), "replicas differ"
    into[where] = value


def train_sharded(
    tables: tuple[Table, ...], batches: list[Sample], cases: list[tuple[dict[str, str], str]], dense_width: int
) -> list[Outcome]:
    """For each case (forced sharding types, optimizer) what the reference also says."""
    return [train(tables, here(tables, force), batches, optimizer, dense_width) for force, optimizer in cases]


def train_placed(tables: tuple[Table, ...], batches: list[Sample], cases: list[tuple[How, str]], dense_width: int) -> list[Outcome]:
    """The same for plans by hand."""
    return [train(tables, placed(tables, how), batches, optimizer, dense_width) for how, optimizer in cases]


def train(
    tables: tuple[Table, ...],
    plan: ShardingPlan,
    batches: list[Sample],
    optimizer: str,
    dense_width: int,
    hot: dict[str, np.ndarray] | None = None,
    precision: Precision = FP32,
    dedup: bool = False,
) -> Outcome:
    return trained(build(tables, plan, optimizer, dense_width, hot, precision, dedup=dedup), tables, batches)


def trained(sharded: ShardedModel, tables: tuple[Table, ...], batches: list[Sample]) -> Outcome:
    """What the reference also says, of this rank: dense parameters are those that it has."""
    dense = dense_optimizer_of(sharded)
    outcome = Outcome(torch.empty(0), {}, {}, {}, {}, {})
    for number, batch in enumerate(batches, start=1):
        logits = step(sharded, dense, batch)
        if number == 1:
            outcome.logits = logits
            outcome.dense_grads = {name: p.grad.clone() for name, p in sharded.dense_parameters()}
            outcome.tables_after_one = gathered(sharded, tables)[0]
    outcome.tables, outcome.state = gathered(sharded, tables)
    outcome.dense = dense_of(sharded)
    close_groups()
    return outcome
