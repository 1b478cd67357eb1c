"""Lightning's profiler, for those who do not profile."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from lightning.pytorch.profilers import PassThroughProfiler

_NOTHING: AbstractContextManager = nullcontext()


class Unprofiled(PassThroughProfiler):
    """Notes nothing. Lightning's own makes a generator for each of some hundred hooks an iteration to do that."""

    def profile(self, action_name: str) -> AbstractContextManager:
        return _NOTHING
