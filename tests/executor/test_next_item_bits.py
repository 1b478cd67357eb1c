"""Models for the next item on two ranks, under every sharder and scheme that holds sequences: the bits of one process.

The one process has whole tables. It computes the two halves of a batch one after the other, and adds what the ranks would add in the order
in which they would: a row's gradients in the order of the global batch, or of a row with two copies each half's first; then the means of
the dense gradients. Two numbers have one sum, so there is no other order. On more ranks gloo's ring decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torchrec.sparse.jagged_tensor import JaggedTensor

from recsys_lab.base.losses import BINARY, LOSSES, SOFTMAX
from recsys_lab.executor.groups import close_groups
from recsys_lab.executor.shard import shard
from recsys_lab.kernels import Lookups, Rule, torch_embedding
from recsys_lab.kernels.rule import STATE_OF, WITH_SQUARES
from recsys_lab.models.click_model import ClickModel, ModelInputs
from recsys_lab.models.hstu import HSTU
from recsys_lab.models.initial import initialise_dense
from recsys_lab.models.next_item import Told
from recsys_lab.models.sequence import Sequence
from recsys_lab.models.table_weights import initial_weight
from recsys_lab.plan import ShardingPlan
from recsys_lab.train.objective import next_item_loss
from tests.executor.sharded import FP32, dense_of, gathered, hot_rows_of
from tests.executor.test_next_item_losses import BATCH, LR, ROWS, SEED, TABLE, drawn
from tests.models.sequences import SETTINGS, D
from tests.models.test_hstu import SIZES
from tests.ranks import run_ranks
from tests.schemes.generated import plans_of_scheme, plans_of_sequences

RANKS, STEPS, EPS, MEAN_LENGTH = 2, 3, 1e-8, 2.0
SHAPES = ((1, 2), (2, 1))
#: Of tables, in turns. Row-wise Adagrad and LAMB depend on columns of a shard.
OPTIMIZERS = ("adam", "sgd", "adagrad")
DROPOUT = 0.2


@dataclass(frozen=True)
class Case:
    """A training. `plan` None: in one process, where the rows `apart` (bool [ROWS]) have two copies."""

    model: str
    loss: str
    optimizer: str
    plan: ShardingPlan | None
    apart: tuple[bool, ...]

    @property
    def alone(self) -> Case:
        return Case(self.model, self.loss, self.optimizer, None, self.apart)

    def __str__(self) -> str:
        plan = "one process" if self.plan is None else f"{self.plan.sharder} {self.plan.placements[0]}"
        return f"{self.model}, {self.loss}, {self.optimizer}, {plan}"


@dataclass
class End:
    """Each step's loss of each half, the table, its optimizer state, and the dense part at the end."""

    losses: list[Tensor]
    table: Tensor
    dense: dict[str, Tensor]


def network(case: Case, device: str) -> ClickModel:
    told: dict[str, Any] = {"loss": case.loss, "temperature": None if case.loss == BINARY else 0.5, "dropout": DROPOUT}
    inputs = ModelInputs(TABLE, 0, torch.device(device))
    if case.model == "hstu":
        return HSTU(**{"embedding_dim": D, "objective": "next_item"} | SIZES | told).build(inputs)
    return Sequence(**SETTINGS | told).build(inputs)


def with_two_copies(plan: ShardingPlan) -> tuple[bool, ...]:
    """Of each item, whether both ranks hold its row."""
    ids, apart = np.arange(ROWS), np.zeros(ROWS, bool)
    hot = hot_rows_of(plan).get("item", ids[:0])
    ids = np.concatenate([hot, np.setdiff1d(ids, hot)])
    for one in plan.placements[0].shards:
        apart[ids[one.row_start : one.row_stop]] = len(one.ranks) == RANKS
    return tuple(apart.tolist())


def cases(hosts: int, ranks_per_host: int, losses: tuple[str, ...]) -> list[Case]:
    """Every sharder's plan and every scheme's, with each loss, models and optimizers in turns."""
    plans = plans_of_sequences(TABLE, hosts, ranks_per_host) + plans_of_scheme(TABLE, hosts, ranks_per_host)
    models = ("sequence", "hstu")
    return [
        Case(models[(n + k) % 2], loss, OPTIMIZERS[(n + k) % 3], plan, with_two_copies(plan))
        for n, plan in enumerate(plans)
        for k, loss in enumerate(losses)
    ]


def on_ranks(trainings: list[Case]) -> list[End]:
    return [trained(case) for case in trainings]


def trained(case: Case) -> End:
    """One rank's part of a training."""
    assert case.plan is not None
    model = shard(
        network(case, "meta"), case.plan, torch.device("cpu"), (case.optimizer, LR, EPS, 0.0), FP32, SEED, hot_rows=hot_rows_of(case.plan)
    )
    dense, losses = torch.optim.AdamW((p for _, p in model.dense_parameters()), lr=LR), []
    for step in range(STEPS):
        dense.zero_grad()
        model.sparse_optimizer.zero_grad()
        batch = part_of(case, step, dist.get_rank())
        loss = next_item_loss(model.module(None, batch.sparse), batch, RANKS, loss=case.loss, mean_length=MEAN_LENGTH)
        loss.backward()
        dense.step()
        model.sparse_optimizer.step()
        losses.append(loss.detach())
    end = End(losses, gathered(model, TABLE)[0]["item"], dense_of(model))
    close_groups()
    return end


def part_of(case: Case, step: int, rank: int) -> Any:
    """That rank's half of the step's batch. Its dropout follows."""
    torch.manual_seed(100 * step + rank)
    return drawn(case.loss, BATCH, 10 * step + rank).batch(BATCH * RANKS)


def in_one_process(trainings: list[Case]) -> list[End]:
    return [alone(case) for case in trainings]


def alone(case: Case) -> End:
    """The same in one process, with the whole table."""
    model: Any = network(case, "cpu")
    initialise_dense(model, SEED, torch.device("cpu"))
    table, apart = initial_weight(TABLE[0], 0, ROWS, 0, D, SEED), torch.tensor(case.apart)
    parameters = {name: p for name, p in model.named_parameters() if not name.startswith("embeddings.")}
    dense, losses = torch.optim.AdamW(parameters.values(), lr=LR), []
    states = [torch.zeros_like(table) if wanted else None for wanted in (STATE_OF[case.optimizer], case.optimizer in WITH_SQUARES)]
    for step in range(1, STEPS + 1):
        halves, grads = [], []
        for rank in range(RANKS):
            dense.zero_grad()
            batch = part_of(case, step - 1, rank)
            rows = {name: table[batch.sparse[name].values()].requires_grad_() for name in TABLE[0].features}
            looked_up = {name: JaggedTensor(rows[name], lengths=batch.sparse[name].lengths()) for name in rows}
            outputs = model.predict(Told.of(batch.sparse), looked_up)
            loss = next_item_loss(outputs, batch, RANKS, loss=case.loss, mean_length=MEAN_LENGTH)
            loss.backward()
            losses.append(loss.detach())
            halves.append({name: p.grad.clone() for name, p in parameters.items() if p.grad is not None})
            grads.append([(batch.sparse[name].values(), own.grad / RANKS) for name, own in rows.items() if own.grad is not None])
        for name in halves[0]:
            parameters[name].grad = halves[0][name] / RANKS + halves[1][name] / RANKS
        dense.step()
        of_batch = added([one for of_feature in zip(*grads) for one in of_feature])
        of_copies = added(grads[0]) + added(grads[1])
        total = torch.where(apart[:, None], of_copies, of_batch)
        touched = total.ne(0).any(1).nonzero().squeeze(1)
        rule = Rule(case.optimizer, LR, EPS, step=step)
        torch_embedding.update(table, None, states[0], Lookups(touched), total[touched], rule, states[1])
    return End(losses, table, {name: p.detach().clone() for name, p in parameters.items()})


def added(grads: list[tuple[Tensor, Tensor]]) -> Tensor:
    """[ROWS, D]: each row's gradients, one after the other."""
    total = torch.zeros(ROWS, D)
    for ids, of_ids in grads:
        for row, grad in zip(ids.tolist(), of_ids):
            total[row] += grad
    return total


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("shape", "losses"), [((1, 2), (BINARY, SOFTMAX)), *(pytest.param(shape, LOSSES, marks=pytest.mark.long) for shape in SHAPES)]
)
def test_two_ranks_have_the_bits_of_one_process(shape: tuple[int, int], losses: tuple[str, ...]) -> None:
    trainings = cases(*shape, losses)
    different = list(dict.fromkeys(case.alone for case in trainings))
    (ends,) = run_ranks(in_one_process, 1, 1, different, timeout_s=250)
    expected = dict(zip(different, ends))
    for ranks in zip(trainings, *run_ranks(on_ranks, *shape, trainings, timeout_s=250)):
        case, whole = ranks[0], expected[ranks[0].alone]
        for rank, end in enumerate(ranks[1:]):
            assert torch.equal(torch.stack(end.losses), torch.stack(whole.losses[rank::RANKS])), f"{case}: losses of rank {rank}"
            assert torch.equal(end.table, whole.table), f"{case}: the table of rank {rank}"
            assert end.dense.keys() == whole.dense.keys()
            for name, weight in whole.dense.items():
                assert torch.equal(end.dense[name], weight), f"{case}: {name} of rank {rank}"
