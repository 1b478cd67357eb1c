"""Optimizers of embedding tables: SGD, Adagrad, row-wise Adagrad, Adam. Exact, and lazy: a row moves only in a step in which
its gradient, summed over the global batch, is not zero.

| optimizer | state | update of a touched row, gradient g |
|---|---|---|
| sgd | none | w -= lr g |
| adagrad | h, starts at 0 | h += g^2; w -= lr g / (sqrt(h) + eps), as torch.optim.Adagrad |
| row_wise_adagrad | one h a row, starts at 0 | h += mean over the columns of g^2; w -= lr g / (sqrt(h) + eps) (Neo, section 4.1.4) |
| adam | m, v, start at 0 | as torch.optim.SparseAdam: w -= lr sqrt(1 - b2^t) / (1 - b1^t) m / (sqrt(v) + eps), t the global step |

"Not zero" is judged on the part of the row that a rank holds. Row-wise Adagrad keeps one state a row *of a shard*: on
column-wise shards the mean is over the shard's columns, so it differs from the unsharded table. That is inherent.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from recsys_lab.distributed.table_batch import TableBatch

#: State tensors by optimizer, and whether each has one element a weight or one a row.
STATES: dict[str, dict[str, str]] = {
    "sgd": {},
    "adagrad": {"sum": "weight"},
    "row_wise_adagrad": {"row_sum": "row"},
    "adam": {"exp_avg": "weight", "exp_avg_sq": "weight"},
}


@dataclass(frozen=True)
class SparseOptimizerConfig:
    """`name`: sgd | adagrad | row_wise_adagrad | adam. `eps` of MLPerf's Adagrad is 1e-8.

    `weight_decay` times a row is added to its gradient, as in torch.optim, but only in steps that move the row anyway.
    """

    name: str
    lr: float
    eps: float = 1e-8
    weight_decay: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.999


class SparseOptimizer(torch.optim.Optimizer):
    """Steps the tables of one rank. One parameter group, whose `lr` is read at each step: a schedule never lags."""

    def __init__(self, batches: list[TableBatch], config: SparseOptimizerConfig, device: torch.device):
        assert config.name in STATES, config.name
        self.batches, self.config = batches, config
        self.steps = 0  # t: global steps taken
        # An optimizer without a parameter is refused by torch, and a rank may hold no table.
        super().__init__([b.weight for b in batches] or [torch.zeros(0, device=device)], {"lr": config.lr})
        self.states = [_zeros(batch, config.name) for batch in batches]

    def set_lr(self, lr: float) -> None:
        self.param_groups[0]["lr"] = lr

    def zero_grad(self, set_to_none: bool = True) -> None:
        for batch in self.batches:
            batch.forget()

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Apply and forget the gradients of the backward passes since the last step. Collective: averages over replicas end here,
        and are waited for last.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.steps += 1
        update, lr = UPDATES[self.config.name], float(self.param_groups[0]["lr"])
        for batch, state in sorted(zip(self.batches, self.states), key=lambda pair: pair[0].replicas is not None):
            for rows, grads in batch.gradients():
                if self.config.weight_decay:
                    rows, grads = _decayed(batch.weight, rows, grads, self.config.weight_decay)
                update(batch.weight, rows, grads, state, lr, self.steps, self.config)
        return loss


def _zeros(batch: TableBatch, name: str) -> dict[str, torch.Tensor]:
    rows, cols = batch.weight.shape
    return {
        key: torch.zeros((rows, cols) if kind == "weight" else (rows,), device=batch.weight.device) for key, kind in STATES[name].items()
    }


State = dict[str, torch.Tensor]


def _subtract(weight: torch.Tensor, rows: torch.Tensor, change: torch.Tensor) -> None:
    """weight[rows] -= change, in FP32 and then rounded once to the table's format. `rows` are distinct."""
    # Read, subtract, write: on CPU four times as fast as index_add_.
    weight.index_copy_(0, rows, weight.index_select(0, rows).float().sub_(change).to(weight.dtype))


def _decayed(weight: torch.Tensor, rows: torch.Tensor, grads: torch.Tensor, decay: float) -> tuple[torch.Tensor, torch.Tensor]:
    """The rows whose gradient is not zero, with `decay` times their weights added to it."""
    moved = grads.any(dim=1)
    rows = rows[moved]
    return rows, grads[moved].add_(weight.index_select(0, rows).to(grads.dtype), alpha=decay)


def sgd(weight, rows, grads, state: State, lr: float, step: int, config: SparseOptimizerConfig) -> None:
    _subtract(weight, rows, grads.mul_(lr))


def adagrad(weight, rows, grads, state: State, lr: float, step: int, config: SparseOptimizerConfig) -> None:
    total = state["sum"].index_select(0, rows).addcmul_(grads, grads)
    state["sum"].index_copy_(0, rows, total)
    _subtract(weight, rows, grads.mul_(lr).div_(total.sqrt_().add_(config.eps)))


def row_wise_adagrad(weight, rows, grads, state: State, lr: float, step: int, config: SparseOptimizerConfig) -> None:
    total = state["row_sum"].index_select(0, rows) + grads.square().mean(dim=1)
    state["row_sum"].index_copy_(0, rows, total)
    _subtract(weight, rows, grads.mul_((lr / total.sqrt_().add_(config.eps)).unsqueeze(1)))


def adam(weight, rows, grads, state: State, lr: float, step: int, config: SparseOptimizerConfig) -> None:
    moved = grads.any(dim=1)  # a row whose gradients cancelled must not coast on its momentum
    if not bool(moved.all()):
        rows, grads = rows[moved], grads[moved]
    mean = state["exp_avg"].index_select(0, rows).lerp_(grads, 1 - config.beta1)
    square = state["exp_avg_sq"].index_select(0, rows).mul_(config.beta2).addcmul_(grads, grads, value=1 - config.beta2)
    state["exp_avg"].index_copy_(0, rows, mean)
    state["exp_avg_sq"].index_copy_(0, rows, square)
    rate = lr * math.sqrt(1 - config.beta2**step) / (1 - config.beta1**step)
    _subtract(weight, rows, mean.mul_(rate).div_(square.sqrt_().add_(config.eps)))


UPDATES = {"sgd": sgd, "adagrad": adagrad, "row_wise_adagrad": row_wise_adagrad, "adam": adam}
