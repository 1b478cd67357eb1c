"""The Triton kernels as code of a GPU that need not be there: `python -m tests.kernels.triton_compiled CAPABILITY`.

A driver that only names a GPU stands in for CUDA's. Every launch is bound, specialised and compiled as ever, and not started. Prints one
JSON object: by kernel and what it was launched for, its PTX.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from itertools import product
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

from recsys_lab.kernels import Lookups, Rule, triton_embedding
from recsys_lab.kernels.rule import STATE_OF
from tests.kernels.cases import FORMATS, batch, stored
from tests.kernels.test_embedding import states_of

FEATURES, SAMPLES, ROWS, DIM = 2, 4, 10, 20


class NamesAGpu:
    def __init__(self, capability: int):
        self.capability = capability

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.capability, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def machine_code(capability: int) -> dict[str, str]:
    made: dict[str, str] = {}

    def compiled(kernel: Any, grid: tuple[int, ...], what: str, *args: Any, **options: Any) -> None:
        made[f"{kernel.__name__} {what}"] = kernel.run(*args, grid=grid, warmup=True, **options).asm["ptx"]

    triton.runtime.driver.set_active(NamesAGpu(capability))
    for how, (format, rule) in enumerate(product(FORMATS, STATE_OF)):
        what = f"{format} {rule}"
        JITFunction.__getitem__ = lambda kernel, grid: partial(compiled, kernel, grid, what)  # noqa: B023
        lookups = batch(FEATURES, SAMPLES, ROWS, 6, skew=8.0, weighted=how % 2 == 0, mode=("sum", "mean")[how // 2 % 2])
        weight, low = stored(torch.randn(FEATURES * ROWS, DIM), format)
        state, squares = states_of(Rule(rule, 0.1), len(weight), DIM)
        grad = torch.randn(SAMPLES, FEATURES * DIM).to((torch.float32, torch.bfloat16)[how % 2])
        triton_embedding.torch_embedding.PIECE = 2 + how % 2 * 4000
        triton_embedding.update(weight, low, state, lookups, grad, Rule(rule, 0.1, weight_decay=how % 3 * 0.1), squares)
        triton_embedding.bags(weight, lookups, torch.empty(SAMPLES, FEATURES * DIM, dtype=grad.dtype))
        triton_embedding.rows(weight, lookups.rows(), torch.empty(len(lookups.ids), DIM, dtype=grad.dtype))
        source = torch.zeros_like(lookups.ids) if how % 3 else None
        what += " single rows"
        single = Lookups(lookups.rows(), source=source, weights=lookups.weights)
        triton_embedding.update(weight, low, state, single, torch.randn(len(lookups.ids), DIM), Rule(rule, 0.1), squares)
    return made


if __name__ == "__main__":
    print(json.dumps(machine_code(int(sys.argv[1]))))
