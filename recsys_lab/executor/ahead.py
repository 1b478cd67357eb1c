"""Sends the ids of the next batch while this one computes. This is the idea of TorchRec's TrainPipelineSparseDist, for any training loop.

    begin   ids are sorted by receiver, and how many go where is exchanged     before this batch's forward pass
    send    the numbers are here. Lengths and ids leave                        before its backward pass
    take    they are here                                                      the next batch's forward pass

Nothing else changes: the same collectives with the same bytes, and the same bits come out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys_lab.executor.recorded import named

#: The recorder's name for collectives that belong to the next batch.
AHEAD = "ahead"


class Begun(Protocol):
    """A batch's ids on their way."""

    def send(self) -> None:
        """Waits for the sizes and issues what they are the sizes of."""


class Ahead:
    """What one exchange of ids has under way for a batch that nobody has asked for yet. `begin` starts a batch's exchange."""

    def __init__(self, begin: Callable[[KeyedJaggedTensor], Begun]):
        self._begin = begin
        self._under_way: list[tuple[KeyedJaggedTensor, Begun]] = []  # this batch's, until it is taken, and the next one's

    def start(self, sparse: KeyedJaggedTensor) -> None:
        """Collective."""
        with named(AHEAD):
            self._under_way.append((sparse, self._begin(sparse)))

    def send(self) -> None:
        """Of what was started last. Collective."""
        with named(AHEAD):
            self._under_way[-1][1].send()

    def take(self, sparse: KeyedJaggedTensor) -> Any:
        """The exchange of `sparse`, sent: the one under way if it is of this batch, else a new one."""
        for place, (known, begun) in enumerate(self._under_way):
            if known.values() is sparse.values():  # moving a batch to where it is makes a new batch of the same tensors
                del self._under_way[: place + 1]
                return begun
        begun = self._begin(sparse)
        begun.send()
        return begun
