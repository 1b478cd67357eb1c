"""What profilers cost those who do not profile: Lightning's hooks, and the ranges that torch and TorchRec name."""

from __future__ import annotations

import functools
from contextlib import nullcontext
from typing import Any

from lightning.pytorch.profilers import PassThroughProfiler
from torch.autograd import profiler

_NOTHING = nullcontext()


class Unprofiled(PassThroughProfiler):
    """Notes nothing. Lightning's own makes a generator for each of some hundred hooks an iteration to do that."""

    def profile(self, action_name: str) -> Any:
        return _NOTHING


@functools.cache
def skip_ranges() -> None:
    """From here on a `record_function` does nothing while no profiler of torch runs. TorchRec opens some forty an iteration."""
    named: Any = profiler.record_function
    begin, end = named.__enter__, named.__exit__

    def enter(self: Any) -> Any:
        return begin(self) if profiler._is_profiler_enabled else self

    def leave(self: Any, *error: Any) -> None:
        if self.record is not None:  # it began while a profiler ran
            end(self, *error)

    named.__enter__, named.__exit__ = enter, leave
