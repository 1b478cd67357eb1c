"""What a model is fed: B rows with K dense values and F features (protocol.py)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor


@dataclass
class Batch:
    """One rank's part of a global batch, padded to B rows. The last `B - valid` rows are padding: no ids, label 0.

    `global_valid` counts the real rows of the batch over all ranks, so that a loss can be averaged exactly.
    """

    dense: torch.Tensor | None  # [B, K] float32
    sparse: KeyedJaggedTensor  # F keys, stride B
    labels: torch.Tensor  # [B] float32
    valid: int
    global_valid: int

    def to(self, device: torch.device, non_blocking: bool = False) -> Batch:
        return Batch(
            None if self.dense is None else self.dense.to(device, non_blocking=non_blocking),
            self.sparse.to(device, non_blocking=non_blocking),
            self.labels.to(device, non_blocking=non_blocking),
            self.valid,
            self.global_valid,
        )

    def pin_memory(self) -> Batch:
        return Batch(
            None if self.dense is None else self.dense.pin_memory(),
            self.sparse.pin_memory(),
            self.labels.pin_memory(),
            self.valid,
            self.global_valid,
        )

    def record_stream(self, stream: torch.Stream) -> None:
        for tensor in (self.dense, self.sparse, self.labels):
            if tensor is not None:
                tensor.record_stream(stream)
