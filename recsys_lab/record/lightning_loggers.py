"""Our loggers of W&B's and MLflow's runs as Lightning's: in a file of its own, since Lightning imports torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger, WandbLogger

from recsys_lab.record import mlflow_run, wandb_run


class OfWandb(wandb_run.RunLogger, WandbLogger):
    """Lightning's own over `run`, which lies in `folder`."""

    def __init__(self, run: Any, folder: Path):
        super().__init__(experiment=run, save_dir=folder, project=run.project, name=run.name, id=run.id)
        self.folder = folder


class OfMLflow(mlflow_run.RunLogger, Logger):
    """Lightning's interface alone."""
