"""The loggers besides W&B, each a `_target_` of `conf/logger`. All write inside the run folder; metrics.csv is there with any of them.

Lightning is imported where one is made, so that a simulation without a logger does not wait for it. Hence no function names its types.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recsys_lab.base.packages import Package, needs
from recsys_lab.base.ranges import Count

LIGHTNING = Package("lightning", "cpu", "logger=none")


@needs(LIGHTNING)
def tensorboard(folder: Path, config: Mapping[str, Any], name: str, group: str | None = None) -> Any:
    """Event files in `folder`/tensorboard. `tensorboard --logdir` on the sweep's folder shows its runs beside each other.

    This is the contract of every `_target_` in `conf/logger`.

    Args:
        folder: the run folder.
        config: the config that ran, as plain values.
        name: the run's.
        group: the sweep's name; None: a single run.

    Returns:
        A Lightning logger. If it has `finish(status)`, `finish` calls it; else Lightning's `finalize`.
    """
    from lightning.pytorch.loggers import TensorBoardLogger

    return TensorBoardLogger(save_dir=str(folder), name="tensorboard", version="")


@needs(LIGHTNING)
def csv(folder: Path, config: Mapping[str, Any], name: str, group: str | None = None, *, flush_every_n_steps: Count = 100) -> Any:
    """Everything that any callback logs, in `folder`/csv/metrics.csv. Its columns are not fixed as those of metrics.csv are.

    Args:
        folder, config, name, group: those of `tensorboard`.
        flush_every_n_steps: how often the file is written.

    Returns:
        A Lightning logger.
    """
    from lightning.pytorch.loggers import CSVLogger

    return CSVLogger(save_dir=str(folder), name="csv", version="", flush_logs_every_n_steps=flush_every_n_steps)


def none(folder: Path, config: Mapping[str, Any], name: str, group: str | None = None) -> None:
    """No logger: metrics.csv alone.

    Args:
        folder, config, name, group: those of `tensorboard`.
    """


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
