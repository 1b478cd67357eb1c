"""Which way of multiplying matrices is fastest on this machine. It is measured once, and kept beside the compiled kernels.

| question | yes on |
|---|---|
| `widened`: BF16 matrices in FP32, widened before | an Intel Xeon whose AMX is hidden: BF16 takes twice the time |
| `by_torch`: FP32 products of backward passes through torch, of views | Intel, where torch has MKL; on AMD oneDNN is twice as fast |
| `by_tiles`: BF16 products by weights through our own kernel | Intel with AMX: oneDNN transposes the gradient first |
| `by_transposing`: the same of wide layers through oneDNN, of a gradient that the ReLU has transposed | Intel with AMX |

A processor whose BF16 oneDNN does not know (x86 without AVX-512) is not asked: there BF16 is always widened.

A product of two BF16 numbers is exact in FP32, and sums are FP32's either way. So only the order of sums depends on the answers.

Variables decide without it. RECSYS_LAB_BF16_PRODUCTS is bf16 or fp32, RECSYS_LAB_FP32_PRODUCTS onednn or torch.
RECSYS_LAB_BF16_BY_WEIGHTS is onednn or tiles, and for wide layers RECSYS_LAB_BF16_WIDE as_others or turned. Where the processor has no
tiles the third changes nothing. Without oneDNN's BF16 the first and the last change nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from recsys_lab.kernels import dense
from recsys_lab.kernels.choice import available
from recsys_lab.kernels.measured import answers, chosen, least_s
from recsys_lab.kernels.torch_private import linear_by_onednn

#: By question: the variable that answers it.
CHOICES = {
    "widened": "RECSYS_LAB_BF16_PRODUCTS",
    "by_torch": "RECSYS_LAB_FP32_PRODUCTS",
    "by_tiles": "RECSYS_LAB_BF16_BY_WEIGHTS",
    "by_transposing": "RECSYS_LAB_BF16_WIDE",
}
#: By question: the least time of the usual way over that of the other one, from which the other one is taken. What both do alike is then
#: not decided by chance. oneDNN's products by weights need a transposed gradient, which costs a tenth of them.
LEAST_GAIN = {"widened": 1.25, "by_torch": 0.9, "by_tiles": 1.1, "by_transposing": 1.1}
#: B, O and I, of a usual layer and of the least wide one.
SHAPE = (1024, 1024, 512)
WIDE_SHAPE = (1024, 1024, 2048)
#: Weights of a layer from which it is wide. Of narrower ones oneDNN's product gains less than the transpose costs.
WIDE = 1 << 21


@functools.cache
def multiplies_bf16() -> bool:
    """Whether oneDNN multiplies BF16 matrices on this processor. torch's own loops over them take 6 to 22 times as long as FP32."""
    one = torch.ones(1, 1, dtype=torch.bfloat16)
    try:
        linear_by_onednn(one, one)
    except (RuntimeError, AttributeError):  # no such product, or a torch without oneDNN
        return False
    return True


def widened() -> bool:
    """Whether BF16 matrices are to be multiplied in FP32."""
    return not multiplies_bf16() or _answer("widened")


def by_torch() -> bool:
    """Whether FP32 products of backward passes are to be torch's."""
    return _answer("by_torch")


def by_tiles() -> bool:
    """Whether BF16 products by weights are to be `dense.product_by_weights`."""
    return dense.has_tiles() and _answer("by_tiles")


def by_transposing() -> bool:
    """Whether oneDNN multiplies the transpose of `dense.relu_backward_transposed`: BF16 products by weights of WIDE layers."""
    return multiplies_bf16() and available() and _answer("by_transposing")


def by_widening(multiply: Callable[..., Tensor], *tensors: Tensor | None) -> Tensor:
    """What `multiply` makes of the BF16 tensors in FP32, rounded once."""
    return multiply(*(None if one is None else one.float() for one in tensors)).bfloat16()


@functools.cache
def _answer(question: str) -> bool:
    decided = chosen(CHOICES[question])
    return _answers()[question] if decided is None else decided


@functools.cache
def _answers() -> dict[str, bool]:
    return answers("products", f"{torch.__version__}\0{SHAPE}\0{WIDE_SHAPE}\0{LEAST_GAIN}", CHOICES, _measured)


def _measured() -> dict[str, bool]:
    n, k, m = SHAPE
    a, b = torch.ones(n, k), torch.ones(k, m)
    transposed = a.t().contiguous().t()  # a view, as the gradient's transpose is
    half = (a.bfloat16(), b.bfloat16())
    ways: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "by_torch": (
            lambda: linear_by_onednn(a, b.t()),
            lambda: torch.mm(transposed, b),
        ),
    }
    if multiplies_bf16():
        ways["widened"] = (lambda: torch.mm(*half), lambda: by_widening(torch.mm, *half))
        if available():
            ways["by_transposing"] = _wide_ways()
    if dense.has_tiles():
        grad, x = a.bfloat16(), torch.ones(n, m, dtype=torch.bfloat16)
        ways["by_tiles"] = (lambda: torch.mm(grad.t(), x), lambda: dense.product_by_weights(grad, x))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # whose own time is measured, whatever else runs on the machine
    try:
        seconds = {question: least_s(*calls) for question, calls in ways.items()}
    finally:
        torch.set_num_threads(threads)
    faster = {question: usual > LEAST_GAIN[question] * other for question, (usual, other) in seconds.items()}
    return {question: faster.get(question, False) for question in CHOICES}


def _wide_ways() -> tuple[Callable[[], object], Callable[[], object]]:
    """Of a wide layer, from the gradient of its ReLU: the best of the usual ways, and oneDNN's product of the transpose."""
    n, outputs, inputs = WIDE_SHAPE
    grad, output, x = (torch.ones(n, width, dtype=torch.bfloat16) for width in (outputs, outputs, inputs))

    def usual() -> Tensor:
        back, _ = dense.relu_backward(grad, output)
        return dense.product_by_weights(back, x) if dense.has_tiles() else torch.mm(back.t(), x)

    return usual, lambda: torch.mm(dense.relu_backward_transposed(grad, output)[1], x)
