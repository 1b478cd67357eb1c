"""The life of one rank. It opens the data, builds the model, shards and trains it, and evaluates it. Rank 0 writes the record."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
import torch.distributed as dist

from recsys_lab.base.devices import device_here, take, why_no_gpu
from recsys_lab.base.environment import DEVICE, word_of
from recsys_lab.base.quiet import quiet_torchrec
from recsys_lab.config.frozen import identity
from recsys_lab.config.options import PruneOptions, TrainerOptions
from recsys_lab.data.loader import RankLoader
from recsys_lab.data.protocol import DataSet
from recsys_lab.errors import UserError
from recsys_lab.executor.sharded_model import ShardedModel
from recsys_lab.experiment import Experiment
from recsys_lab.kernels.row_cache import SCRATCH
from recsys_lab.models.click_model import ClickModel
from recsys_lab.plan.store_facts import expected_counts
from recsys_lab.record.loggers import finish
from recsys_lab.record.metrics import HIGHER_IS_BETTER
from recsys_lab.record.metrics_csv import MetricsCsv, read_metrics
from recsys_lab.record.result import Measured, Result, write_result
from recsys_lab.train import FROM_CHECKPOINT, callbacks, checkpoint_folder
from recsys_lab.train.accelerator import accelerator_of
from recsys_lab.train.ahead import InputAhead
from recsys_lab.train.coverage import Seen, WatchTiers, coverage, gather, hot_rows
from recsys_lab.train.evaluate import evaluate
from recsys_lab.train.job import Job
from recsys_lab.train.loader import NextEpoch, ResumableLoader
from recsys_lab.train.manifest import broken
from recsys_lab.train.measure import Measure
from recsys_lab.train.memory import keep_memory, watch
from recsys_lab.train.module import ClickModule, loggable
from recsys_lab.train.objective import Objective, objective_of
from recsys_lab.train.prune import Prune
from recsys_lab.train.start import Start
from recsys_lab.train.strategy import ShardedStrategy, seed_rank, start_process_group
from recsys_lab.train.termination import EndOnSigterm, ask_less_often
from recsys_lab.train.unprofiled import Unprofiled, skip_empty_hooks, skip_ranges

#: Threads that read batches for a GPU, if there are twice as many cores.
MOST_READERS = 4
#: (rank, world size, split) -> that rank's batches.
Loaders = Callable[[str], RankLoader]


def train_here(job: Job) -> dict[str, Any] | None:
    """Trains `job` as the rank that the environment names. Returns the record (JSON) on rank 0, None elsewhere."""
    _quiet()
    skip_ranges()
    skip_empty_hooks()
    keep_memory()
    experiment, options = job.experiment, job.experiment.trainer
    os.environ[DEVICE] = word_of(DEVICE) or options.device
    take(device := device_here())
    start_process_group()
    seed_rank(experiment.seed, dist.get_rank())
    if dist.get_rank() == 0 and (why := why_no_gpu(device)):
        print(why, file=sys.stderr, flush=True)
    data = experiment.open_data(job.most_rows)
    loader = partial(_loader, data, experiment, device)
    train_loader = loader("train")
    steps_per_epoch = len(train_loader)
    total = steps_per_epoch * options.epochs
    total = min(total, options.max_steps) if options.max_steps > 0 else total
    start = _start(job)
    strategy = ShardedStrategy(
        shard=partial(_shard, job, data, device, start),
        optimizer=experiment.optimizer,
        total_steps=total,
        steps_per_epoch=steps_per_epoch,
        example=train_loader.example(),
        run=identity(experiment.config),
        data=data.fingerprint,
    )
    before = watch(device)
    towers = experiment.sharder.modules(job.plan.towers)
    model = experiment.build_model(data, torch.device("meta"), towers)  # each rank makes its own rows; the whole tables need not fit
    objective = objective_of(model.objective, data, options.evaluate_pairs)
    validation = loader("validation")
    module = ClickModule(model, objective.loss, objective.evaluation("validation", validation))
    logger = _logger(job)
    batches = ResumableLoader(train_loader, device if experiment.sharder.executor.pipeline else None)
    ahead = InputAhead(batches)
    measure = Measure(train_loader, options.measure_steps, ahead.steady, before)
    folder = job.folder / checkpoint_folder.FOLDER
    prune = _prune(experiment.ablation.prune)
    trainer = _trainer(job, strategy, logger, [NextEpoch(batches), measure, ahead, prune], folder, start)
    last = _tidy(job.folder, bool(experiment.resume) or FROM_CHECKPOINT in os.environ)
    try:
        trainer.fit(module, batches, validation, ckpt_path=None if last is None else str(last))
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        if last is None or strategy.has_begun:
            raise
        raise broken(last, f"{checkpoint_folder.TRAINER_FILE} is of another shape ({type(error).__name__}: {error})") from None
    if options.restore_best and (folder / "best").is_dir():
        strategy.load_weights(folder / "best")
    figures = _evaluate_splits(strategy, data, objective, loader, options, device)
    seen = gather(strategy.sharded)
    measured = measure.result(job.steps, experiment.launcher.hosts, experiment.launcher.ranks_per_host, device)
    measured = _with_expected(measured, job, data, measure.steps_done)
    record = replace(job.record, quality=figures if data.learnable else None, measured=measured)
    if prune.pruned is not None:
        record = replace(record, status="pruned", pruned=prune.pruned)
    if dist.get_rank() == 0:
        record = _with_coverage(record, job, data, seen)
        _log_final(job.folder, figures.get("validation"), trainer)
        write_result(job.folder, record)
        finish(logger, "completed")
    dist.barrier()
    return record.to_json() if dist.get_rank() == 0 else None


def _prune(options: PruneOptions | None) -> Prune:
    """Cuts the run short where a search says so. Without one never."""
    options = options or PruneOptions("auc", [])
    return Prune(options.metric, options.metric in HIGHER_IS_BETTER, options.bounds)


def _with_coverage(record: Result, job: Job, data: DataSet, seen: Seen) -> Result:
    """The record with how much of the traffic the plan's tiers covered. It is there where it was measured and the plan has such tiers."""
    hot = hot_rows(job.plan, data.hottest)
    if record.measured is None or not hot:
        return record
    traffic = coverage(seen, job.plan, data.access, hot, job.replan, job.experiment.trainer.replan_saving)
    return replace(record, measured=replace(record.measured, coverage=traffic))


def _with_expected(measured: Measured | None, job: Job, data: DataSet, steps: int) -> Measured | None:
    """`measured` with what the access statistics expect of each rank's caches beside what was counted."""
    if measured is None or measured.stores is None:
        return measured
    how = job.plan, data.access, job.experiment.batch_size_here, job.experiment.sharder.executor.in_flight
    expected = [expected_counts(*how, rank, steps) for rank in range(len(measured.stores))]
    beside = [{t: {**n, **of_rank.get(t, {})} for t, n in counts.items()} for counts, of_rank in zip(measured.stores, expected)]
    return replace(measured, stores=beside)


def _start(job: Job) -> Start | None:
    """What the model begins with; None: weights that are drawn. Collective: rank 0 alone may know it."""
    if not job.experiment.trainer.start_from_baseline:
        return None
    box = [job.start]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def _shard(job: Job, data: DataSet, device: torch.device, start: Start | None, model: ClickModel) -> ShardedModel:
    scratch = os.environ.get(SCRATCH) or str(job.folder)
    return job.experiment.shard(model, job.plan, device, hot_rows(job.plan, data.hottest), scratch, start.weights if start else None)


def _loader(data: DataSet, experiment: Experiment, device: torch.device, split: str) -> RankLoader:
    return RankLoader(
        data.splits[split],
        data,
        batch_size=experiment.data.batch_size,
        rank=dist.get_rank(),
        world_size=dist.get_world_size(),
        seed=experiment.seed,
        shuffle=split == "train",
        prefetch_batches=experiment.data.prefetch_batches,
        pin_memory=device.type == "cuda",
        readers=_readers(device, experiment.launcher.ranks_per_host),
    )


def _readers(device: torch.device, ranks_per_host: int) -> int:
    """Threads that read batches: one beside a CPU's own work. A GPU leaves cores to read with, and waits where one thread is too slow."""
    if device.type == "cpu":
        return 1
    return max(1, min(MOST_READERS, len(os.sched_getaffinity(0)) // ranks_per_host // 2))


def _trainer(
    job: Job, strategy: ShardedStrategy, logger: Any, first_hooks: list[pl.Callback], checkpoint_folder: Path, start: Start | None
) -> pl.Trainer:
    options, launcher, main = job.experiment.trainer, job.experiment.launcher, dist.get_rank() == 0
    stopping = options.early_stopping
    metric, higher = f"validation_{stopping.metric}", stopping.metric in HIGHER_IS_BETTER
    hooks: list[pl.Callback] = [
        *first_hooks,
        WatchTiers(),
        callbacks.MetricsLog(options.log_every_steps, MetricsCsv(job.folder).append if main else None),
        written := callbacks.Checkpoints(checkpoint_folder, options.checkpoint_every_steps),
        EndOnSigterm(written),
    ]
    if options.max_minutes:
        hooks.append(callbacks.TimeLimit(options.max_minutes * 60, options.log_every_steps))
    if options.restore_best:
        margin = start.margin if start is not None and stopping.metric == "auc" else 0.0
        hooks.append(callbacks.BestWeights(checkpoint_folder, metric, higher, margin))
    if stopping.patience:
        hooks.append(
            callbacks.ResumableEarlyStopping(
                metric, mode="max" if higher else "min", patience=stopping.patience, check_on_train_epoch_end=False
            )
        )
    if main and options.progress_bar and job.sweep is None:  # a sweep has its own table
        hooks.append(callbacks.StepProgress())
    every = options.evaluate_every_epochs
    if every and start is not None:
        hooks.insert(0, callbacks.JudgeStart())  # before what counts look-ups or time
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
        profiler=Unprofiled(),
        default_root_dir=str(job.folder),
    )
    ask_less_often(trainer)
    return trainer


def _logger(job: Job) -> Any:
    if dist.get_rank() != 0:
        return None
    experiment = job.experiment
    name = f"{experiment.title('model', 'sharder', 'data')}_seed{experiment.seed}"
    return experiment.logger(job.folder, experiment.config, name, job.sweep)


def _tidy(folder: Path, resumes: bool) -> Path | None:
    """The checkpoint to go on from. A resumed run writes the steps after it again: drops what the killed one wrote of them. Collective."""
    if dist.get_rank() == 0:
        checkpoint_folder.clear_partial(folder / checkpoint_folder.FOLDER)
    dist.barrier()
    last = checkpoint_folder.newest(folder) if resumes else None
    if dist.get_rank() == 0 and (folder / "metrics.csv").exists():
        MetricsCsv(folder).truncate_after(int(last.name.split("=")[1]) if last is not None else -1)
    dist.barrier()
    return last


def _evaluate_splits(
    strategy: ShardedStrategy, data: DataSet, objective: Objective, loader: Loaders, options: TrainerOptions, device: torch.device
) -> dict[str, Any]:
    """Exact quality of the final weights on every split that can be judged. Train only up to its limit of rows."""
    if not data.learnable:
        return {}
    figures = {}
    for split, rows in data.splits.items():
        if split == "train" and rows.rows > options.evaluate_train_rows:
            continue
        evaluation = objective.final(split, _in_file_order(loader(split)))
        if evaluation is not None:
            figures[split] = evaluate(strategy.sharded.module, evaluation, device)
    return figures


def _log_final(folder: Path, figures: dict[str, Any] | None, trainer: pl.Trainer) -> None:
    """The final evaluation as the last point of the learning curve, unless the last epoch's end already is that point."""
    rows = read_metrics(folder)
    metrics = loggable(figures or {})
    if not metrics or (rows and rows[-1]["step"] == trainer.global_step and any(rows[-1][name] is not None for name in metrics)):
        return
    MetricsCsv(folder).append({"step": trainer.global_step, "epoch": max(0, trainer.current_epoch - 1), **metrics})
    for logger in trainer.loggers:
        logger.log_metrics(metrics, step=trainer.global_step)


def _in_file_order(loader: RankLoader) -> RankLoader:
    loader.shuffle = False
    return loader


def _quiet() -> None:
    """Silences by module what Lightning says on every start and no user can act on."""
    quiet_torchrec()
    warnings.filterwarnings("ignore", category=UserWarning, module=r"lightning\..*")
    warnings.filterwarnings("ignore", message=r".*isinstance\(treespec, LeafSpec\).*")
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)


__all__ = ["UserError", "train_here"]
