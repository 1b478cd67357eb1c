"""Sequences on the CPU: FBGEMM's dense look-up adds up the ids of a bag even where it was asked for a row each.

It gives [bags, D] where TorchRec expects [ids, D] (fbgemm-gpu-cpu 1.8.0, `DenseTableBatchedEmbeddingBagsCodegen` with PoolingMode.NONE).
The exchange that follows reads beyond the end of it. Here the look-up is PyTorch's, on the same weights.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torchrec.distributed.batched_embedding_kernel import BatchedDenseEmbedding

from recsys_lab.executor.torch_private import lookup_modules


def look_up_by_torch(sharded: Any) -> None:
    """Has the sequence tables of `sharded`, a collection that TorchRec has sharded on the CPU, looked up row by row."""
    for part in lookup_modules(sharded):
        if isinstance(part, BatchedDenseEmbedding):
            kernel = part.emb_module
            kernel.forward = partial(_rows, kernel)


def _rows(kernel: Any, indices: Tensor, offsets: Tensor) -> Tensor:
    """What `DenseTableBatchedEmbeddingBagsCodegen.forward` should give: the row of each id, feature after feature, [ids, D]."""
    features = len(kernel.D_offsets) - 1
    table_at = dict(zip(kernel.weights_physical_offsets, kernel.embedding_specs))  # of tables at one place, all but the last are empty
    bags = (len(offsets) - 1) // features
    ends = offsets[::bags].tolist() if bags else [0] * (features + 1)
    rows_of_features = []
    for feature, start in enumerate(kernel.weights_offsets.tolist()):
        rows, dim = table_at[start]
        weight = kernel.weights[start : start + rows * dim].view(rows, dim)
        rows_of_features.append(F.embedding(indices[ends[feature] : ends[feature + 1]], weight))
    return torch.cat(rows_of_features)
