"""Side columns under every scheme that holds sequences: they train as one process does, and what travels is what the steps count.

An event has a rating and several genres, a user an age. Each has a table of its own, cut as the items' is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys_lab.base.losses import BINARY
from recsys_lab.data.batch import Batch, Events
from recsys_lab.executor.groups import close_groups
from recsys_lab.executor.recorded import register, start_recording, stop_recording
from recsys_lab.executor.shard import shard
from recsys_lab.executor.sharded_model import ShardedModel
from recsys_lab.models.click_model import ModelInputs
from recsys_lab.models.hstu import HSTU
from recsys_lab.models.hstu.network import HSTUNetwork
from recsys_lab.models.initial import fill_tables, initialise_dense
from recsys_lab.plan import ShardingPlan
from recsys_lab.plan.lower import lower
from recsys_lab.tables import Table
from recsys_lab.train.objective import next_item_loss
from tests.executor.sharded import FP32, gathered, hot_rows_of
from tests.models.sequences import D
from tests.models.test_hstu import SIZES
from tests.plan.plans import access, flexshard, plan, workload
from tests.plan.test_volume import in_order_of_kind
from tests.ranks import run_ranks

SEED, LR, STEPS, SHAPE = 5, 0.1, 3, (2, 2)
BATCH, EVENTS, GENRES = 12, 2, 2  # samples of a rank, and in even batches events of each and genres of each event
TABLES = (
    Table("item", BATCH * EVENTS, D, ("item", "positive", "negative"), "none"),
    Table("side_rating", BATCH * EVENTS, D, ("side_rating",), "none"),
    Table("side_genres", BATCH * EVENTS * GENRES, D, ("side_genres",), "none"),
    Table("user_age", BATCH, D, ("user_age",), "none"),
)
LENGTHS: dict[str, float] = dict.fromkeys(("item", "positive", "negative", "side_rating"), EVENTS)
LENGTHS |= {"side_genres": EVENTS * GENRES, "user_age": 1}
SCHEMES = ("row_wise", "data_parallel", "table_wise", "column_wise")
register()


def batch_of(ids: dict[str, list[list[int]]], counts: np.ndarray, global_valid: int) -> Batch:
    rows = [own for name in ids for own in ids[name]]
    values, lengths = torch.tensor([i for own in rows for i in own]), torch.tensor([len(own) for own in rows], dtype=torch.int32)
    sparse, none = KeyedJaggedTensor(list(ids), values, lengths=lengths), torch.zeros(len(counts), dtype=torch.int64)
    events = Events(none, none.to(torch.uint8), torch.zeros(BATCH, dtype=torch.int64), {"side_genres": torch.from_numpy(counts)})
    return Batch(None, sparse, torch.ones(BATCH), BATCH, global_valid, events)


def drawn(seed: int, world: int) -> Batch:
    """Histories of one to five items with one to three genres each."""
    draw = np.random.default_rng(seed)
    lengths = draw.integers(1, 6, BATCH)
    counts = draw.integers(1, 4, lengths.sum())
    genres = np.add.reduceat(counts, np.cumsum(lengths) - lengths)
    sizes = {"side_genres": genres, "user_age": np.ones(BATCH, int)}
    ids = {
        name: [draw.integers(1, table.rows, n).tolist() for n in sizes.get(name, lengths)] for table in TABLES for name in table.features
    }
    return batch_of(ids, counts, BATCH * world)


def even(seed: int, world: int) -> Batch:
    """Each row once in each feature, so that the steps, which know no row's own look-ups, are exact."""
    draw = np.random.default_rng(seed)
    ids = {name: draw.permutation(table.rows).reshape(BATCH, -1).tolist() for table in TABLES for name in table.features}
    return batch_of(ids, np.full(BATCH * EVENTS, GENRES), BATCH * world)


def network(device: str) -> HSTUNetwork:
    model = HSTU(embedding_dim=D, objective="next_item", **SIZES).build(ModelInputs(TABLES, 0, torch.device(device)))
    assert isinstance(model, HSTUNetwork)
    return model


def plans(every: bool) -> list[ShardingPlan]:
    """FlexShard with three tiers, and rows over all ranks; every: TorchRec's other schemes and two tiers too."""
    tiered = []
    for replicated, host_sharded in ((4, 8), (8, 0))[: 1 + every]:
        placements = tuple(flexshard(table, replicated, min(host_sharded, table.rows - 8), *SHAPE) for table in TABLES)
        tiered.append(ShardingPlan("tiers", *SHAPE, TABLES, placements))
    return [*tiered, *(plan((scheme,), *SHAPE, TABLES) for scheme in SCHEMES[: len(SCHEMES) if every else 1])]


def stepped(model: ShardedModel, dense: torch.optim.Optimizer, batch: Batch) -> Tensor:
    dense.zero_grad()
    model.sparse_optimizer.zero_grad()
    scores = model.module(batch.values, batch.sparse)
    value = next_item_loss(scores, batch, dist.get_world_size(), loss=BINARY, mean_length=2.0)
    value.backward()
    dense.step()
    model.sparse_optimizer.step()
    return value.detach()


def train_and_record(every: bool) -> list[tuple[list[Tensor], dict[str, Tensor], list[tuple[str, tuple[int, ...], int]]]]:
    """Of each plan: the losses of the steps, the tables after them, and what one more step sends."""
    found = []
    rank, world = dist.get_rank(), dist.get_world_size()
    for sharding in plans(every):
        how: Any = ("sgd", LR, 1e-8, 0.0)
        model = shard(network("meta"), sharding, torch.device("cpu"), how, FP32, SEED, hot_rows=hot_rows_of(sharding))
        dense = torch.optim.SGD((p for _, p in model.dense_parameters()), lr=LR)
        values = [stepped(model, dense, drawn(10 * step + rank, world)) for step in range(STEPS)]
        tables = {name: weight.clone() for name, weight in gathered(model, TABLES)[0].items()}
        for step in range(3):
            if step == 2:
                start_recording()
            stepped(model, dense, even(rank, world))
        found.append((values, tables, [(one.kind, one.group, one.bytes) for one in stop_recording()]))
        close_groups()
    return found


def unsharded(world: int) -> tuple[list[Tensor], dict[str, Tensor]]:
    """The same on one device, part after part."""
    model = network("cpu")
    initialise_dense(model, SEED, torch.device("cpu"))
    fill_tables(model.embeddings, TABLES, SEED)
    optimizer, values = torch.optim.SGD(model.parameters(), lr=LR), []
    for step in range(STEPS):
        optimizer.zero_grad()
        batches = [drawn(10 * step + rank, world) for rank in range(world)]
        parts = [next_item_loss(model(batch.values, batch.sparse), batch, 1, loss=BINARY, mean_length=2.0) for batch in batches]
        value = torch.stack(parts).sum()
        value.backward()
        optimizer.step()
        values.append(value.detach())
    return values, {name: table.weight.detach() for name, table in model.embeddings.embeddings.items()}


@pytest.mark.timeout(180)
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.long)])
def test_side_columns_train_as_one_process_and_send_what_the_steps_count(every: bool) -> None:
    ranks = run_ranks(train_and_record, *SHAPE, every, backend="recorded", timeout_s=150)
    values, tables = unsharded(SHAPE[0] * SHAPE[1])
    dense = sum(p.numel() for name, p in network("meta").named_parameters() if not name.startswith("embeddings."))
    for case, sharding in enumerate(plans(every)):
        what = f"{sharding.sharder} {sharding.placements[0].scheme}"
        steps = lower(sharding, access(TABLES, LENGTHS), FP32, workload(BATCH, dense))
        mean = torch.stack([torch.stack(rank[case][0]) for rank in ranks]).mean(0)
        torch.testing.assert_close(mean, torch.stack(values), rtol=1e-5, atol=1e-6, msg=lambda m, what=what: f"{what}: {m}")
        for number, rank in enumerate(ranks):
            for name, table in tables.items():
                torch.testing.assert_close(rank[case][1][name], table, rtol=2e-5, atol=1e-6, msg=lambda m, what=what: f"{what}: {m}")
            expected = in_order_of_kind([(k, g, round(size)) for k, g, size in steps.collectives_of(number)])
            assert in_order_of_kind(rank[case][2]) == expected, f"{what}, rank {number}"
