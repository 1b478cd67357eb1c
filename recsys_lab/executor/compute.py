"""In which format the dense arch computes: what enters it is cast, what leaves it is FP32 again. Models know nothing of it.

| enters | leaves |
|---|---|
| dense values | logits |
| what the tables gave, once it has arrived from other ranks | its gradients, before they travel |
| a tower module's vectors | what it hands on, before it travels |
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torchrec.distributed.types import LazyAwaitable
from torchrec.sparse.jagged_tensor import JaggedTensor, KeyedTensor

from recsys_lab.executor.formats import DTYPES


def compute_in(format: str, model: nn.Module, embeddings: nn.Module, tower_modules: nn.Module | None) -> None:
    """Have `model`, its `embeddings` among it, compute in `format`, and `tower_modules`, which are elsewhere, too."""
    dtype = DTYPES[format]
    if dtype == torch.float32:
        return
    for module in (model, tower_modules):
        if module is not None:
            module.register_forward_pre_hook(lambda _, inputs: tuple(_cast(one, dtype) for one in inputs))
            module.register_forward_hook(lambda _, __, outputs: _cast(outputs, torch.float32))
    embeddings.register_forward_hook(lambda _, __, rows: _cast(rows, dtype))


def _cast(value: Any, dtype: torch.dtype) -> Any:
    """Its floating-point values in `dtype`. Ids stay as they are. Of what is still under way, once it is there."""
    if isinstance(value, LazyAwaitable):
        value.callbacks.append(lambda rows: _cast(rows, dtype))
        return value
    if isinstance(value, torch.Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    if isinstance(value, KeyedTensor):
        return KeyedTensor(value.keys(), value.length_per_key(), value.values().to(dtype))
    if isinstance(value, list):
        return [_cast(one, dtype) for one in value]
    if isinstance(value, dict):
        return {key: _cast(one, dtype) for key, one in value.items()}
    if isinstance(value, JaggedTensor):
        return JaggedTensor(value.values().to(dtype), lengths=value.lengths())
    return value
