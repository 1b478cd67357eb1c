"""Every loss of next items on four ranks, under every sharder and scheme that holds sequences: they train as one process does, and what
travels is what the steps count, the negatives' rows among it. Plans that add in one order have the same bits. To the bits of one process:
test_next_item_bits.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys_lab.base.losses import BINARY, LOSSES, SOFTMAX
from recsys_lab.data.batch import Batch
from recsys_lab.executor.groups import close_groups
from recsys_lab.executor.recorded import register, start_recording, stop_recording
from recsys_lab.executor.shard import shard
from recsys_lab.executor.sharded_model import ShardedModel
from recsys_lab.models.click_model import ModelInputs
from recsys_lab.models.initial import fill_tables, initialise_dense
from recsys_lab.models.sequence import Sequence
from recsys_lab.models.sequence.network import SequenceNetwork
from recsys_lab.plan import ShardingPlan
from recsys_lab.plan.lower import lower
from recsys_lab.tables import AccessStatistics, Table, TableAccess
from recsys_lab.train.objective import next_item_loss
from recsys_lab.train.same_bits import IN_ORDER
from tests.executor.sharded import FP32, gathered, hot_rows_of
from tests.models.sequences import SETTINGS, D
from tests.plan.plans import workload
from tests.plan.test_volume import in_order_of_kind
from tests.ranks import run_ranks
from tests.schemes.generated import plans_of_scheme, plans_of_sequences

SEED, LR, ROWS, STEPS, K = 5, 0.1, 24, 3, 3
BATCH = 12  # of a rank
FEATURES = ("item", "positive", "negative")
TABLE = (Table("item", ROWS, D, FEATURES, "none"),)
SHAPE = (2, 2)
#: Kind, group and bytes of a collective.
Sent = tuple[str, tuple[int, ...], int]
register()


@dataclass(frozen=True)
class Part:
    """Samples of one rank: features to the ids of each."""

    ids: dict[str, list[list[int]]]

    def batch(self, global_valid: int) -> Batch:
        rows = [own for name in FEATURES for own in self.ids[name]]
        values, lengths = torch.tensor([i for own in rows for i in own]), torch.tensor([len(own) for own in rows], dtype=torch.int32)
        sparse = KeyedJaggedTensor(list(FEATURES), values, lengths=lengths)
        samples = len(self.ids["item"])
        return Batch(None, sparse, torch.ones(samples), samples, global_valid)


def drawn(loss: str, samples: int, seed: int) -> Part:
    """Histories of one to five items, and negatives as the loss reads them."""
    draw = np.random.default_rng(seed)
    lengths = draw.integers(1, 6, samples)
    each = {"binary": 2 * lengths, "sampled_softmax": np.full(samples, K)}.get(loss, np.zeros(samples, int))
    sizes = {"item": lengths, "positive": lengths, "negative": each}
    ids = {name: [draw.integers(1, ROWS, n).tolist() for n in own] for name, own in sizes.items()}
    if loss == "softmax":
        ids["negative"][0] = list(range(1, ROWS))
    return Part(ids)


def even(loss: str, seed: int) -> Part:
    """Each row once in each feature, so that the steps, which know no row's own look-ups, are exact."""
    draw, each = np.random.default_rng(seed), ROWS // BATCH
    ids = {name: draw.permutation(ROWS).reshape(BATCH, each).tolist() for name in FEATURES}
    if loss == "softmax":
        ids["negative"] = [list(range(ROWS)), *([[]] * (BATCH - 1))]
    return Part(ids)


def network(loss: str, device: str) -> SequenceNetwork:
    options = SETTINGS | {"loss": loss, "temperature": None if loss == "binary" else 0.5}
    model = Sequence(**options).build(ModelInputs(TABLE, 0, torch.device(device)))
    assert isinstance(model, SequenceNetwork)
    return model


def plans(every: bool) -> list[ShardingPlan]:
    """Of every sharder; every: and of every scheme."""
    return plans_of_sequences(TABLE, *SHAPE) + (plans_of_scheme(TABLE, *SHAPE) if every else [])


def sharded(loss: str, sharding: ShardingPlan) -> ShardedModel:
    how: Any = ("sgd", LR, 1e-8, 0.0)
    return shard(network(loss, "meta"), sharding, torch.device("cpu"), how, FP32, SEED, hot_rows=hot_rows_of(sharding))


def stepped(model: ShardedModel, dense: torch.optim.Optimizer, loss: str, part: Part, samples: int) -> Tensor:
    dense.zero_grad()
    model.sparse_optimizer.zero_grad()
    batch = part.batch(samples)
    value = next_item_loss(model.module(None, batch.sparse), batch, dist.get_world_size(), loss=loss, mean_length=2.0)
    value.backward()
    dense.step()
    model.sparse_optimizer.step()
    return value.detach()


def train_and_record(
    losses: tuple[str, ...], every: bool
) -> list[tuple[list[Tensor], dict[str, Tensor], list[tuple[str, tuple[int, ...], int]]]]:
    """Of each loss and plan: the losses of the steps, the tables after them, and what one more step sends."""
    found = []
    for loss in losses:
        for sharding in plans(every):
            model = sharded(loss, sharding)
            dense = torch.optim.SGD((p for _, p in model.dense_parameters()), lr=LR)
            rank, world = dist.get_rank(), dist.get_world_size()
            values = [stepped(model, dense, loss, drawn(loss, BATCH, 10 * step + rank), BATCH * world) for step in range(STEPS)]
            tables = {name: weight.clone() for name, weight in gathered(model, TABLE)[0].items()}
            for step in range(3):
                if step == 2:
                    start_recording()
                stepped(model, dense, loss, even(loss, rank), BATCH * world)
            found.append((values, tables, [(one.kind, one.group, one.bytes) for one in stop_recording()]))
            close_groups()
    return found


def unsharded(loss: str, world: int) -> tuple[list[Tensor], Tensor]:
    """The same on one device, part after part."""
    model = network(loss, "cpu")
    initialise_dense(model, SEED, torch.device("cpu"))
    fill_tables(model.embeddings, TABLE, SEED)
    optimizer, values = torch.optim.SGD(model.parameters(), lr=LR), []
    for step in range(STEPS):
        optimizer.zero_grad()
        batches = [drawn(loss, BATCH, 10 * step + rank).batch(BATCH * world) for rank in range(world)]
        parts = [next_item_loss(model(None, batch.sparse), batch, 1, loss=loss, mean_length=2.0) for batch in batches]
        value = torch.stack(parts).sum()
        value.backward()
        optimizer.step()
        values.append(value.detach())
    return values, model.embeddings.embeddings["item"].weight.detach()


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("losses", "every"), [((BINARY, SOFTMAX), False), pytest.param(LOSSES, True, marks=pytest.mark.long)])
def test_losses_train_as_one_process_and_send_what_the_steps_count(losses: tuple[str, ...], every: bool) -> None:
    ranks = run_ranks(train_and_record, *SHAPE, losses, every, backend="recorded", timeout_s=500)
    world, case = SHAPE[0] * SHAPE[1], 0
    each = len(FEATURES) / BATCH
    access = AccessStatistics({"item": TableAccess("item", ROWS * each, (ROWS,), (each,), "formula", "by hand")})
    for loss in losses:
        values, table = unsharded(loss, world)
        dense = sum(p.numel() for name, p in network(loss, "meta").named_parameters() if not name.startswith("embeddings."))
        in_order: Tensor | None = None
        for sharding in plans(every):
            what = f"{loss}, {sharding.sharder} {sharding.placements[0].scheme}"
            steps = lower(sharding, access, FP32, workload(BATCH, dense))
            mean = torch.stack([torch.stack(rank[case][0]) for rank in ranks]).mean(0)
            torch.testing.assert_close(mean, torch.stack(values), rtol=1e-5, atol=1e-6, msg=lambda m, what=what: f"{what}: {m}")
            for number, rank in enumerate(ranks):
                torch.testing.assert_close(rank[case][1]["item"], table, rtol=2e-5, atol=1e-6, msg=lambda m, what=what: f"{what}: {m}")
                expected = in_order_of_kind([(k, g, round(size)) for k, g, size in steps.collectives_of(number)])
                assert in_order_of_kind(rank[case][2]) == expected, f"{what}, rank {number}"
            if sharding.placements[0].scheme in IN_ORDER:
                in_order = ranks[0][case][1]["item"] if in_order is None else in_order
                assert torch.equal(ranks[0][case][1]["item"], in_order), f"{what}: other bits than a plan that adds in the same order"
            case += 1
        assert in_order is not None
