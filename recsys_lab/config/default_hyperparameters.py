"""Settings that the config leaves open (null), chosen by the rows of the train split. A key of the user is not null, so it wins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from recsys_lab.config.options import OptimizerOptions, TrainerOptions

#: Training ends after so many evaluations without a better one, epochs or minutes, whichever comes first.
PATIENCE, MOST_EPOCHS, MOST_MINUTES = 4, 100, 10.0
#: Up to so many rows the tables' Adam is damped most. Beyond, eps falls as rows grow, and the rate as their root.
FEW_ROWS, TUNED_BATCH = 100_000, 512
MOST_EPS, LEAST_EPS = 3e-3, 1e-8
MOST_LR, LEAST_LR = 2e-2, 1e-3
#: The tables' highest rate where the first-order part is learnt already: the rest of the model must not spoil it.
BEGUN_LR = 5e-3
#: Most rows of a table that the dense arch overfits before it has learnt the first-order part, unless that is learnt already.
DENSE_FEW_ROWS, DENSE_FEW_LR, DENSE_LR = 20_000, 1e-4, 1e-3


@dataclass(frozen=True)
class Defaults:
    """`chosen`: the keys that were open, with their values."""

    trainer: TrainerOptions
    optimizer: OptimizerOptions
    chosen: dict[str, Any]


def default_hyperparameters(
    rows: int, batch_size: int, linear: bool, begins: bool, trainer: TrainerOptions, optimizer: OptimizerOptions
) -> Defaults:
    """Both with what is null chosen for a train split of so many `rows`.

    `linear`: the model has a first-order part. `begins`: which can begin with what the baseline has learnt.
    """
    parts, chosen = {"trainer": trainer, "optimizer": optimizer}, {}
    damped = linear and optimizer.sparse.name == "adam"
    values = _stops(trainer.evaluate_every_epochs > 0)
    values |= {"trainer.start_from_baseline": True} if begins else {}
    values |= _damping(rows, batch_size, begins) if damped else {}
    for key, value in values.items():
        part, *path = key.split(".")
        parts[part], was_open = filled(parts[part], path, value)
        if was_open:
            chosen[key] = value
    return Defaults(parts["trainer"], parts["optimizer"], chosen)  # type: ignore[arg-type]  # each has kept its type


def _damping(rows: int, batch_size: int, begins: bool) -> dict[str, Any]:
    """Adam's eps is so large that a row with a small gradient moves little. Rows of rare values stay near where they began."""
    share = min(1.0, FEW_ROWS / rows)
    eps, lr = MOST_EPS * share * TUNED_BATCH / batch_size, max(MOST_LR * share**0.5, LEAST_LR)
    lr = min(lr, BEGUN_LR) if begins else lr
    return {
        "optimizer.dense.lr": DENSE_FEW_LR if rows <= DENSE_FEW_ROWS and not begins else DENSE_LR,
        "optimizer.sparse.lr": float(f"{lr:.2g}"),
        "optimizer.sparse.eps": float(f"{min(max(eps, LEAST_EPS), 1.0):.2g}"),
    }


def _stops(evaluates: bool) -> dict[str, Any]:
    """Without evaluations on the way there is nothing to stop by, and nothing to restore."""
    stops = {"trainer.max_epochs": MOST_EPOCHS, "trainer.early_stopping.patience": PATIENCE, "trainer.restore_best": True}
    return {**(stops if evaluates else {}), "trainer.max_minutes": MOST_MINUTES}


def filled(options: Any, path: Sequence[str], value: Any, always: bool = False) -> tuple[Any, bool]:
    """The dataclass `options` with `value` at `path` where there was null, or `always`, and whether it has it."""
    first, *rest = path
    inner = getattr(options, first)
    if rest:
        part, was_open = filled(inner, rest, value, always)
        return replace(options, **{first: part}), was_open
    return (replace(options, **{first: value}), True) if inner is None or always else (options, False)
