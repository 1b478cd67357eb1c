"""Lightning's Trainer of a rank: its callbacks follow from the config."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch.distributed as dist

from recsys_lab.base.devices import device_here
from recsys_lab.record.metrics import HIGHER_IS_BETTER
from recsys_lab.record.metrics_csv import MetricsCsv
from recsys_lab.train import callbacks
from recsys_lab.train.accelerator import accelerator_of
from recsys_lab.train.await_checkpoints import AwaitCheckpoints
from recsys_lab.train.coverage import WatchTiers
from recsys_lab.train.job import Job
from recsys_lab.train.start import Start
from recsys_lab.train.termination import EndOnSigterm, ask_less_often


def trainer_of(job: Job, strategy: Any, logger: Any, first: list[pl.Callback], checkpoints: Path, start: Start | None) -> pl.Trainer:
    """The Trainer of this rank.

    Args:
        strategy: a ShardedStrategy.
        logger: None on other ranks than the first, and where nothing is logged.
        first: callbacks that come before those of the config, and of them first the one that sets the weights that training begins with.
        checkpoints: the folder for them.
        start: what the model begins with, if that is judged.
    """
    options, launcher = job.experiment.trainer, job.experiment.launcher
    every = options.evaluate_every_epochs
    hooks = [*first, *_callbacks(job, checkpoints, start)]
    if dist.get_rank() == 0 and options.progress_bar and job.sweep is None:  # a sweep has its own table
        hooks.append(callbacks.StepProgress())
    hooks.append(AwaitCheckpoints(options.checkpoint_every_steps))
    if every and start is not None:
        hooks.insert(1, callbacks.JudgeStart())  # after what sets the weights, before what counts look-ups or time
    trainer = pl.Trainer(
        accelerator=accelerator_of(device_here()),
        devices=launcher.ranks_per_host,
        num_nodes=launcher.hosts,
        strategy=strategy,
        logger=getattr(logger, "lightning", logger) or False,
        callbacks=hooks,
        max_epochs=options.epochs,
        max_steps=options.max_steps,
        gradient_clip_val=options.gradient_clip_norm,
        check_val_every_n_epoch=every or None,
        limit_val_batches=1.0 if every else 0,
        num_sanity_val_steps=0,
        log_every_n_steps=options.log_every_steps,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
        use_distributed_sampler=False,
        default_root_dir=str(job.folder),
    )
    ask_less_often(trainer)
    return trainer


def _callbacks(job: Job, checkpoints: Path, start: Start | None) -> list[pl.Callback]:
    options, stopping = job.experiment.trainer, job.experiment.trainer.early_stopping
    metric, higher = f"validation_{stopping.metric}", stopping.metric in HIGHER_IS_BETTER
    written = callbacks.Checkpoints(checkpoints, options.checkpoint_every_steps, options.keep, options.checkpoint_full_every)
    write_row = MetricsCsv(job.folder).append if dist.get_rank() == 0 else None
    hooks: list[pl.Callback] = [WatchTiers(), callbacks.MetricsLog(options.log_every_steps, write_row), written, EndOnSigterm(written)]
    if options.max_minutes:
        hooks.append(callbacks.TimeLimit(options.max_minutes * 60, options.log_every_steps))
    if options.restore_best:
        margin = start.margin if start is not None and stopping.metric == "auc" else 0.0
        hooks.append(callbacks.BestWeights(checkpoints, metric, higher, margin))
    if stopping.patience:
        mode = "max" if higher else "min"
        hooks.append(callbacks.ResumableEarlyStopping(metric, mode=mode, patience=stopping.patience, check_on_train_epoch_end=False))
    return hooks
