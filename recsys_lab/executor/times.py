"""Where the time of communication goes (sections IV-C and VI-D). It is spent in preparation, in waiting, and, beside compute, in transfer.

Preparation is all that the exchange of rows does but wait. It is copies into and out of flat buffers, conversions, and sharing out among
ranks. Waiting is what the training thread does nothing in. Transfer runs from a collective's issue to its end and is recorded with it
(`recsys_lab.executor.recorded`). All of it is noted while collectives are recorded, and costs nothing else.

What DistributedDataParallel copies into its buckets is not seen. Its waiting is what follows the last gradient.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torchrec.distributed.types import Awaitable

from recsys_lab.executor.recorded import RECORDER, Recorded, named
from recsys_lab.executor.torch_private import after_backward_pass

#: What the exchange of rows is called in the record of its collectives.
EXCHANGE = "exchange"
#: What the average of dense gradients is called there, where it is not DistributedDataParallel's own.
DENSE = "dense"
#: By what is communicated, and what that takes, ms.
Times = dict[str, dict[str, float]]
_spent_s: dict[str, float] = defaultdict(float)  # by (what, of which communication)
_backward_done: list[float] = []


@contextmanager
def waited(what: str) -> Iterator[None]:
    """The time inside is waiting."""
    began = time.perf_counter()
    yield
    _spent_s[f"{what}.waiting"] += time.perf_counter() - began


@contextmanager
def preparing() -> Iterator[None]:
    """The time inside is preparation, but for the waits in it."""
    began, waited_before = time.perf_counter(), RECORDER.waited_s
    with named(EXCHANGE):
        yield
    waiting = RECORDER.waited_s - waited_before
    _spent_s["embedding.waiting"] += waiting
    _spent_s["embedding.preparation"] += time.perf_counter() - began - waiting


def take_times(records: Sequence[Recorded], backward_ended: float) -> Times:
    """Of one recorded step: {embedding: {preparation, transfer, waiting}, dense: {transfer, waiting}}. Then forgets it. Empty where
    nothing was noted. `backward_ended`: when the backward pass returned, by `time.perf_counter`.
    """
    if _backward_done:
        _spent_s["dense.waiting"] += max(0.0, backward_ended - _backward_done[-1])
    preparation, waiting, of_dense = (1e3 * _spent_s[name] for name in ("embedding.preparation", "embedding.waiting", "dense.waiting"))
    _spent_s.clear()
    _backward_done.clear()
    rows = [one for one in records if one.name == EXCHANGE]
    if not rows:
        return {}
    dense = [one for one in records if one.name == DENSE or (one.name is None and one.kind == "all_reduce")]
    return {
        "embedding": {"preparation": preparation, "transfer": _transfer_ms(rows), "waiting": waiting},
        "dense": {"transfer": _transfer_ms(dense), "waiting": of_dense},
    }


def mean_times(steps: Sequence[Times]) -> Times | None:
    """Over the steps; None where one has none."""
    if not steps or not all(steps):
        return None
    return {of: {what: sum(step[of][what] for step in steps) / len(steps) for what in steps[0][of]} for of in steps[0]}


def _transfer_ms(records: Iterable[Recorded]) -> float:
    return union_ms((one.start_ms, one.start_ms + one.ms) for one in records)


def union_ms(intervals: Iterable[tuple[float, float]]) -> float:
    """How long at least one of them (begin, end) lasts."""
    total, until = 0.0, float("-inf")
    for start, end in sorted(intervals):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


class Timed(nn.Module):
    """An exchange of TorchRec's form, with its times noted: issued and awaited, forward and backward."""

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner

    def forward(self, looked_up: torch.Tensor, context: Any = None) -> Awaitable[torch.Tensor]:
        if not RECORDER.on:
            return self.inner(looked_up, context)
        with preparing():
            return _TimedWaiting(self.inner(looked_up, context))


class _TimedWaiting(Awaitable[torch.Tensor]):
    def __init__(self, inner: Awaitable[torch.Tensor]):
        super().__init__()
        self._inner = inner

    def _wait_impl(self) -> torch.Tensor:
        with preparing():
            rows = self._inner.wait()
        finish = rows.grad_fn
        if finish is not None:
            finish.register_prehook(_note_end_of_backward)
            for node in (finish, next(node for node, _ in finish.next_functions if node is not None)):
                _prepares(node)
        return rows


def _prepares(node: Any) -> None:
    """Backward of `node` is preparation."""
    inside: list[Any] = []

    def begin(_: Any) -> None:
        inside.append(preparing())
        inside[-1].__enter__()

    def end(*_: Any) -> None:
        inside.pop().__exit__(None, None, None)

    node.register_prehook(begin)
    node.register_hook(end)


def _note_end_of_backward(_: Any) -> None:
    """Queued before DistributedDataParallel's own last word, which waits for its buckets."""
    after_backward_pass(lambda: _backward_done.append(time.perf_counter()))
