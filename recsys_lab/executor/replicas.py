"""The gradients of rows that several ranks hold alike: averaged over them while the backward pass goes on.

The all-reduce is issued in the backward pass and awaited in the optimizer's step. So it runs beside the other exchanges. It carries all the
rows, in the format of gradients on the wire. This is the one copy of the gradient that a replicated table costs (FlexShard, section 4.2).
What is read from it comes in chunks, so that an update of many rows needs no second copy.

Shapes: R rows of the batch's matrix, D columns, U distinct rows of one chunk.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist

from recsys_lab import kernels
from recsys_lab.executor.formats import Codec, exact_share
from recsys_lab.kernels import Lookups, Rule

#: About how many elements of a gradient are handed to the optimizer at once.
CHUNK_ELEMENTS = 1 << 22


@dataclass(frozen=True)
class ReplicaGroup:
    """The ranks that hold the same shards, and the format in which their gradients travel."""

    group: dist.ProcessGroup
    codec: Codec


class ReplicaGradients:
    """Of a matrix [R, D] that all `replicas` hold. Every method but `__init__` is collective, in the same order on all of them."""

    def __init__(self, replicas: ReplicaGroup, rows: int, width: int, device: torch.device):
        self.group, self.codec = replicas.group, replicas.codec
        self.shape, self.device = (rows, width), device
        self._sum: torch.Tensor | None = None  # [R, D] as it travels; zero between steps
        self._earlier: torch.Tensor | None = None  # of the backward passes before the last one, if gradients are accumulated
        self._pending: dist.Work | None = None
        self._filled = False

    @property
    def adds_up(self) -> bool:
        """Whether `add` is there: what travels is FP32, in the memory of a CPU."""
        return self.codec.dtype == torch.float32 and self.device.type == "cpu"

    def add(self, lookups: Lookups, grad: torch.Tensor) -> None:
        """As `start`, for what is not summed yet. The update's kernel adds it up, to the bits that `start` gets of the sums."""
        ranks, total = self.group.size(), self._empty()
        exact = exact_share(ranks)
        kernels.update(total, lookups, grad, Rule("sgd", -1.0 / ranks if exact else -1.0))  # 0 - g (-1) is g
        if not exact:
            total.div_(ranks)
        self._send()

    def start(self, rows: torch.Tensor, grads: torch.Tensor) -> None:
        """Begin to average what one backward pass left on each rank: distinct `rows` [U] with gradients [U, D]."""
        self._empty()[rows] = self.codec.share(grads, self.group.size())
        self._send()

    def _empty(self) -> torch.Tensor:
        """Where this pass's gradients go."""
        if self._filled:
            self._keep()
        if self._sum is None:
            self._sum = torch.zeros(self.shape, dtype=self.codec.dtype, device=self.device)
        return self._sum

    def _send(self) -> None:
        self._pending = dist.all_reduce(self._sum, group=self.group, async_op=True)
        self._filled = True

    def chunks(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """The averages since the last step: rows in rising order and their gradients, where these are not zero. Forgets them."""
        if not self._filled:
            return
        total, earlier = self._wait(), self._earlier
        self._filled, self._earlier = False, None
        step = max(1, CHUNK_ELEMENTS // max(1, self.shape[1]))
        for begin in range(0, self.shape[0], step):
            part = total[begin : begin + step]
            grads = part if earlier is None else earlier[begin : begin + step].add_(self.codec.decode(part))
            rows = grads.any(dim=1).nonzero().squeeze(1)
            grads = grads[rows]
            part.zero_()
            if len(rows):
                yield rows + begin, self.codec.decode(grads) if earlier is None else grads

    def drop(self) -> None:
        """Wait for what is under way and forget it."""
        if self._filled:
            self._wait().zero_()
        self._filled, self._earlier = False, None

    def _wait(self) -> torch.Tensor:
        assert self._sum is not None
        if self._pending is not None:
            self._pending.wait()
            self._pending = None
        return self._sum

    def _keep(self) -> None:
        """Several backward passes before a step: their averages add up."""
        total = self._wait()
        average = self.codec.decode(total)
        self._earlier = average.clone() if self._earlier is None else self._earlier.add_(average)
        total.zero_()
