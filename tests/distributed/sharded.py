"""The same training as `reference`, on the ranks of a process group, and its shards put together again."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch.nn.functional import binary_cross_entropy_with_logits

from recsys_lab.cluster import Cluster, Device, Link
from recsys_lab.distributed.torchrec import ShardedModel, TableShard, shard
from recsys_lab.plan import ShardingPlan, Workload
from recsys_lab.planners.torchrec import plan
from recsys_lab.precision import Precision
from recsys_lab.tables import AccessStatistics, Table, power_law_access
from tests.distributed.reference import EPS, LR, SEED, Concat, Outcome, Sample

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
    return plan(tables, statistics(tables), small_cluster(dist.get_world_size() // local, local), FP32, workload(), force=force)


def build(tables: tuple[Table, ...], made: ShardingPlan, optimizer: str, dense_width: int) -> ShardedModel:
    model = Concat(tables, dense_width, torch.device("meta"))
    return shard(model, made, torch.device("cpu"), (optimizer, LR, EPS, 0.0), FP32, SEED)


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
    return torch.optim.SGD([p for _, p in sharded.dense_parameters()], lr=LR)


def gathered(sharded: ShardedModel, tables: tuple[Table, ...]) -> tuple[dict[str, torch.Tensor], dict[str, dict[str, torch.Tensor]]]:
    """Whole tables and their optimizer state, put together from every rank. Replicas must be the same bits."""
    parts: list[list[TableShard]] = [[] for _ in range(dist.get_world_size())]
    dist.all_gather_object(parts, sharded.table_shards())
    whole = {t.name: torch.full((t.rows, t.dim), torch.nan) for t in tables}
    state: dict[str, dict[str, torch.Tensor]] = {t.name: {} for t in tables}
    for piece in (piece for rank in parts for piece in rank):
        rows, cols = slice(piece.row_start, piece.row_stop), slice(piece.col_start, piece.col_stop)
        _put(whole[piece.table][rows, cols], piece.weight)
        for name, value in piece.state.items():
            if value.dim() == 1 and piece.is_column_shard:
                continue  # one element a row of each column shard: there is no whole to put together
            into = state[piece.table].setdefault(name, torch.full(whole[piece.table].shape[: value.dim()], torch.nan))
            _put(into[rows, cols] if value.dim() == 2 else into[rows], value)
    assert not any(w.isnan().any() for w in whole.values()), "the shards do not cover the tables"
    return whole, state


def _put(into: torch.Tensor, value: torch.Tensor) -> None:
    seen = ~into.isnan()
    assert torch.equal(into[seen], value[seen]), "replicas differ"
    into.copy_(value)


def train_sharded(
    tables: tuple[Table, ...], batches: list[Sample], cases: list[tuple[dict[str, str], str]], dense_width: int
) -> list[Outcome | str]:
    """For each case (forced sharding types, optimizer) what the reference also says, or the message of the UserError."""
    outcomes = []
    for force, optimizer in cases:
        sharded = build(tables, here(tables, force), optimizer, dense_width)
        dense = dense_optimizer_of(sharded)
        outcome = Outcome(torch.empty(0), {}, {}, {}, {}, {})
        for number, batch in enumerate(batches, start=1):
            logits = step(sharded, dense, batch)
            if number == 1:
                outcome.logits = logits
                outcome.dense_grads = {name: p.grad.clone() for name, p in sharded.dense_parameters()}
                outcome.tables_after_one = gathered(sharded, tables)[0]
        outcome.tables, outcome.state = gathered(sharded, tables)
        outcome.dense = {name: p.detach() for name, p in sharded.dense_parameters()}
        outcomes.append(outcome)
    return outcomes
