"""When something happened: to the host, and to the GPU that has its work from it. A GPU is behind; its times are those of its own clock."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Timestamp:
    """`s`: the host's, by `time.perf_counter`. `event`: on the GPU's current stream, where this process has begun to use one."""

    s: float
    event: torch.cuda.Event | None = None


def timestamp() -> Timestamp:
    """Now. Costs a GPU nothing and waits for nothing."""
    if not torch.cuda.is_initialized():
        return Timestamp(time.perf_counter())
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return Timestamp(time.perf_counter(), event)


def ms_between(first: Timestamp, second: Timestamp) -> float:
    """Of the GPU where both have its event, which this waits for; else of the host."""
    if first.event is None or second.event is None:
        return (second.s - first.s) * 1e3
    second.event.synchronize()
    return first.event.elapsed_time(second.event)
