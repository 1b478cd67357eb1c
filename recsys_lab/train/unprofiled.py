"""What an iteration costs those who asked for nothing: profilers' ranges, and hooks that no callback has."""

from __future__ import annotations

import functools
from contextlib import nullcontext
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Checkpoint, EarlyStopping
from lightning.pytorch.profilers import PassThroughProfiler
from lightning.pytorch.trainer import call
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


@functools.cache
def skip_empty_hooks() -> None:
    """From here on Lightning calls the hooks that callbacks have, and profiles none. It asks each of a dozen callbacks six times an
    iteration, where two or three have an answer.
    """
    lightning: Any = call
    lightning._call_callback_hooks = _call_own_hooks


def _call_own_hooks(trainer: Any, hook_name: str, *arguments: Any, monitoring_callbacks: bool | None = None, **named: Any) -> None:
    """As Lightning's, whose name for early stopping and checkpoints is `monitoring_callbacks`; None: all."""
    own: list[Any] = [callback for callback in trainer.callbacks if _has_hook(type(callback), hook_name)]
    if monitoring_callbacks is not None:
        own = [one for one in own if isinstance(one, (EarlyStopping, Checkpoint)) == monitoring_callbacks]
    module: Any = trainer.lightning_module
    if not own or module is None:
        return
    outer, module._current_fx_name = module._current_fx_name, hook_name
    for callback in own:
        getattr(callback, hook_name)(trainer, module, *arguments, **named)
    module._current_fx_name = outer


def _has_hook(kind: type, hook: str) -> bool:
    """Whether callbacks of this kind do anything there."""
    return getattr(kind, hook) is not getattr(pl.Callback, hook)
