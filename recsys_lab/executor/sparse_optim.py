"""Optimizers of embedding tables: SGD, Adagrad, row-wise Adagrad, Adam, LAMB. They are exact and lazy. A row moves only in a step in which
its gradient, summed over the global batch, is not zero.

| optimizer | state | update of a touched row, gradient g |
|---|---|---|
| sgd | none | w -= lr g |
| adagrad | h, starts at 0 | h += g^2; w -= lr g / (sqrt(h) + eps), as torch.optim.Adagrad |
| row_wise_adagrad | one h a row, starts at 0 | h += mean over the columns of g^2; w -= lr g / (sqrt(h) + eps) (Neo, section 4.1.4) |
| adam | m, v, start at 0 | as torch.optim.SparseAdam: w -= lr sqrt(1 - b2^t) / (1 - b1^t) m / (sqrt(v) + eps), t the global step |
| lamb | m, v, start at 0 | r = adam's direction + weight decay w; w -= lr (norm of w / norm of r) r, by row as FBGEMM's (You et al. 2020) |

"Not zero" is judged on the part of the row that a rank holds. Row-wise Adagrad keeps one state a row *of a shard*, and LAMB takes norms of
it. On column-wise shards they are over the shard's columns, so they differ from the unsharded table. That is inherent. LAMB's update has no
kernel of its own in C++ or Triton: torch makes it.
"""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.distributed as dist

from recsys_lab import kernels
from recsys_lab.executor.table_batch import TableBatch
from recsys_lab.kernels import Rule

#: State tensors by optimizer, and whether each has one element a weight or one a row.
STATES: dict[str, dict[str, str]] = {
    "sgd": {},
    "adagrad": {"sum": "weight"},
    "row_wise_adagrad": {"row_sum": "row"},
    "adam": {"exp_avg": "weight", "exp_avg_sq": "weight"},
    "lamb": {"exp_avg": "weight", "exp_avg_sq": "weight"},
}


class SparseOptimizer(torch.optim.Optimizer):
    """Steps the tables of one rank. One parameter group, whose `lr` is read at each step: a schedule never lags."""

    def __init__(self, batches: list[TableBatch], rule: Rule, device: torch.device, row_update: str = "default"):
        """`row_update`: default, or an algorithm of the CPU DLRM paper (`kernels.update`). UserError where it cannot train these tables."""
        self.batches, self.rule, self.row_update = batches, rule, row_update
        for batch in batches:
            kernels.check_strategy(row_update, batch.weights.model, batch.weights.rest, rule)
        self.steps = 0  # t: global steps taken
        # An optimizer without a parameter is refused by torch, and a rank may hold no table.
        super().__init__([b.weights.model for b in batches] or [torch.zeros(0, device=device)], {"lr": rule.lr})
        self.states = [_states(batch, STATES[rule.name], device) for batch in batches]

    def set_lr(self, lr: float) -> None:
        self.param_groups[0]["lr"] = lr

    def zero_grad(self, set_to_none: bool = True) -> None:
        for batch in self.batches:
            batch.forget()

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Apply and forget the gradients of the backward passes since the last step. Collective: averages over replicas end here,
        and are waited for last. Copies that average weights do it then.
        """
        self.steps += 1
        rule = replace(self.rule, lr=float(self.param_groups[0]["lr"]), step=self.steps)
        for batch, state in sorted(zip(self.batches, self.states), key=lambda pair: pair[0].replicas is not None):
            for touched in batch.gradients():
                batch.note_updated(touched.lookups)
                if batch.managed is not None:
                    batch.managed.update(touched.lookups, touched.grad, rule)
                    continue
                weights, (moments, squares) = batch.weights, [*state.values(), None, None][:2]
                kernels.update(
                    weights.model,
                    touched.lookups,
                    touched.grad,
                    rule,
                    low=weights.rest,
                    state=moments,
                    squares=squares,
                    strategy=self.row_update,
                )
        for batch, state in zip(self.batches, self.states):
            if batch.copies is not None:
                for tensor in (batch.weights.model, *state.values()):
                    dist.all_reduce(tensor, group=batch.copies)
                    tensor.div_(batch.copies.size())


def _states(batch: TableBatch, kinds: dict[str, str], device: torch.device) -> dict[str, torch.Tensor]:
    if batch.managed is not None:
        return batch.managed.states(list(kinds))
    return {key: torch.zeros(batch.weights.shape if kind == "weight" else batch.rows, device=device) for key, kind in kinds.items()}
