"""Equal ids of a rank's batch travel once: what that saves, what stays the same bits, and what it does not touch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torchrec.modules.embedding_configs import EmbeddingConfig
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys_lab.data.loader import RankLoader
from recsys_lab.data.protocol import Feature
from recsys_lab.data.random_ids import open_random
from recsys_lab.executor.distinct_ids import Deduplication
from recsys_lab.executor.groups import close_groups
from recsys_lab.executor.recorded import register, start_recording, stop_recording
from recsys_lab.plan import ShardingPlan
from recsys_lab.plan.lower import lower
from recsys_lab.plan.steps import Steps
from recsys_lab.schemes.tiers.placement import in_tiers
from recsys_lab.tables import Table
from tests.executor.reference import Outcome, Sample
from tests.executor.sharded import build, dense_optimizer_of, hot_rows_of, train
from tests.plan.plans import FLAT_SCHEMES, FP32, SCHEMES, access, plan, workload
from tests.ranks import run_ranks

HOSTS, LOCAL, RANKS = 2, 2, 4
SEQUENCES = (Table("item", 64, 16, ("left", "right"), "none"), Table("odd", 43, 16, ("alone",), "none"))
register()


def plan_of(scheme: str, tables: tuple[Table, ...], hosts: int, local: int) -> ShardingPlan:
    if scheme != "tiers":
        return plan((scheme,), hosts, local, tables)
    placements = tuple(in_tiers(table, table.rows // 8, table.rows // 4, hosts, local) for table in tables)
    return ShardingPlan("by_hand", hosts, local, tables, placements)


def own_ids(steps: int) -> list[Sample]:
    """Three samples a rank, whose ids no other rank has."""
    draw, rows = np.random.default_rng(4), 3 * RANKS

    def bag(row: int, table: Table) -> list[int]:
        return (draw.integers(0, 10, draw.integers(0, 9)) * RANKS + row // 3).tolist()

    ids = [{f: [bag(row, t) for row in range(rows)] for t in SEQUENCES for f in t.features} for _ in range(steps)]
    return [Sample(torch.rand(rows, 3), torch.from_numpy(draw.integers(0, 2, rows)).float(), one) for one in ids]


def train_both(plans: list[ShardingPlan], batches: list[Sample]) -> list[tuple[Outcome, Outcome]]:
    return [tuple(train(SEQUENCES, one, batches, "adagrad", 3, dedup=dedup) for dedup in (False, True)) for one in plans]  # type: ignore[misc]


def test_rows_that_one_rank_alone_looks_up_have_the_same_bits() -> None:
    """A row's gradients are added up in the order of its ids, on the way or before it. Of other rows the ranks' sums are added up."""
    schemes = ("row_wise", "table_wise", "column_wise", "tiers")
    plans = [plan_of(scheme, SEQUENCES, HOSTS, LOCAL) for scheme in schemes]
    for of_rank in run_ranks(train_both, HOSTS, LOCAL, plans, own_ids(steps=3)):
        for scheme, (off, on) in zip(schemes, of_rank):
            assert torch.equal(off.logits, on.logits), scheme
            assert all(torch.equal(off.tables[name], on.tables[name]) for name in off.tables), scheme


#: Of generated histories: rows, look-ups and samples a rank.
ROWS, LENGTH, BATCH, BATCHES = 4000, 25, 64, 6
HISTORIES = (Feature("item", ROWS, LENGTH, "none", "item"), Feature("candidate", ROWS, 1.0, "none", "item"))
TABLES = (Table("item", ROWS, 8, ("item", "candidate"), "none"),)


def histories():
    sizes = {"rows_train": 10_000, "rows_validation": 10, "rows_test": 0}
    return open_random(HISTORIES, **sizes, rows_per_table=[1], look_ups=None, dense_features=3, exponent=1.1, seed_of_draws=5)


def sent_by_rank(plans: list[ShardingPlan]) -> list[tuple[int, int]]:
    """Bytes of this rank's all-to-alls in some steps without and with dedup, plan by plan."""
    return [(_sent(one, dedup=False), _sent(one, dedup=True)) for one in plans]


def _sent(sharding: ShardingPlan, dedup: bool) -> int:
    data = histories()
    hot = {name: data.hottest(name, len(rows)) for name, rows in hot_rows_of(sharding).items()}
    sharded = build(TABLES, sharding, "sgd", 3, hot, dedup=dedup)
    dense, ranks = dense_optimizer_of(sharded), sharding.world_size
    how = {"batch_size": ranks * BATCH, "rank": dist.get_rank(), "world_size": ranks, "seed": 3, "prefetch_batches": 0, "pin_memory": False}
    start_recording()
    for _, batch in zip(range(BATCHES), RankLoader(data.splits["train"], data, shuffle=True, **how)):  # type: ignore[arg-type]
        sharded.sparse_optimizer.zero_grad()
        dense.zero_grad()
        sharded.module(batch.dense, batch.sparse).sum().backward()
        sharded.sparse_optimizer.step()
    close_groups()
    return sum(one.bytes for one in stop_recording() if one.kind == "all_to_all")


def test_the_saving_is_what_the_access_law_says() -> None:
    """Within 3 %, on generated histories, of each scheme of sequences: of all bytes that leave, over all ranks and some batches."""
    schemes = [name for name in FLAT_SCHEMES if SCHEMES[name].sequences and name != "data_parallel"]
    assert {"row_wise", "table_wise", "column_wise", "flexshard"} <= set(schemes)
    plans = [plan_of(scheme, TABLES, HOSTS, LOCAL) for scheme in schemes]
    recorded = np.sum(run_ranks(sent_by_rank, HOSTS, LOCAL, plans, backend="recorded"), axis=0) / BATCHES  # [plans, off and on]
    law = histories().access

    def of_law(sharding: ShardingPlan, dedup: bool) -> float:
        steps: Steps = lower(sharding, law, FP32, workload(BATCH, dedup=dedup))
        return sum(step.bytes_on(rank) for step in steps.collectives if step.kind == "all_to_all" for rank in range(RANKS))

    for scheme, sharding, (off, on) in zip(schemes, plans, recorded):
        expected = of_law(sharding, False) - of_law(sharding, True)
        assert off - on == pytest.approx(expected, rel=0.03), scheme
        assert on < (0.97 if scheme == "flexshard" else 0.6) * off, f"{scheme}: there was nothing to save"  # its hot rows do not travel


def test_ids_become_distinct_and_rows_come_back() -> None:
    tables = [EmbeddingConfig(name="a", num_embeddings=9, embedding_dim=2, feature_names=["x", "y"])]
    other = [EmbeddingConfig(name="b", num_embeddings=5, embedding_dim=2, feature_names=["z"])]
    lengths = torch.tensor([2, 3, 0, 2, 1, 1], dtype=torch.int32)
    batch = KeyedJaggedTensor(["z", "x", "y"], torch.tensor([4, 4, 8, 1, 8, 1, 3, 1, 2][: int(lengths.sum())]), lengths=lengths)
    distinct = Deduplication(tables, other, torch.device("cpu")).of(batch)
    assert distinct.features.keys() == ["x", "y", "z"]
    ids = torch.cat([distinct.features[name].values() for name in ("x", "y")])
    assert ids.tolist() == sorted(set(torch.cat([batch[name].values() for name in ("x", "y")]).tolist()))
    assert torch.equal(distinct.features["z"].values(), batch["z"].values())
    assert distinct.features.lengths()[:4].max() <= distinct.features.lengths()[:4].min() + 1
    weights = torch.rand(9, 2, requires_grad=True)
    looked_up = {name: replace_values(distinct.features[name], weights) for name in ("x", "y")}
    rows = distinct.copied(looked_up)
    for name in ("x", "y"):
        assert torch.equal(rows[name].values(), weights[batch[name].values()])
        assert torch.equal(rows[name].lengths(), batch[name].lengths())
    (rows["x"].values().sum() + 2 * rows["y"].values().sum()).backward()
    plain = torch.zeros(9, 2).index_add_(0, batch["x"].values(), torch.ones(len(batch["x"].values()), 2))
    plain.index_add_(0, batch["y"].values(), torch.full((len(batch["y"].values()), 2), 2.0))
    assert torch.equal(weights.grad, plain)


def replace_values(feature, weights: torch.Tensor):
    return type(feature)(weights[feature.values()], lengths=feature.lengths())


def test_steps_of_bags_and_of_a_rank_that_is_alone_stay_as_they_are() -> None:
    for tables, hosts, local in ((SEQUENCES, 1, 1), (tuple(replace(t, pooling="sum") for t in SEQUENCES), 2, 2)):
        sharding = plan(("row_wise",), hosts, local, tables)
        law = access(tables, {f: 3.0 for t in tables for f in t.features})
        assert lower(sharding, law, FP32, workload(dedup=True)) == lower(sharding, law, FP32, workload())
