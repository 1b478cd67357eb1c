"""The collectives of a real training step equal the steps of its plan: same kinds, same groups, same bytes, on every rank.

Of schemes that are mixed in one plan; of each alone: tests/schemes.
"""

from __future__ import annotations

from collections import defaultdict

import pytest
import torch
from torch import nn
from torchrec.modules.embedding_configs import EmbeddingBagConfig, PoolingType
from torchrec.modules.embedding_modules import EmbeddingBagCollection
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys_lab.executor.recorded import register, start_recording, stop_recording
from recsys_lab.executor.shard import shard
from recsys_lab.plan import ShardingPlan
from recsys_lab.plan.lower import lower
from recsys_lab.plan.validate import validate
from recsys_lab.precision import Precision
from recsys_lab.tables import Table
from tests.plan.plans import COMMS, FP32, LENGTHS, TABLES, UNLIKE, access, plan, workload
from tests.plan.plans import TORCHREC_SCHEMES as SCHEMES
from tests.ranks import run_ranks

BATCH = 6
SHAPES = [(1, 2), (2, 2), (1, 4), (4, 1)]
MIXES = [("table_wise", "row_wise", "data_parallel"), ("table_row_wise", "column_wise", "grid_shard", "row_wise", "table_wise")]
register()  # before a rank joins its process group


class Tiny(nn.Module):
    """Pooled embeddings into one linear layer."""

    def __init__(self, tables: tuple[Table, ...]):
        super().__init__()
        pooling = {"sum": PoolingType.SUM, "mean": PoolingType.MEAN}
        self.embeddings = EmbeddingBagCollection(
            [
                EmbeddingBagConfig(
                    name=t.name, num_embeddings=t.rows, embedding_dim=t.dim, feature_names=list(t.features), pooling=pooling[t.pooling]
                )
                for t in tables
            ]
        )
        self.top = nn.Linear(sum(len(t.features) * t.dim for t in tables), 1)

    def forward(self, dense: torch.Tensor | None, sparse: KeyedJaggedTensor) -> torch.Tensor:
        return self.top(self.embeddings(sparse).values()).squeeze(1)


def record_one_step(sharding: ShardingPlan, precision: Precision = FP32) -> list[tuple[str, tuple[int, ...], int]]:
    """What this rank's recorder sees in the sixth step: by then DistributedDataParallel has rebuilt its buckets."""
    sharded = shard(Tiny(sharding.tables), sharding, torch.device("cpu"), ("adagrad", 0.1, 1e-8), precision, seed=1)
    dense = torch.optim.SGD((p for _, p in sharded.dense_parameters()), lr=0.1)
    for step in range(6):
        batch = random_batch(sharding.tables)
        if step == 5:
            start_recording()
        sharded.sparse_optimizer.zero_grad()
        dense.zero_grad()
        sharded.module(None, batch).sum().backward()
        sharded.sparse_optimizer.step()
        dense.step()
    return [(one.kind, one.group, one.bytes) for one in stop_recording()]


def random_batch(tables: tuple[Table, ...]) -> KeyedJaggedTensor:
    features = [(f, t.rows) for t in tables for f in t.features]
    lengths = torch.cat([torch.full((BATCH,), LENGTHS[f], dtype=torch.int32) for f, _ in features])
    ids = torch.cat([torch.randint(0, rows, (BATCH * LENGTHS[f],)) for f, rows in features])
    return KeyedJaggedTensor(keys=[f for f, _ in features], values=ids, lengths=lengths)


def in_order_of_kind(collectives: list[tuple[str, tuple[int, ...], float]]) -> list[tuple[str, tuple[int, ...], float]]:
    """Sorted; the all-reduces of a group as one: gradients travel in buckets."""
    reduced: dict[tuple[int, ...], float] = defaultdict(float)
    steps = []
    for kind, group, size in collectives:
        if kind == "all_reduce":
            reduced[group] += size
        else:
            steps.append((kind, group, size))
    return sorted([*steps, *(("all_reduce", group, size) for group, size in reduced.items())])


def record_each(cases: list[tuple[ShardingPlan, Precision]]) -> list[list[tuple[str, tuple[int, ...], int]]]:
    return [record_one_step(sharding, precision) for sharding, precision in cases]


def check(plans: list[ShardingPlan], in_formats: list[ShardingPlan] | None = None) -> None:
    """All of one shape: they run one after another in the same processes. `in_formats`: those that also run in other formats than FP32."""
    for sharding in plans:
        validate(sharding)
    cases = [(sharding, FP32) for sharding in plans] + [(sharding, other) for sharding in in_formats or [] for other in (COMMS, UNLIKE)]
    recorded = run_ranks(record_each, plans[0].hosts, plans[0].ranks_per_host, cases, backend="recorded")
    for i, (sharding, precision) in enumerate(cases):
        dense_parameters = sum(len(t.features) * t.dim for t in sharding.tables) + 1
        steps = lower(sharding, access(sharding.tables, LENGTHS), precision, workload(BATCH, dense_parameters))
        schemes = f"{precision.name}: " + ", ".join(dict.fromkeys(p.scheme for p in sharding.placements))
        for rank, collectives in enumerate(recorded):
            assert in_order_of_kind(collectives[i]) == in_order_of_kind(steps.collectives_of(rank)), f"{schemes}, rank {rank}"


def tables_for(schemes: tuple[str, ...]) -> tuple[Table, ...]:
    """TorchRec computes mean pooling wrongly under grid_shard, so the executor refuses it."""
    if "grid_shard" not in schemes:
        return TABLES
    return tuple(Table(t.name, t.rows, t.dim, t.features) for t in TABLES)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"{s[0]}x{s[1]}")
def test_recorded_collectives_equal_the_steps(shape: tuple[int, int]) -> None:
    plans = [plan(schemes, *shape, tables_for(schemes)) for schemes in MIXES]
    check(plans, in_formats=plans if shape == (2, 2) else plans[-1:])


@pytest.mark.timeout(120)
def test_hosts_and_ranks_without_a_shard_take_part_with_nothing() -> None:
    check([plan((scheme,), 2, 2, (Table("t0", 40, 16, ("a",)),)) for scheme in ("table_wise", "table_row_wise", "grid_shard")])


@pytest.mark.timeout(60)
def test_one_rank_communicates_nothing() -> None:
    sharding = plan(tuple(SCHEMES), 1, 1, tables_for(SCHEMES))
    assert lower(sharding, access(sharding.tables, LENGTHS), FP32, workload(BATCH)).collectives == ()
    assert run_ranks(record_one_step, 1, 1, sharding, backend="recorded") == [[]]
