"""The life of one rank: instantiate, fit, test. Rank 0 writes the record."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
import torch.distributed as dist
from lightning.pytorch.plugins.environments import TorchElasticEnvironment

from recsys_lab.base.devices import device_here, take, why_no_gpu
from recsys_lab.base.environment import DEVICE, word_of
from recsys_lab.base.paths import sweep_of
from recsys_lab.base.quiet import quiet_torchrec
from recsys_lab.config.frozen import identity
from recsys_lab.config.options import PruneOptions, TrainerOptions
from recsys_lab.data.loader import RankLoader
from recsys_lab.data.protocol import DataSet
from recsys_lab.errors import UserError
from recsys_lab.executor.sharded_model import ShardedModel
from recsys_lab.experiment import SHUFFLED, Experiment
from recsys_lab.kernels.row_cache import SCRATCH
from recsys_lab.lightning import ShardedStrategy
from recsys_lab.plan import ShardingPlan
from recsys_lab.plan.store_facts import expected_counts
from recsys_lab.record.metrics import HIGHER_IS_BETTER
from recsys_lab.record.metrics_csv import MetricsCsv, read_metrics
from recsys_lab.record.result import EndedBy, Measured, Result, write_result
from recsys_lab.report.tracker import publish
from recsys_lab.train import FROM_CHECKPOINT, checkpoint_folder
from recsys_lab.train.callbacks import TimeLimit
from recsys_lab.train.coverage import Seen, coverage, gather, hot_rows
from recsys_lab.train.evaluate import Judgement, evaluate
from recsys_lab.train.input_dist_prefetch import PrefetchInputDist
from recsys_lab.train.job import Job
from recsys_lab.train.loader import NextEpoch, ResumableLoader
from recsys_lab.train.manifest import broken
from recsys_lab.train.measure import Measure
from recsys_lab.train.memory import keep_memory, watch
from recsys_lab.train.model_executor import ModelExecutor, TrainedModel
from recsys_lab.train.module import ClickModule, loggable
from recsys_lab.train.newest_whole import newest_whole
from recsys_lab.train.objective import Objective, objective_of
from recsys_lab.train.process_group import start_process_group
from recsys_lab.train.prune import Prune
from recsys_lab.train.seed import seed_rank
from recsys_lab.train.start import Start
from recsys_lab.train.start_from import StartFrom
from recsys_lab.train.trainer import trainer_of

#: Threads that read batches for a GPU, if there are twice as many cores.
MOST_READERS = 4
#: split -> this rank's batches of it.
Loaders = Callable[[str], RankLoader]


def train_here(job: Job) -> dict[str, Any] | None:
    """Trains `job` as the rank that the environment names. Returns the record (JSON) on rank 0, None elsewhere."""
    device = join(job)
    data = job.experiment.open_data(job.most_rows)
    resumes = bool(job.experiment.resume) or FROM_CHECKPOINT in os.environ
    checkpoint = newest_whole(job.folder, identity(job.experiment.config), resumes, bool(job.experiment.trainer.restore_best))
    run = _instantiate(job, data, device, checkpoint)
    with _naming_broken(checkpoint, run.strategy):
        run.trainer.fit(run.module, run.batches, run.validation, ckpt_path=checkpoint and str(checkpoint))
    _restore_best(run, job)
    judgements = judged(run.trained.model.module, run.objective, run.loader, job, data, run.device)
    record = _record(run, job, data, judgements)
    dist.barrier()
    return record.to_json() if dist.get_rank() == 0 else None


@dataclass(frozen=True)
class Run:
    """What a rank trains with.

    Attributes:
        batches: of the training split, epoch after epoch.
        loader: this rank's batches of any split.
        logger: None on other ranks than the first, and where nothing is logged.
    """

    trainer: pl.Trainer
    strategy: ShardedStrategy
    module: ClickModule
    objective: Objective
    batches: ResumableLoader
    validation: RankLoader
    loader: Loaders
    logger: Any
    measure: Measure
    prune: Prune
    begins: StartFrom
    device: torch.device

    @property
    def trained(self) -> TrainedModel:
        """There once the trainer has begun to fit."""
        assert isinstance(self.strategy.sharded, TrainedModel)
        return self.strategy.sharded


def join(job: Job) -> torch.device:
    """This process becomes a rank, on its device."""
    _quiet()
    keep_memory()
    os.environ[DEVICE] = word_of(DEVICE) or job.experiment.trainer.device
    os.environ.setdefault("OMP_NUM_THREADS", str(torch.get_num_threads()))  # else Lightning chooses how many threads torch has
    take(device := device_here())
    start_process_group()
    seed_rank(job.experiment.seed, dist.get_rank())
    if dist.get_rank() == 0 and (why := why_no_gpu(device)):
        print(why, file=sys.stderr, flush=True)
    return device


def _instantiate(job: Job, data: DataSet, device: torch.device, checkpoint: Path | None) -> Run:
    experiment, options = job.experiment, job.experiment.trainer
    loader = partial(rank_loader, data, experiment, device)
    train_loader, start = loader("train"), _start(job)
    executor = _executor(job, data, device, train_loader, start, checkpoint)
    strategy = ShardedStrategy(job.plan, executor, cluster_environment=TorchElasticEnvironment())
    before = watch(device)
    towers = experiment.sharder.modules(job.plan.towers)
    model = experiment.build_model(data, torch.device("meta"), towers)  # each rank makes its own rows; the whole tables need not fit
    objective = objective_of(model.objective, data, options.evaluate_pairs, experiment.evaluate, model.loss_weight, model.loss)
    validation = loader("validation")
    module = ClickModule(model, objective.loss, objective.evaluation("validation", validation))
    logger = logger_of(job)
    batches = ResumableLoader(train_loader, device if experiment.sharder.executor.pipeline else None)
    prefetch = PrefetchInputDist(batches)
    measure = Measure(train_loader, options.measure_steps, prefetch.steady, before)
    prune = _prune(experiment.ablation.prune)
    begins = StartFrom(job.weights)
    first = [begins, NextEpoch(batches), measure, prefetch, prune]
    trainer = trainer_of(job, strategy, logger, first, job.folder / checkpoint_folder.FOLDER, start)
    return Run(trainer, strategy, module, objective, batches, validation, loader, logger, measure, prune, begins, device)


@contextmanager
def _naming_broken(checkpoint: Path | None, strategy: ShardedStrategy) -> Iterator[None]:
    """What goes wrong before training has begun is the checkpoint's."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        if checkpoint is None or strategy.has_begun:
            raise
        raise broken(checkpoint, f"{checkpoint_folder.TRAINER_FILE} is of another shape ({type(error).__name__}: {error})") from None


def _restore_best(run: Run, job: Job) -> None:
    """Training ends with the best weights, where the config says so."""
    best = job.folder / checkpoint_folder.FOLDER / "best"
    if job.experiment.trainer.restore_best and best.is_dir():
        run.trained.restore(best)


def judged(
    model: torch.nn.Module, objective: Objective, loader: Loaders, job: Job, data: DataSet, device: torch.device
) -> dict[str, Judgement]:
    """Exact quality of `model` on every split that can be judged. Train only where that was asked for."""
    if not data.learnable:
        return {}
    judgements = {}
    for split, rows in data.splits.items():
        if split == "train" and rows.rows > job.experiment.trainer.evaluate_train_rows:
            continue
        evaluation = objective.final(split, in_file_order(loader(split)))
        if evaluation is not None:
            judgements[split] = evaluate(model, evaluation, device)
    return judgements


def with_quality(record: Result, judgements: Mapping[str, Judgement]) -> Result:
    """`record` with what was found of each split."""
    quality = {split: judgement.quality for split, judgement in judgements.items()}
    breakdown = {split: one.breakdown for split, one in judgements.items() if one.breakdown is not None}
    return replace(record, quality=quality, breakdown=breakdown or None)


def _record(run: Run, job: Job, data: DataSet, judgements: dict[str, Judgement]) -> Result:
    """Collective. Rank 0 writes it."""
    launcher = job.experiment.launcher
    seen = gather(run.trained.model)
    measured = run.measure.result(job.steps, launcher.hosts, launcher.ranks_per_host, run.device)
    measured = _with_expected(measured, job, data, run.measure.steps_done)
    ended_by = _ended_by(run, job.experiment.trainer)
    record = replace(job.record, measured=measured, started_from=run.begins.started, ended_by=ended_by)
    record = with_quality(record, judgements) if data.learnable else record
    if run.prune.pruned is not None:
        record = replace(record, status="pruned", pruned=run.prune.pruned)
    if dist.get_rank() == 0:
        record = _with_coverage(record, job, data, seen)
        _log_final(job.folder, (record.quality or {}).get("validation"), run.trainer)
        write_result(job.folder, record)
        publish(run.logger, job.folder)
    return record


def _ended_by(run: Run, options: TrainerOptions) -> EndedBy | None:
    """The limit that ended training before its last epoch did; None where none has."""
    steps, of_steps = run.trainer.global_step, len(run.batches) * options.epochs
    if steps >= of_steps:
        return None
    if steps == options.max_steps:
        return EndedBy("trainer.max_steps", steps, of_steps)
    in_time = any(isinstance(one, TimeLimit) and one.reached for one in run.trainer.callbacks)  # type: ignore[attr-defined]
    return EndedBy("trainer.max_minutes", steps, of_steps) if in_time else None


def _executor(
    job: Job, data: DataSet, device: torch.device, loader: RankLoader, start: Start | None, checkpoint: Path | None
) -> ModelExecutor:
    options = job.experiment.trainer
    total_steps = len(loader) * options.epochs
    return ModelExecutor(
        shard_model=partial(shard, job, data, device, start),
        optimizer=job.experiment.optimizer,
        total_steps=min(total_steps, options.max_steps) if options.max_steps > 0 else total_steps,
        steps_per_epoch=len(loader),
        example=loader.example(),
        run=identity(job.experiment.config),
        data=data.fingerprint,
        whole=checkpoint,
    )


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


def shard(job: Job, data: DataSet, device: torch.device, start: Start | None, model: Any, plan: ShardingPlan) -> ShardedModel:
    scratch = os.environ.get(SCRATCH) or str(job.folder)
    return job.experiment.shard(model, plan, device, hot_rows(plan, data.hottest), scratch, start.weights if start else None)


def rank_loader(data: DataSet, experiment: Experiment, device: torch.device, split: str) -> RankLoader:
    return RankLoader(
        data.splits[split],
        data,
        batch_size=experiment.data.batch_size,
        rank=dist.get_rank(),
        world_size=dist.get_world_size(),
        seed=experiment.seed,
        shuffle=split == "train" and experiment.data.order == SHUFFLED,
        prefetch_batches=experiment.data.prefetch_batches,
        pin_memory=device.type == "cuda",
        readers=_readers(device, experiment.launcher.ranks_per_host),
        dealt_by=experiment.dealt_by if split == "train" else None,
    )


def _readers(device: torch.device, ranks_per_host: int) -> int:
    """Threads that read batches: one beside a CPU's own work. A GPU leaves cores to read with, and waits where one thread is too slow."""
    if device.type == "cpu":
        return 1
    return max(1, min(MOST_READERS, len(os.sched_getaffinity(0)) // ranks_per_host // 2))


def logger_of(job: Job) -> Any:
    if dist.get_rank() != 0:
        return None
    experiment = job.experiment
    name = f"{experiment.title('model', 'sharder', 'data')}_seed{experiment.seed}"
    above = sweep_of(job.folder)  # that of a job which is resumed by itself too
    return experiment.logger(job.folder, experiment.config, name, job.sweep or (above and above.name))


def _log_final(folder: Path, figures: Mapping[str, Any] | None, trainer: pl.Trainer) -> None:
    """The final evaluation as the last point of the learning curve, unless the last epoch's end already is that point."""
    rows = read_metrics(folder)
    metrics = loggable(dict(figures or {}))
    if not metrics or (rows and rows[-1]["step"] == trainer.global_step and any(rows[-1][name] is not None for name in metrics)):
        return
    MetricsCsv(folder).append({"step": trainer.global_step, "epoch": max(0, trainer.current_epoch - 1), **metrics})
    for logger in trainer.loggers:
        logger.log_metrics(metrics, step=trainer.global_step)


def in_file_order(loader: RankLoader) -> RankLoader:
    loader.shuffle, loader.dealt_by = False, None
    return loader


def _quiet() -> None:
    """Silences by module what Lightning says on every start and no user can act on."""
    quiet_torchrec()
    warnings.filterwarnings("ignore", category=UserWarning, module=r"lightning\..*")
    warnings.filterwarnings("ignore", message=r".*isinstance\(treespec, LeafSpec\).*")
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)


__all__ = ["UserError", "train_here"]
