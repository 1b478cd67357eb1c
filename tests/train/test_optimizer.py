"""One optimizer over two: the schedule reaches both at the same step, and clipping touches the dense arch alone."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from recsys_lab.config.options import DenseOptimizer, OptimizerOptions, Schedule, SparseOptimizer
from recsys_lab.executor.sharded_model import ShardedModel
from recsys_lab.train import optimizer as optimizer_of_dense
from recsys_lab.train.model_executor import json_of
from recsys_lab.train.optimizer import DenseAndTables, dense_optimizer, rate_ratio, scheduler, torch_optimizer
from recsys_lab.train.stored_optimizer import StoredOptimizer, make_state


def schedule(name: str, warmup: int = 0, final: float = 0.0, step_epochs: float = 1.0, gamma: float = 0.1) -> Schedule:
    return Schedule(name=name, warmup_steps=warmup, final_ratio=final, step_epochs=step_epochs, gamma=gamma)


class Tables:
    """Notes the rate that each update was made with."""

    def __init__(self) -> None:
        self.lr, self.used, self.cleared = math.nan, [], 0

    def set_lr(self, lr: float) -> None:
        self.lr = lr

    def zero_grad(self) -> None:
        self.cleared += 1

    def step(self) -> None:
        self.used.append(self.lr)


@given(
    st.sampled_from(["constant", "linear", "cosine", "step"]),
    st.integers(0, 20),
    st.floats(0, 1),
    st.integers(21, 200),
    st.integers(0, 250),
)
def test_ratios_stay_between_nothing_and_one(name, warmup, final, total, step):
    assert 0.0 <= rate_ratio(step, schedule(name, warmup, final), total, 10) <= 1.0


def test_known_points():
    linear = schedule("linear", warmup=4, final=0.5)
    assert [rate_ratio(s, linear, 14, 7) for s in (0, 1, 3, 4, 9, 14)] == pytest.approx([0.25, 0.5, 1.0, 1.0, 0.75, 0.5])
    cosine = schedule("cosine", final=0.2)
    assert [rate_ratio(s, cosine, 10, 5) for s in (0, 5, 10)] == pytest.approx([1.0, 0.6, 0.2])
    steps = schedule("step", step_epochs=2, gamma=0.1)
    assert [rate_ratio(s, steps, 100, 10) for s in (0, 19, 20, 40)] == pytest.approx([1.0, 1.0, 0.1, 0.01])


def test_both_rates_follow_the_schedule_without_lag():
    options = OptimizerOptions(
        dense=DenseOptimizer(name="sgd", lr=1.0, eps=1e-8, weight_decay=0.0, momentum=0.0),
        sparse=SparseOptimizer(name="sgd", lr=0.1, eps=1e-8, weight_decay=0.0),
        schedule=schedule("linear"),
    )
    weight, tables = torch.nn.Parameter(torch.zeros(1)), Tables()
    both = DenseAndTables(torch_optimizer([weight], options.dense), tables, options.sparse.lr)
    decay = scheduler(both, options, total_steps=4, steps_per_epoch=4)
    moved = []
    for _ in range(4):
        both.zero_grad()
        weight.grad = torch.ones(1)
        before = weight.item()
        both.step()
        moved.append(before - weight.item())
        decay.step()
    assert moved == pytest.approx([1.0, 0.75, 0.5, 0.25])
    assert tables.used == pytest.approx([0.1, 0.075, 0.05, 0.025])
    assert tables.cleared == 4


def test_clipping_sees_the_dense_part_alone():
    weight = torch.nn.Parameter(torch.zeros(2))
    both = DenseAndTables(torch.optim.SGD([weight], lr=1.0), Tables(), 0.1)
    assert [p for group in both.param_groups for p in group["params"]] == [weight]


@pytest.mark.parametrize("name", ["sgd", "adagrad", "adam"])
def test_state_made_in_advance_changes_nothing(name):
    torch.manual_seed(0)
    start, grads = torch.randn(3), [torch.randn(3) for _ in range(3)]
    ends = []
    for in_advance in (False, True):
        weight = torch.nn.Parameter(start.clone())
        optimizer = torch_optimizer([weight], DenseOptimizer(name=name, lr=0.1, eps=1e-8, weight_decay=0.01, momentum=0.9))
        if in_advance:
            make_state(optimizer)
            assert torch.equal(weight, start)
        for grad in grads:
            weight.grad = grad.clone()
            optimizer.step()
        ends.append(weight.detach().clone())
    assert torch.equal(*ends)


@pytest.mark.parametrize("name", ["sgd", "adagrad", "adam"])
def test_few_weights_move_as_many_do(name, monkeypatch):
    """They are one vector, of which each parameter is a part. The bits are torch's of each alone. Under Adam many are one, too."""
    ends = []
    for few in (0, optimizer_of_dense.FEW):
        monkeypatch.setattr(optimizer_of_dense, "FEW", few)
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(13, 33), torch.nn.ReLU(), torch.nn.Linear(33, 1))
        nothing: Any = None
        given = DenseOptimizer(name=name, lr=0.1, eps=1e-8, weight_decay=0.01, momentum=0.9)
        optimizer = dense_optimizer(ShardedModel(model, nothing, nothing, "tables"), given)
        assert isinstance(optimizer, StoredOptimizer) == (name == "adam" or name == "adagrad" and few > 0)
        for _ in range(5):
            optimizer.zero_grad()
            model(torch.randn(64, 13)).square().mean().backward()
            optimizer.step()
        ends.append(torch.cat([parameter.detach().flatten() for parameter in model.parameters()]))
    assert torch.equal(*ends) and len({p.untyped_storage().data_ptr() for p in model.parameters()}) == (4 if name == "sgd" else 1)


def test_what_is_not_plain_is_not_written():
    assert json_of({1: [torch.tensor(2.0), None, "a"], "t": (1, 2)}) == {"1": [2.0, None, "a"], "t": [1, 2]}
    with pytest.raises(TypeError):
        json_of({"x": object()})
