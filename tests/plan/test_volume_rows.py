"""Recorded collectives equal the steps for sequences and for FlexShard's tiers: same kinds, same groups, same bytes, on every rank.

Bytes of a sequence follow its ids, so the batches here look every row of a tier up equally often on every rank: then the steps,
which know the look-ups of a tier but not of a row, are exact.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torchrec.modules.embedding_configs import EmbeddingBagConfig, EmbeddingConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys_lab.executor.recorded import register, start_recording, stop_recording
from recsys_lab.executor.shard import shard
from recsys_lab.plan import ShardingPlan
from recsys_lab.plan.lower import lower
from recsys_lab.plan.validate import validate
from recsys_lab.precision import Precision
from recsys_lab.tables import AccessStatistics, Table, TableAccess
from recsys_lab.tables.remap import Remap
from tests.plan.plans import COMMS, FP32, UNLIKE, flexshard, plan, workload
from tests.plan.test_volume import SHAPES, in_order_of_kind
from tests.ranks import run_ranks

BATCH, DIM = 12, 8
#: Of each table: rows and look-ups a batch of each row, in each tier. Every batch divides evenly over its samples.
TIERS = {"t0": ((4, 9), (8, 6), (24, 1)), "t1": ((2, 12), (5, 12), (36, 1)), "t2": ((0, 0), (0, 0), (24, 2))}
SEQUENCES = [("row_wise",), ("table_wise",), ("column_wise",), ("data_parallel",), ("row_wise", "column_wise", "data_parallel")]
register()


def tables(pooling: str) -> tuple[Table, ...]:
    return tuple(Table(name, sum(rows for rows, _ in tiers), DIM, (f"f{name}",), pooling) for name, tiers in TIERS.items())


def hot_ids(name: str) -> np.ndarray:
    """The hot rows of a table lie anywhere among its ids."""
    rows = sum(rows for rows, _ in TIERS[name])
    return np.random.default_rng(7).permutation(rows)[: TIERS[name][0][0] + TIERS[name][1][0]]


def counts(sharding: ShardingPlan, name: str) -> list[tuple[int, int]]:
    """(rows, look-ups a batch of each) in the plan's order of rows: each row alike where the table is placed as a whole."""
    if sharding.by_table[name][1].scheme == "flexshard":
        return [(rows, each) for rows, each in TIERS[name] if rows]
    return [(sharding.by_table[name][0].rows, 2)]


def access(sharding: ShardingPlan) -> AccessStatistics:
    by_name = {}
    for name in TIERS:
        rows, p = zip(*((rows, each / BATCH) for rows, each in counts(sharding, name)))
        by_name[name] = TableAccess(name, float(np.dot(rows, p)), rows, p, "formula", "by hand")
    return AccessStatistics(by_name)


def batch(sharding: ShardingPlan, seed: int) -> KeyedJaggedTensor:
    """Ids in an order of the rank's own; lengths as even as can be."""
    draw, lengths, ids = np.random.default_rng(seed), [], []
    for name, ((a, _), (b, _), _) in TIERS.items():
        table, placement = sharding.by_table[name]
        if placement.scheme != "flexshard":
            a = b = 0
        remap = Remap.of(name, hot_ids(name)[: a + b], a, b, sharding.ranks_per_host, table.rows)
        edges = np.cumsum([0, *(n for n, _ in counts(sharding, name))])
        rows = np.concatenate([np.tile(np.arange(lo, hi), each) for lo, hi, (_, each) in zip(edges, edges[1:], counts(sharding, name))])
        ids.append(remap.to_id(draw.permutation(rows)))
        lengths.append(np.diff(np.linspace(0, len(rows), BATCH + 1).astype(int)))
    return KeyedJaggedTensor(
        [f"f{name}" for name in TIERS],
        torch.from_numpy(np.concatenate(ids)),
        lengths=torch.from_numpy(np.concatenate(lengths).astype(np.int32)),
    )


class Rows(nn.Module):
    """A number a sample from unpooled rows."""

    def __init__(self, sharding: ShardingPlan):
        super().__init__()
        self.features = [f for t in sharding.tables for f in t.features]
        self.embeddings = EmbeddingCollection(
            [
                EmbeddingConfig(name=t.name, num_embeddings=t.rows, embedding_dim=t.dim, feature_names=list(t.features))
                for t in sharding.tables
            ]
        )
        self.top = nn.Linear(DIM, 1)

    def forward(self, dense: torch.Tensor | None, sparse: KeyedJaggedTensor) -> torch.Tensor:
        rows = self.embeddings(sparse)
        return torch.stack([self.top(rows[f].values()).sum() for f in self.features])


class Bags(nn.Module):
    """A number a sample from pooled rows."""

    def __init__(self, sharding: ShardingPlan):
        super().__init__()
        self.embeddings = EmbeddingBagCollection(
            [
                EmbeddingBagConfig(name=t.name, num_embeddings=t.rows, embedding_dim=t.dim, feature_names=list(t.features))
                for t in sharding.tables
            ]
        )
        self.top = nn.Linear(DIM * len(sharding.tables), 1)

    def forward(self, dense: torch.Tensor | None, sparse: KeyedJaggedTensor) -> torch.Tensor:
        return self.top(self.embeddings(sparse).values()).squeeze(1)


def record_one_step(sharding: ShardingPlan, precision: Precision) -> list[tuple[str, tuple[int, ...], int]]:
    model = (Rows if sharding.tables[0].pooling == "none" else Bags)(sharding)
    hot = {p.table: hot_ids(p.table) for p in sharding.placements if p.scheme == "flexshard"}
    sharded = shard(model, sharding, torch.device("cpu"), ("adagrad", 0.1, 1e-8, 0.0), precision, seed=1, hot_rows=hot)
    dense = torch.optim.SGD((p for _, p in sharded.dense_parameters()), lr=0.1)
    for step in range(6):
        if step == 5:
            start_recording()
        sharded.sparse_optimizer.zero_grad()
        dense.zero_grad()
        sharded.module(None, batch(sharding, step + 10 * torch.distributed.get_rank())).sum().backward()
        sharded.sparse_optimizer.step()
        dense.step()
    return [(one.kind, one.group, one.bytes) for one in stop_recording()]


def record_each(cases: list[tuple[ShardingPlan, Precision]]) -> list[list[tuple[str, tuple[int, ...], int]]]:
    return [record_one_step(sharding, precision) for sharding, precision in cases]


def tiered(pooling: str, hosts: int, ranks_per_host: int, tiers: int) -> ShardingPlan:
    """Two tiers: what would be host-sharded is row-sharded."""
    placements = tuple(flexshard(t, TIERS[t.name][0][0], TIERS[t.name][1][0], hosts, ranks_per_host) for t in tables(pooling))
    if tiers == 2:
        placements = tuple(flexshard(t, TIERS[t.name][0][0] + TIERS[t.name][1][0], 0, hosts, ranks_per_host) for t in tables(pooling))
    return ShardingPlan(f"{tiers} tiers", hosts, ranks_per_host, tables(pooling), placements)


def mixed(pooling: str, hosts: int, ranks_per_host: int) -> ShardingPlan:
    """One table row by row, beside two that are placed as a whole."""
    whole = plan(("data_parallel", "table_wise", "row_wise"), hosts, ranks_per_host, tables(pooling))
    first = flexshard(tables(pooling)[0], 4, 8, hosts, ranks_per_host)
    return ShardingPlan("mixed", hosts, ranks_per_host, whole.tables, (first, *whole.placements[1:]))


@pytest.mark.timeout(180)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"{s[0]}x{s[1]}")
def test_recorded_collectives_equal_the_steps(shape: tuple[int, int]) -> None:
    plans = [plan(schemes, *shape, tables("none")) for schemes in SEQUENCES]
    plans += [tiered(pooling, *shape, tiers) for pooling in ("none", "sum") for tiers in (2, 3)]
    plans += [mixed(pooling, *shape) for pooling in ("none", "sum")]
    for sharding in plans:
        validate(sharding)
    cases = [(sharding, FP32) for sharding in plans]
    if shape == (2, 2):
        cases += [(sharding, other) for sharding in plans for other in (COMMS, UNLIKE)]
    recorded = run_ranks(record_each, *shape, cases, backend="recorded", timeout_s=150)
    for number, (sharding, precision) in enumerate(cases):
        dense_parameters = DIM * (1 if sharding.tables[0].pooling == "none" else len(sharding.tables)) + 1
        steps = lower(sharding, access(sharding), precision, workload(BATCH, dense_parameters))
        for rank, collectives in enumerate(recorded):
            expected = in_order_of_kind([(k, g, round(size)) for k, g, size in steps.collectives_of(rank)])
            assert in_order_of_kind(collectives[number]) == expected, (
                f"{precision.name}: {sharding.sharder} {sharding.placements[0].scheme}, rank {rank}"
            )
