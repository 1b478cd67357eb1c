"""One optimizer for Lightning to step: a dense one, and the tables' own behind it, under one schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Protocol

import torch
from torch.optim.lr_scheduler import LambdaLR

from recsys_lab.config.options import DenseOptimizer, OptimizerOptions
from recsys_lab.executor.dense_weights import DenseWeights
from recsys_lab.executor.sharded_model import ShardedModel
from recsys_lab.train.schedule import rate_ratio
from recsys_lab.train.stored_optimizer import StoredOptimizer

#: Dense weights that become one vector though their update is torch's: layer by layer, each stays in the cache for all of its calls.
FEW = 1 << 18


class TableOptimizer(Protocol):
    """What an executor offers for its tables. A rate set before a backward pass holds for that pass's update."""

    def set_lr(self, lr: float) -> None: ...
    def zero_grad(self) -> None: ...
    def step(self) -> float | None: ...


class DenseAndTables(torch.optim.Optimizer):
    """Steps `dense` and `tables` together. The last parameter group holds the tables' learning rate and no parameter.

    Its other groups are those of `dense` (the same objects), so clipping touches the dense arch alone.
    """

    def __init__(self, dense: torch.optim.Optimizer, tables: TableOptimizer, table_lr: float):
        self.dense, self.tables = dense, tables
        super().__init__([p for group in dense.param_groups for p in group["params"]], {"lr": table_lr})
        self.param_groups = [*dense.param_groups, {"params": [], "lr": table_lr}]
        self.state = dense.state

    @property
    def table_lr(self) -> float:
        return float(self.param_groups[-1]["lr"])

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.tables.set_lr(self.table_lr)  # before backward: fused updates happen inside it
        self.dense.zero_grad(set_to_none)
        self.tables.zero_grad()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = closure() if closure is not None else None
        self.dense.step()
        self.tables.step()
        return loss


def dense_optimizer(sharded: ShardedModel, options: DenseOptimizer) -> torch.optim.Optimizer:
    """The optimizer of the dense arch of `sharded`, in whatever format its weights are stored.

    FP32 weights become one vector on CPUs under Adam, which is one pass over them there. So do few weights anywhere: then the time of
    torch's update is that of its calls, a dozen for each parameter.
    """
    make = partial(torch_optimizer, options=options)
    if sharded.stored_dense is not None:
        return StoredOptimizer(sharded.stored_dense, make)
    parameters = dict(sharded.dense_parameters())
    one_pass = options.name == "adam" and all(p.is_cpu for p in parameters.values())
    if one_pass or options.name != "sgd" and sum(p.numel() for p in parameters.values()) <= FEW:
        first = {name: parameter.data for name, parameter in parameters.items()}
        return StoredOptimizer(DenseWeights.of("fp32", parameters.items(), first), make)
    return make(parameters.values())


def torch_optimizer(parameters: Iterable[torch.nn.Parameter], options: DenseOptimizer) -> torch.optim.Optimizer:
    """torch's own of that name."""
    parameters = list(parameters)
    if options.name == "adamw":
        return torch.optim.AdamW(parameters, lr=options.rate, eps=options.eps, weight_decay=options.weight_decay)
    if options.name == "adam":
        return torch.optim.Adam(parameters, lr=options.rate, eps=options.eps, weight_decay=options.weight_decay)
    if options.name == "adagrad":
        return torch.optim.Adagrad(parameters, lr=options.rate, eps=options.eps, weight_decay=options.weight_decay)
    return torch.optim.SGD(parameters, lr=options.rate, momentum=options.momentum, weight_decay=options.weight_decay)


def scheduler(optimizer: DenseAndTables, options: OptimizerOptions, total_steps: int, steps_per_epoch: int) -> LambdaLR:
    return LambdaLR(optimizer, lambda step: rate_ratio(step, options.schedule, total_steps, steps_per_epoch))
