"""Linear layers that are large enough, through oneDNN on CPU, with the ReLU that follows done as they are written.

Shapes: B samples, I inputs, O outputs. Why and how fast: docs/decisions/dense-bf16.md, experiments/benchmarks/mlp.py.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from recsys_lab.kernels import available, dense
from recsys_lab.kernels.cpu.products import WIDE, by_tiles, by_torch, by_transposing, by_widening, multiplies_bf16, widened
from recsys_lab.kernels.torch_private import linear_by_onednn

#: By format, multiply-adds B I O from which a layer is a step of oneDNN's. Small FP32 layers gain little and keep the bits of torch's own.
LEAST_WORK = {torch.bfloat16: 1 << 23, torch.float32: 1 << 26}
#: Elements of the input from which a layer with one output has a backward pass of its own.
LEAST_TO_ONE = 1 << 18


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, *, relu: bool = False, read_once: bool = False) -> Tensor:
    """x [B, I], weight [O, I], bias [O] of one format -> x weight^T + bias [B, O]. If asked, a ReLU follows.

    `read_once`: nothing but one operation whose backward pass makes a new tensor reads the result. Then the gradient of that passes its
    ReLU in place, where a hook that kept it would find it changed.

    Large products on CPU use oneDNN, in FP32 too. torch would use MKL, which does not use AVX-512 on AMD processors. Sums are in another
    order there than torch's, and the same every time. An exported program has torch's own layer, which any runtime knows.
    """
    if torch.compiler.is_exporting():
        y = F.linear(x, weight, bias)
        return F.relu(y) if relu else y
    if large(x, weight):
        return _Linear.apply(x, weight, bias, relu, read_once)
    if weight.shape[0] == 1 and on_cpu(x, weight) and x.numel() >= LEAST_TO_ONE:
        y = _ToOne.apply(x, weight, bias)
    else:
        y = by_widening(F.linear, x, weight, bias) if lacks_product(x) else F.linear(x, weight, bias)
    return F.relu(y) if relu else y


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """`a @ b`, in FP32 and rounded once where the processor lacks a product of BF16."""
    return by_widening(torch.matmul, a, b) if lacks_product(a) else a @ b


def lacks_product(x: Tensor) -> bool:
    """Whether `x` is BF16 on a CPU that has no fast product of it: products of any size are FP32's then."""
    return x.device.type == "cpu" and x.dtype == torch.bfloat16 and not multiplies_bf16()


def on_cpu(x: Tensor, weight: Tensor) -> bool:
    """Whether they are matrices of one of our formats in the memory of a CPU."""
    return x.device.type == "cpu" and x.dim() == 2 and x.dtype in LEAST_WORK and weight.dtype == x.dtype


def large(x: Tensor, weight: Tensor) -> bool:
    """Whether `linear` takes them to oneDNN."""
    return on_cpu(x, weight) and x.shape[0] * weight.numel() >= LEAST_WORK[x.dtype] and torch.backends.mkldnn.is_available()


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, relu: bool, read_once: bool) -> Tensor:
        y = _by_onednn(x, weight, bias, relu=relu)
        ctx.has_bias, ctx.read_once = bias is not None, read_once
        ctx.save_for_backward(x, weight, y if relu else None)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, y = ctx.saved_tensors
        transposed = of_bias = None
        format, wide = grad.dtype, widens(grad)
        if y is not None and not available():
            grad = torch.ops.aten.threshold_backward(grad, y, 0)
        elif y is not None and wide:
            grad, of_bias = dense.relu_backward_widened(grad, y)
        elif y is not None and _transposes(grad, weight):
            grad, transposed, of_bias = dense.relu_backward_transposed(grad, y, in_place=ctx.read_once)
        elif y is not None:
            grad, of_bias = dense.relu_backward(grad, y, in_place=ctx.read_once)
        if wide:
            grad, x, weight = grad.float(), x.float(), weight.float()
        multiply = torch.mm if wide or by_torch() else product  # alike in BF16
        # the first layer's input needs no gradient
        of_x = multiply(grad, weight).to(format) if ctx.needs_input_grad[0] else None
        if transposed is not None:
            of_weight = product(transposed, x)
        elif grad.dtype == torch.bfloat16 and by_tiles():
            of_weight = dense.product_by_weights(grad, x)
        else:
            of_weight = multiply(grad.t(), x).to(format)
        if ctx.has_bias and of_bias is None:
            of_bias = grad.sum(0).to(format)
        return of_x, of_weight, of_bias if ctx.has_bias else None, None, None


def _transposes(grad: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN multiplies by weights and wants the gradient's transpose, which the ReLU's backward pass can give."""
    return not by_torch() if grad.dtype == torch.float32 else weight.numel() >= WIDE and by_transposing()


class _ToOne(torch.autograd.Function):
    """A layer with one output. Its two gradients are one pass over the input, where GEMMs take several times as long."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None
        return F.linear(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        of_x, of_weight = dense.to_one_backward(grad, x, weight) if available() else (grad * weight, grad.t() @ x)
        return of_x, of_weight, grad.sum(0) if ctx.has_bias else None


def _by_onednn(x: Tensor, weight: Tensor, bias: Tensor | None, *, relu: bool) -> Tensor:
    """oneDNN's product with its bias, and a ReLU if asked."""
    multiply = partial(linear_by_onednn, relu=relu)
    return by_widening(multiply, x, weight, bias) if widens(x) else multiply(x, weight, bias)


def widens(x: Tensor) -> bool:
    """Whether `x` is multiplied in FP32 though it is BF16, as that is faster here."""
    return x.dtype == torch.bfloat16 and widened()


def product(a: Tensor, b: Tensor) -> Tensor:
    """a [N, K] b [K, M] -> [N, M], in FP32 through oneDNN. Either may be a transposed view. It costs a copy where it is `a` and FP32.

    In BF16 torch's own is oneDNN's already. Where BF16 is widened, torch's own takes transposed views without a copy.
    """
    if a.dtype == torch.bfloat16:
        return by_widening(torch.mm, a, b) if widens(a) else torch.mm(a, b)
    return _by_onednn(a, b.t(), None, relu=False)


class Linear(nn.Linear):
    """torch's linear layer, computed by `linear` in the format of its weights, whatever that of its input."""

    def forward(self, x: Tensor, relu: bool = False, read_once: bool = False) -> Tensor:
        return linear(x.to(self.weight.dtype), self.weight, self.bias, relu=relu, read_once=read_once)

    def part(self, x: Tensor, first: int, stop: int) -> Tensor:
        """Outputs from `first` to `stop` alone."""
        return linear(x.to(self.weight.dtype), self.weight[first:stop], self.bias[first:stop])


class MLP(nn.Sequential):
    """Linear layers, each followed by ReLU and, if asked for, dropout: [B, I] -> [B, O]. A layer and its ReLU are one step."""

    def forward(self, x: Tensor) -> Tensor:
        parts = list(self)
        last = next((part for part in reversed(parts) if isinstance(part, Linear)), None)
        for part, following in zip(parts, [*parts[1:], None]):
            if isinstance(part, Linear):
                x = part(x, relu=isinstance(following, nn.ReLU), read_once=part is not last)
            elif not isinstance(part, nn.ReLU):
                x = part(x)
        return x
