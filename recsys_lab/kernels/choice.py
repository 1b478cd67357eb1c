"""Which embedding kernels serve a table: C++ on a CPU, Triton on a GPU and, where they do not run, torch; why, and what that costs."""

from __future__ import annotations

import functools
import os

import torch

from recsys_lab.base.environment import KERNELS, word_of
from recsys_lab.kernels.build import CannotBuild, library, say

LOST = "embedding look-ups and updates run in plain PyTorch: the same values, several times slower on a CPU"
LOST_ON_A_GPU = (
    "embedding look-ups and updates run in plain PyTorch on the GPU: sums in another order, and a pass over memory for every operation"
)


@functools.cache
def why_not() -> str:
    """Why there are no C++ kernels, in one line. Empty where there are. Compiles them at the first call."""
    try:
        library()
    except CannotBuild as error:
        return str(error)
    return ""


def available() -> bool:
    """Whether the C++ kernels can be used in this process. Compiles them at the first call."""
    return not why_not()


def native_for(weight: torch.Tensor) -> bool:
    """Whether a table is served by C++."""
    return weight.device.type == "cpu" and (available() or _warned_once(f"{why_not()}; {LOST}"))


@functools.cache
def why_no_triton() -> str:
    """Why there are no Triton kernels, in one line. Empty where there are. Whether there is a GPU for them is not asked."""
    if word_of(KERNELS) == "torch":
        return f"{KERNELS}=torch"
    try:
        import recsys_lab.kernels.triton_embedding  # noqa: F401
    except ImportError as error:
        return f"Triton cannot be imported ({error})"
    return ""


def triton_for(weight: torch.Tensor) -> bool:
    """Whether a table is served by Triton."""
    return weight.is_cuda and (not why_no_triton() or _warned_once(f"{why_no_triton()}; {LOST_ON_A_GPU}"))


@functools.cache
def _warned_once(lost: str) -> bool:
    """Warns of what is lost, on the first rank. Always False."""
    if os.environ.get("RANK", "0") == "0":
        say(lost)
    return False
