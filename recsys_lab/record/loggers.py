"""The loggers besides W&B, each a `_target_` of `conf/logger`. All write inside the run folder; metrics.csv is there with any of them.

Lightning is imported where one is made, so that a simulation without a logger does not wait for it. Hence no function names its types.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recsys_lab.ranges import Count


def tensorboard(folder: Path, config: Mapping[str, Any], name: str, group: str | None = None) -> Any:
    """Event files in `folder`/tensorboard. `tensorboard --logdir` on the sweep's folder shows its runs beside each other."""
    from lightning.pytorch.loggers import TensorBoardLogger

    return TensorBoardLogger(save_dir=str(folder), name="tensorboard", version="")


def csv(folder: Path, config: Mapping[str, Any], name: str, group: str | None = None, *, flush_every_n_steps: Count = 100) -> Any:
    """Everything that any callback logs, in `folder`/csv/metrics.csv. The columns are not fixed as those of metrics.csv are."""
    from lightning.pytorch.loggers import CSVLogger

    return CSVLogger(save_dir=str(folder), name="csv", version="", flush_logs_every_n_steps=flush_every_n_steps)


def none(folder: Path, config: Mapping[str, Any], name: str, group: str | None = None) -> None:
    """No logger: metrics.csv alone."""


def finish(logger: Any | None, status: str) -> None:
    """Close `logger` after the record is written: W&B gets its artifacts and summary. `status`: completed | failed."""
    if logger is None:
        return
    if hasattr(logger, "finish"):
        logger.finish(status)
    else:
        logger.finalize("success" if status == "completed" else "failed")
