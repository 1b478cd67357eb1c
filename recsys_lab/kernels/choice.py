"""Whether the C++ kernels run here and, where not, why and what that costs."""

from __future__ import annotations

import functools
import os

import torch

from recsys_lab.kernels.build import CannotBuild, library, say

LOST = "embedding look-ups and updates run in plain PyTorch: the same values, several times slower on a CPU"


@functools.cache
def why_not() -> str:
    """Why there are no C++ kernels, in one line; empty where there are. Compiles them at the first call."""
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
    return weight.device.type == "cpu" and (available() or _said_once())


@functools.cache
def _said_once() -> bool:
    """Says what is lost, on the first rank; always False."""
    if os.environ.get("RANK", "0") == "0":
        say(f"{why_not()}; {LOST}")
    return False
