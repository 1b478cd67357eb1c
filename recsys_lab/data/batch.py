"""What a model is fed: B rows with K dense values and F features (protocol.py)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor


@dataclass
class Events:
    """What histories say beside their ids: N events of B samples, sample after sample (protocol.RowEvents)."""

    times: torch.Tensor  # [N] int64, seconds
    actions: torch.Tensor  # [N] uint8, bits
    asked: torch.Tensor  # [B] int64, seconds; 0 of padding
    counts: dict[str, torch.Tensor] = field(default_factory=dict)  # by feature [N] int64
    timed: bool = True  # else times are 0, and not known

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        return self.times, self.actions, self.asked, *self.counts.values()

    def each(self, moved: Callable[[torch.Tensor], torch.Tensor]) -> Events:
        """What `moved` makes of each tensor."""
        counts = {name: moved(tensor) for name, tensor in self.counts.items()}
        return Events(moved(self.times), moved(self.actions), moved(self.asked), counts, self.timed)


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
    events: Events | None = None

    @property
    def values(self) -> torch.Tensor | Events | None:
        """What a model reads beside its tables."""
        return self.dense if self.events is None else self.events

    def to(self, device: torch.device, non_blocking: bool = False) -> Batch:
        return self._with(lambda tensor: tensor.to(device, non_blocking=non_blocking), self.sparse.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Batch:
        return self._with(lambda tensor: tensor.pin_memory(), self.sparse.pin_memory())

    def _with(self, moved: Callable[[torch.Tensor], torch.Tensor], sparse: KeyedJaggedTensor) -> Batch:
        return replace(
            self,
            dense=None if self.dense is None else moved(self.dense),
            sparse=sparse,
            labels=moved(self.labels),
            events=None if self.events is None else self.events.each(moved),
        )

    def record_stream(self, stream: torch.Stream) -> None:
        for tensor in (self.dense, self.sparse, self.labels, *(self.events.tensors if self.events else ())):
            if tensor is not None:
                tensor.record_stream(stream)
