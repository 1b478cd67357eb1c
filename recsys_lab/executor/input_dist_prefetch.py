"""Sends the ids of the next batch while this one computes. This is the idea of TorchRec's TrainPipelineSparseDist, for any training loop.

    start   ids are sorted by receiver, and how many go where is exchanged     before this batch's forward pass
    send    the sizes have arrived. Lengths and ids leave                      before its backward pass
    get     lengths and ids have arrived                                       the next batch's forward pass

The collectives, their bytes and all results stay the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys_lab.executor.recorded import named

#: The recorder's name for collectives that belong to the next batch.
AHEAD = "ahead"


class PendingInput(Protocol):
    """The input distribution of one batch, under way."""

    def send(self) -> None:
        """Waits for the sizes, then sends lengths and ids."""


class InputDistPrefetch:
    """The input distributions that were started before their batches. `start_input_dist` starts one."""

    def __init__(self, start_input_dist: Callable[[KeyedJaggedTensor], PendingInput]):
        self._start_input_dist = start_input_dist
        self._started: list[tuple[KeyedJaggedTensor, PendingInput]] = []  # this batch's, until `get`, and the next one's

    def start(self, sparse: KeyedJaggedTensor) -> None:
        """Collective."""
        with named(AHEAD):
            self._started.append((sparse, self._start_input_dist(sparse)))

    def send(self) -> None:
        """Sends the ids of the batch that was started last. Collective."""
        with named(AHEAD):
            self._started[-1][1].send()

    def get(self, sparse: KeyedJaggedTensor) -> Any:
        """The sent input distribution of `sparse`: the one that was started ahead, else a new one."""
        for index, (batch, pending) in enumerate(self._started):
            if batch.values() is sparse.values():  # moving a batch to where it is makes a new batch of the same tensors
                del self._started[: index + 1]
                return pending
        pending = self._start_input_dist(sparse)
        pending.send()
        return pending
