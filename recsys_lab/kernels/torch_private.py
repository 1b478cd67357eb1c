"""The private names of torch that kernels and models use, for torch 2.13. The executor's are in executor/torch_private.py."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode
from torch.utils._pytree import tree_leaves as tree_leaves


def linear_by_onednn(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, relu: bool = False) -> Tensor:
    """x [B, I], weight [O, I], bias [O] -> x weight^T + bias [B, O], then a ReLU if asked. On a CPU.

    Raises RuntimeError for a format that oneDNN does not multiply here, AttributeError for a torch without oneDNN.
    """
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "relu" if relu else "none", [], "")


def storage_of(tensor: Tensor) -> int:
    """The storage behind `tensor`, as a number. Tensors that share memory have the same, on the meta device too."""
    return tensor.untyped_storage()._cdata
