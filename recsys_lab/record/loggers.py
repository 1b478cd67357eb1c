"""The loggers besides W&B, each a `_target_` of `conf/logger`. All write inside the run folder; metrics.csv is there with any of them.

Lightning is imported where a training takes its logger, so that no plan and no simulation waits for it.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from recsys_lab.base.packages import Package, needs
from recsys_lab.base.ranges import Count

LIGHTNING = Package("lightning", "cpu", "logger=none")
#: By name: columns and rows.
Tables = Mapping[str, tuple[Sequence[str], Sequence[Sequence[Any]]]]
#: What a tracker's runs are told apart by.
TOLD_BY = ("model", "sharder", "precision", "cluster", "data")


def choices(config: Mapping[str, Any]) -> dict[str, str]:
    """Of the run with `config`, those of TOLD_BY that its command line could name."""
    named = config.get("choices") or {}
    return {group: str(named[group]) for group in TOLD_BY if named.get(group)}


class OfTraining:
    """A logger that keeps nothing of a run that does not train. `lightning` makes Lightning's logger."""

    def __init__(self, make: Callable[[], Any]):
        self._make = make

    @functools.cached_property
    def lightning(self) -> Any:
        return self._make()

    def finish(self, status: str) -> None:
        if "lightning" in vars(self):
            self.lightning.finalize("success" if status == "completed" else "failed")


@needs(LIGHTNING)
def tensorboard(folder: Path, config: Mapping[str, Any], name: str, sweep: str | None = None) -> OfTraining:
    """Event files in `folder`/tensorboard. `tensorboard --logdir` on the sweep's folder shows its runs beside each other.

    This is the contract of every `_target_` in `conf/logger`.

    Args:
        folder: the run folder.
        config: the config that ran, as plain values.
        name: the run's.
        sweep: the sweep's name; None: a single run.

    Returns:
        A Lightning logger, or an object whose `lightning` is one, for training. If it has `finish(status)`, `finish` calls it; else
        Lightning's `finalize`.
    """

    def make() -> Any:
        from lightning.pytorch.loggers import TensorBoardLogger

        return TensorBoardLogger(save_dir=str(folder), name="tensorboard", version="")

    return OfTraining(make)


@needs(LIGHTNING)
def csv(folder: Path, config: Mapping[str, Any], name: str, sweep: str | None = None, *, flush_every_n_steps: Count = 100) -> OfTraining:
    """Everything that any callback logs, in `folder`/csv/metrics.csv. Its columns are not fixed as those of metrics.csv are.

    Args:
        folder, config, name, sweep: those of `tensorboard`.
        flush_every_n_steps: how often the file is written.

    Returns:
        As `tensorboard`.
    """

    def make() -> Any:
        from lightning.pytorch.loggers import CSVLogger

        return CSVLogger(save_dir=str(folder), name="csv", version="", flush_logs_every_n_steps=flush_every_n_steps)

    return OfTraining(make)


def none(folder: Path, config: Mapping[str, Any], name: str, sweep: str | None = None) -> None:
    """No logger: metrics.csv alone.

    Args:
        folder, config, name, sweep: those of `tensorboard`.
    """


def libraries(logger: Any) -> Sequence[str]:
    """What a training with `logger`, a `_target_` of `conf/logger`, imports beside what every rank does: `LIBRARIES` of its module."""
    named: Sequence[str] = getattr(sys.modules[logger.func.__module__], "LIBRARIES", ())
    return named


def finish(logger: Any | None, status: str) -> None:
    """Closes a logger after the record is written. W&B and MLflow then get artifacts and summary.

    Args:
        logger: what a `_target_` of `conf/logger` returned.
        status: completed or failed.
    """
    if logger is None:
        return
    if hasattr(logger, "finish"):
        logger.finish(status)
    else:
        logger.finalize("success" if status == "completed" else "failed")
