"""Settings that the config leaves open (null), chosen by the rows of the train split. A key of the user is not null, so it wins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from recsys_lab.config.options import OptimizerOptions, TrainerOptions

#: Training ends after so many evaluations without a better one, epochs or minutes, whichever comes first.
PATIENCE, MOST_EPOCHS, MOST_MINUTES = 3, 100, 10.0


@dataclass(frozen=True)
class Suited:
    """`chosen`: the keys that were open, with their values."""

    trainer: TrainerOptions
    optimizer: OptimizerOptions
    chosen: dict[str, Any]


def suited(rows: int, trainer: TrainerOptions, optimizer: OptimizerOptions) -> Suited:
    """`trainer` and `optimizer` with what is null chosen for a train split of so many `rows`."""
    parts, chosen = {"trainer": trainer, "optimizer": optimizer}, {}
    for key, value in _proposals(rows, trainer.evaluate_every_epochs > 0).items():
        part, *path = key.split(".")
        parts[part], was_open = _filled(parts[part], path, value)
        if was_open:
            chosen[key] = value
    return Suited(parts["trainer"], parts["optimizer"], chosen)  # type: ignore[arg-type]  # each has kept its type


def _proposals(rows: int, evaluates: bool) -> dict[str, Any]:
    """A value for each key that may be open. Without evaluations on the way there is nothing to stop by, and nothing to restore."""
    stops = {"trainer.max_epochs": MOST_EPOCHS, "trainer.early_stopping.patience": PATIENCE, "trainer.restore_best": True}
    return {**(stops if evaluates else {}), "trainer.max_minutes": MOST_MINUTES}


def _filled(options: Any, path: Sequence[str], value: Any) -> tuple[Any, bool]:
    """The dataclass `options` with `value` at `path` where there was null, and whether there was."""
    first, *rest = path
    inner = getattr(options, first)
    if rest:
        part, was_open = _filled(inner, rest, value)
        return replace(options, **{first: part}), was_open
    return (replace(options, **{first: value}), True) if inner is None else (options, False)
