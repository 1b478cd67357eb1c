"""Models for the next item on two and four ranks, under every sharder and scheme that holds sequences: the bits of one process.

The one process has whole tables. It computes the ranks' parts of a batch one after the other, and adds what the ranks add in their order.
Gradients of a row are added in the order of the global batch, feature by feature. Of a row with several copies the ranks of each copy come
first, then the copies. Copies, and dense gradients, are averaged in the order of gloo's ring, which is an order of ranks that depends on
where in the buffer a number stands.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
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
from recsys_lab.train.model_executor import settle_buckets
from recsys_lab.train.objective import next_item_loss
from tests.executor.sharded import FP32, dense_of, gathered, hot_rows_of
from tests.executor.test_next_item_losses import BATCH, LR, ROWS, SEED, TABLE, drawn
from tests.models.sequences import SETTINGS, D
from tests.models.test_hstu import SIZES
from tests.ranks import run_ranks
from tests.schemes.generated import plans_of_scheme, plans_of_sequences

STEPS, EPS, MEAN_LENGTH = 3, 1e-8, 2.0
SHAPES = ((1, 2), (2, 1), (2, 2), (1, 4))
#: Of tables, in turns. Row-wise Adagrad and LAMB depend on columns of a shard.
OPTIMIZERS = ("adam", "sgd", "adagrad")
DROPOUT = 0.2


@dataclass(frozen=True)
class Rows:
    """Of the table, in the order in which a rank has them. `groups`: ranks whose samples are added first; one group: all of them."""

    items: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Case:
    """A training on `ranks`. `plan` None: in one process, which adds the gradients of `rows` as they say."""

    model: str
    loss: str
    optimizer: str
    plan: ShardingPlan | None
    ranks: int
    rows: tuple[Rows, ...]

    @property
    def alone(self) -> Case:
        return replace(self, plan=None)

    def __str__(self) -> str:
        plan = "one process" if self.plan is None else f"{self.plan.sharder} {self.plan.placements[0]}"
        return f"{self.model}, {self.loss}, {self.optimizer}, {plan}"


@dataclass
class End:
    """Each step's loss of each part, the table, and the dense part at the end."""

    losses: list[Tensor]
    table: Tensor
    dense: dict[str, Tensor]


def network(case: Case, device: str) -> ClickModel:
    told: dict[str, Any] = {"loss": case.loss, "temperature": None if case.loss == BINARY else 0.5, "dropout": DROPOUT}
    inputs = ModelInputs(TABLE, 0, torch.device(device))
    if case.model == "hstu":
        return HSTU(**{"embedding_dim": D, "objective": "next_item"} | SIZES | told).build(inputs)
    return Sequence(**SETTINGS | told).build(inputs)


def rows_of(plan: ShardingPlan) -> tuple[Rows, ...]:
    """Those of each shard, but for columns."""
    items, ranks = np.arange(ROWS), range(plan.world_size)
    hot = hot_rows_of(plan).get("item", items[:0])
    items = np.concatenate([hot, np.setdiff1d(items, hot)])
    held: dict[tuple[int, int], tuple[int, ...]] = {(one.row_start, one.row_stop): one.ranks for one in plan.placements[0].shards}
    return tuple(Rows(tuple(items[start:stop].tolist()), groups_of(copies, ranks)) for (start, stop), copies in held.items())


def groups_of(copies: tuple[int, ...], ranks: range) -> tuple[tuple[int, ...], ...]:
    """The ranks that exchange with each of the ranks that have a copy: hosts of two ranks, or one rank of each of two hosts."""
    if len(copies) in (1, len(ranks)):
        return (tuple(ranks),) if len(copies) == 1 else tuple((rank,) for rank in ranks)
    within_hosts = copies[1] - copies[0] == 2
    return tuple(tuple(r for r in ranks if (r // 2 if within_hosts else r % 2) == number) for number in range(2))


def cases(hosts: int, ranks_per_host: int, every: bool) -> list[Case]:
    """Every sharder's plan with the binary loss and the softmax; `every`: every scheme's plans and each loss. Models and optimizers in
    turns.
    """
    plans, losses = plans_of_sequences(TABLE, hosts, ranks_per_host), LOSSES if every else (BINARY, SOFTMAX)
    plans += plans_of_scheme(TABLE, hosts, ranks_per_host) if every else []
    models = ("sequence", "hstu")
    return [
        Case(models[(n + k) % 2], loss, OPTIMIZERS[(n + k) % 3], plan, plan.world_size, rows_of(plan))
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
    settle_buckets(model, part_of(case, 0, dist.get_rank()))
    dense, losses = torch.optim.AdamW((p for _, p in model.dense_parameters()), lr=LR), []
    for step in range(STEPS):
        dense.zero_grad()
        model.sparse_optimizer.zero_grad()
        batch = part_of(case, step, dist.get_rank())
        loss = next_item_loss(model.module(None, batch.sparse), batch, case.ranks, loss=case.loss, mean_length=MEAN_LENGTH)
        loss.backward()
        dense.step()
        model.sparse_optimizer.step()
        losses.append(loss.detach())
    end = End(losses, gathered(model, TABLE)[0]["item"], dense_of(model))
    close_groups()
    return end


def part_of(case: Case, step: int, rank: int) -> Any:
    """That rank's part of the step's batch. Its dropout follows."""
    torch.manual_seed(100 * step + rank)
    return drawn(case.loss, BATCH, 10 * step + rank).batch(BATCH * case.ranks)


def in_one_process(trainings: list[Case]) -> list[End]:
    return [alone(case) for case in trainings]


def alone(case: Case) -> End:
    """The same in one process, with the whole table."""
    model: Any = network(case, "cpu")
    initialise_dense(model, SEED, torch.device("cpu"))
    table = initial_weight(TABLE[0], 0, ROWS, 0, D, SEED)
    parameters = {name: p for name, p in model.named_parameters() if not name.startswith("embeddings.")}
    ready = list[str]()  # names, as gradients become ready: so DistributedDataParallel lays them out
    for name, parameter in parameters.items():
        parameter.register_post_accumulate_grad_hook(lambda _, name=name: ready.append(name))
    dense, losses = torch.optim.AdamW(parameters.values(), lr=LR), []
    states = [torch.zeros_like(table) if wanted else None for wanted in (STATE_OF[case.optimizer], case.optimizer in WITH_SQUARES)]
    for step in range(1, STEPS + 1):
        parts, grads = [], []
        for rank in range(case.ranks):
            dense.zero_grad()
            ready.clear()
            batch = part_of(case, step - 1, rank)
            rows = {name: table[batch.sparse[name].values()].requires_grad_() for name in TABLE[0].features}
            looked_up = {name: JaggedTensor(rows[name], lengths=batch.sparse[name].lengths()) for name in rows}
            outputs = model.predict(Told.of(batch.sparse), looked_up)
            loss = next_item_loss(outputs, batch, case.ranks, loss=case.loss, mean_length=MEAN_LENGTH)
            loss.backward()
            losses.append(loss.detach())
            parts.append(torch.cat([parameters[name].grad.flatten() for name in ready]) / case.ranks)
            grads.append([(batch.sparse[name].values(), own.grad / case.ranks) for name, own in rows.items() if own.grad is not None])
        sizes = [parameters[name].numel() for name in ready]
        for name, grad in zip(ready, in_ring(parts).split(sizes)):
            parameters[name].grad = grad.view_as(parameters[name])
        dense.step()
        total = torch.empty(ROWS, D)
        for some in case.rows:
            sums = [added([one for of_feature in zip(*(grads[rank] for rank in group)) for one in of_feature]) for group in some.groups]
            items = torch.tensor(some.items, dtype=torch.int64)
            total[items] = in_ring([own[items].flatten() for own in sums]).view(len(items), D)
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


def in_ring(parts: list[Tensor]) -> Tensor:
    """The sum of the ranks' `parts` [n], as gloo adds less than a megabyte: chunk c from rank c - 1 downwards."""
    ranks, size, total = len(parts), len(parts[0]), torch.empty_like(parts[0])
    segment = -(-4 * size // (2 * ranks))
    chunk = 2 * (-(-segment // 4))
    for number in range(ranks):
        part = slice(number * chunk, (number + 1) * chunk)
        own = [parts[(number - 1 - one) % ranks][part] for one in range(ranks)]
        total[part] = sum(own[1:], own[0])
    return total


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("shape", "every"), [((2, 2), False), *(pytest.param(shape, True, marks=pytest.mark.long) for shape in SHAPES)])
def test_ranks_have_the_bits_of_one_process(shape: tuple[int, int], every: bool) -> None:
    trainings = cases(*shape, every)
    different = list(dict.fromkeys(case.alone for case in trainings))
    (ends,) = run_ranks(in_one_process, 1, 1, different, timeout_s=250)
    expected = dict(zip(different, ends))
    for case, *ranks in zip(trainings, *run_ranks(on_ranks, *shape, trainings, timeout_s=250)):
        whole = expected[case.alone]
        for rank, end in enumerate(ranks):
            assert torch.equal(torch.stack(end.losses), torch.stack(whole.losses[rank :: case.ranks])), f"{case}: losses of rank {rank}"
            assert torch.equal(end.table, whole.table), f"{case}: the table of rank {rank}"
            assert end.dense.keys() == whole.dense.keys()
            for name, weight in whole.dense.items():
                assert torch.equal(end.dense[name], weight), f"{case}: {name} of rank {rank}"
