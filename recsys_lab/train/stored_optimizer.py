"""torch's optimizers on all dense weights as one vector. Those that are not plain FP32 are joined, updated, split again.

With hi/lo split weights and torch's SGD this is Split-SGD-BF16 (Kalamkar et al. 2020, section VII). The update is FP32's to the last bit.
It keeps nothing but the hi/lo parts and the optimizer's own state. With a master it is the usual training in mixed precision. All
parameters are one vector here. On CPUs SGD and Adam are one pass over it (recsys_lab/kernels/weights.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from recsys_lab.executor.dense_weights import DenseWeights
from recsys_lab.kernels.choice import native_for
from recsys_lab.kernels.weights import AdamStep, Vector, adam, adam_step, sgd_step


class StoredOptimizer(torch.optim.Optimizer):
    """Steps `dense` by `make`'s optimizer of one FP32 vector, which must treat its elements alike and apart: SGD, Adagrad, Adam.

    The learning rate is that of its one group. `state` has views of the inner optimizer's, by parameter, from the start. A parameter
    without a gradient counts as one whose gradient is zero.
    """

    def __init__(self, dense: DenseWeights, make: Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]):
        self._weights = dense
        self._vector = Vector(dense.weights.model, dense.weights.rest, [dense.slices[name].start for name in dense.parameters])
        self._joined = torch.nn.Parameter(torch.zeros(dense.weights.shape, device=dense.weights.model.device))
        self.inner = make([self._joined])
        super().__init__(list(dense.parameters.values()), {"lr": self.inner.defaults["lr"]})
        make_state(self.inner)
        for name, parameter in dense.parameters.items():
            for key, value in self.inner.state[self._joined].items():
                of_weights = isinstance(value, torch.Tensor) and value.shape == self._joined.shape
                self.state[parameter][key] = value[dense.slices[name]].view_as(parameter) if of_weights else value
        self._forget()

    def zero_grad(self, set_to_none: bool = True) -> None:
        if not set_to_none:
            super().zero_grad(set_to_none)
            return
        for parameter in self._weights.parameters.values():  # all that torch's does then, without its dozen other calls
            parameter.grad = None

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.inner.param_groups[0]["lr"] = self.param_groups[0]["lr"]
        stepped = {torch.optim.SGD: self._sgd, torch.optim.Adam: self._adam}.get(type(self.inner))
        if stepped is not None and native_for(self._weights.weights.model):
            stepped()
        else:
            self._joined.data, self._joined.grad = self._weights.weights.read(), self._weights.gradient()
            self._step_joined()
            self._weights.weights.write(self._joined.data)
            self._forget()
        return loss

    def _sgd(self) -> None:
        """The same as `inner.step` of joined weights, to the last bit, in one pass."""
        group = self.inner.param_groups[0]
        how = {"lr": float(group["lr"]), "weight_decay": group["weight_decay"], "momentum": group["momentum"]}
        sgd_step(self._vector, self._gradients(), velocity=self.inner.state[self._joined].get("momentum_buffer"), **how)

    def _adam(self) -> None:
        """As `_sgd`."""
        state = self.inner.state[self._joined]
        adam_step(self._vector, self._gradients(), state["exp_avg"], state["exp_avg_sq"], self._next_adam())

    def _step_joined(self) -> None:
        if type(self.inner) is torch.optim.Adam and self._joined.is_cpu and self._joined.grad is not None:
            state = self.inner.state[self._joined]
            adam(self._joined.data, self._joined.grad, state["exp_avg"], state["exp_avg_sq"], self._next_adam())
        else:
            self.inner.step()

    def _next_adam(self) -> AdamStep:
        group, steps = self.inner.param_groups[0], self.inner.state[self._joined]["step"]
        steps += 1
        return AdamStep(int(steps), float(group["lr"]), group["betas"], group["eps"], group["weight_decay"])

    def _gradients(self) -> list[torch.Tensor]:
        """Of each parameter."""
        parameters = self._weights.parameters.values()
        return [torch.zeros_like(one) if one.grad is None else one.grad.contiguous() for one in parameters]

    def _forget(self) -> None:
        """Between steps there is no FP32 copy."""
        self._joined.data, self._joined.grad = self._joined.new_empty(0), None


def make_state(optimizer: torch.optim.Optimizer) -> None:
    """torch makes an optimizer's state at its first step: make it now, zero, by a step that moves nothing."""
    if isinstance(optimizer, StoredOptimizer):
        return  # has made it
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if all(optimizer.state.get(p) for p in parameters) or isinstance(optimizer, torch.optim.SGD) and not optimizer.defaults["momentum"]:
        return
    kept = [(p.detach().clone(), p.grad) for p in parameters]
    rates = [group["lr"] for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    for p in parameters:
        p.grad = torch.zeros_like(p)
    optimizer.step()
    for p, (value, grad) in zip(parameters, kept):
        p.data.copy_(value)
        p.grad = grad
        for key, state in optimizer.state[p].items():
            if isinstance(state, torch.Tensor):
                # Momentum begins with the first gradient, also where that is a negative zero: -0 plus any number is that number.
                state.fill_(-0.0 if key == "momentum_buffer" else 0.0)
    for group, rate in zip(optimizer.param_groups, rates):
        group["lr"] = rate
