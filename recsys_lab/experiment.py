"""One run's config, resolved once into frozen, typed values. No room below this one reads a key of a config.

What data, sharder, launcher and study become is in experiment_groups.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from recsys_lab.base.losses import IN_BATCH_SOFTMAX, SOFTMAX
from recsys_lab.cluster import Cluster
from recsys_lab.config import command_line
from recsys_lab.config.choices import apart_from_hydra
from recsys_lab.config.default_hyperparameters import default_hyperparameters
from recsys_lab.config.frozen import fingerprint, plain
from recsys_lab.config.next_item_defaults import LogCounts, next_item_defaults
from recsys_lab.config.options import (
    JUDGES,
    PREDICT,
    STARTS_RANKS,
    TRAINS,
    AblationOptions,
    EvaluateOptions,
    OptimizerOptions,
    SimulateOptions,
    SparseOptimizer,
    StudyCommon,
    TrainerOptions,
)
from recsys_lab.config.schema import resolved, typed, typed_keys
from recsys_lab.data.capped import capped
from recsys_lab.data.catalogue import with_catalogue
from recsys_lab.data.frequencies import with_frequencies
from recsys_lab.data.in_order import in_stored_order
from recsys_lab.data.labels import check_labels
from recsys_lab.data.lengths import with_given_history, with_history
from recsys_lab.data.protocol import DataSet, HistoryCounts
from recsys_lab.data.sliced import sliced
from recsys_lab.data.values import check_column
from recsys_lab.errors import UserError
from recsys_lab.experiment_groups import SHUFFLED, DataChoice, LauncherChoice, SharderChoice, StudyChoice
from recsys_lab.models.choice import ModelChoice, Towers, with_chances
from recsys_lab.plan import ShardingPlan
from recsys_lab.precision import Precision
from recsys_lab.simulate import Profile
from recsys_lab.tables import Table
from recsys_lab.tables.lengths import TOKENS, Work

if TYPE_CHECKING:
    import numpy as np
    import torch

    from recsys_lab.models.click_model import ClickModel
    from recsys_lab.models.first_order import FirstOrder

#: Of a step that trains here, over all ranks: 2 GB of them.
MOST_IDS = 2**28
LOCAL = "local"  # the cluster that this machine is
EMULATED = "emulated"  # the launcher that makes this machine the cluster that is named


@dataclass(frozen=True)
class Experiment:
    """Everything that one run is. `config` is the same as plain values, for loggers and config.yaml, with its `fingerprint`."""

    seed: int
    mode: str  # auto | plan | simulate | train | evaluate | predict
    resume: str | None
    choices: Mapping[str, str | None]
    model: ModelChoice
    data: DataChoice
    cluster: Cluster
    sharder: SharderChoice
    precision: Precision
    optimizer: OptimizerOptions
    trainer: TrainerOptions
    launcher: LauncherChoice
    logger: Callable[..., Any]  # (folder, config, name, sweep)
    simulate: SimulateOptions
    profile: Profile
    ablation: AblationOptions
    study: StudyChoice | None = None
    baselines: bool = True
    start_from: str | None = None
    predictions: str | None = None
    evaluate: EvaluateOptions = EvaluateOptions()
    chosen: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    fingerprint: str = ""

    @property
    def trains(self) -> bool:
        return self.mode in TRAINS

    @property
    def starts_ranks(self) -> bool:
        """It trains, evaluates or predicts."""
        return self.mode in STARTS_RANKS

    @property
    def judges(self) -> bool:
        """It says how good a model is."""
        return self.starts_ranks and self.mode != PREDICT

    @property
    def table_optimizer(self) -> SparseOptimizer:
        """Of the tables. Where nothing is trained it is one without state."""
        sparse = self.optimizer.sparse
        return replace(sparse, name="sgd", weight_decay=0.0) if self.mode in JUDGES else sparse

    @property
    def simulates(self) -> bool:
        return self.mode in ("auto", "simulate")

    @property
    def batch_size_here(self) -> int:
        """Samples a rank of those that train here."""
        return -(-self.data.batch_size // self.launcher.ranks)

    @property
    def batch_size(self) -> int:
        """Samples a rank of the named cluster: `simulate.batch_size`, but where this machine is that cluster what it really trains with."""
        here = self.cluster.name == LOCAL or self.choices.get("launcher") == EMULATED
        return self.batch_size_here if here else self.simulate.batch_size

    @property
    def dealt_by(self) -> Work | None:
        """What is even over ranks in a step of training; None: samples come as they are."""
        return {"none": None, "tokens": TOKENS, "work": self.model.work}[self.data.balance]

    @property
    def _same_batch(self) -> bool:
        """Whether a rank of the named cluster has as many samples as one that trains here."""
        return not self.simulates or self.batch_size == self.batch_size_here

    def train_steps(self, data: DataSet) -> int:
        """Of a training that runs to its end."""
        steps = -(-data.splits["train"].rows // self.data.batch_size) * self.trainer.epochs
        return min(steps, self.trainer.max_steps) if self.trainer.max_steps > 0 else steps

    def open_data(self, most_rows: int | None = None) -> DataSet:
        """The data set. With `most_rows`, its tables cut to so many rows. Data that are generated have what the model fixes."""
        data_set = self.data.open(self.data.histories or self.model.features())
        if self.trains and "train" not in data_set.splits:
            raise UserError("no rows to train on", where="data.only_test", given="true", allowed="mode=evaluate or mode=predict")
        if not data_set.labelled and self.mode != PREDICT:
            remedy = "mode=predict predictions=FILE.parquet"
            raise UserError("rows without labels cannot be judged", where="data.label", given=f"mode={self.mode}", remedy=remedy)
        data = with_frequencies(data_set, self.data.frequencies) if self.data.frequencies is not None else data_set
        data = with_catalogue(data, self.batch_size_here) if self.model.loss == SOFTMAX else data
        data = sliced(data, self.model.column_slices)
        data = with_history(data)
        data = data if self.data.order == SHUFFLED else in_stored_order(data)
        if given := self.simulate.history:
            data = with_given_history(data, given.mean, given.spread, given.cap)
        return data if most_rows is None else capped(data, most_rows)

    def judges_clicks(self, data: DataSet) -> bool:
        """Whether it trains on clicks, and their quality means something."""
        return self.trains and self._has_clicks(data)

    def _has_clicks(self, data: DataSet) -> bool:
        return data.learnable and self.model.objective != "next_item"

    def compares(self, data: DataSet) -> bool:
        """Whether its quality stands beside baselines: of clicks alone."""
        return self.baselines and self.judges_clicks(data)

    def compares_items(self, data: DataSet) -> bool:
        """The same of a model for the next item."""
        return self.baselines and self.judges and data.learnable and self.model.objective == "next_item" and "validation" in data.held_out

    def check(self, data: DataSet) -> None:
        """UserError for empty splits, too large steps, clicks that could not be judged as is wanted, or a start that nothing gives."""
        if self.starts_ranks and (empty := [split for split, rows in data.splits.items() if not rows.rows]):
            raise UserError(f"the {empty[0]} split is empty", where="data", given="; ".join(data.notes), remedy="or mode=plan")
        look_ups = sum(feature.mean_length for feature in data.features)
        if self.trains and self.data.batch_size * look_ups > MOST_IDS:
            given = f"{self.data.batch_size:,} samples of {look_ups:,.0f} ids"
            raise UserError("a step has too many ids", where="data.batch_size", given=given, allowed=f"{MOST_IDS:,} ids a step")
        if self.simulate.history and self.starts_ranks:
            allowed = "mode=simulate or mode=plan"
            raise UserError("what trains has its own lengths", where="simulate.history", given=f"mode={self.mode}", allowed=allowed)
        if self.data.balance != "none" and data.history is None:
            raise UserError("samples without histories are alike", where="data.balance", given=self.data.balance, allowed="none")
        if self.model.loss == SOFTMAX and not self._same_batch:
            remedy = f"simulate.batch_size={self.batch_size_here} data.batch_size={self.data.batch_size}, or model.loss=sampled_softmax"
            given = f"softmax with {self.batch_size} samples a rank of {self.cluster.name}, {self.batch_size_here} here"
            raise UserError("every item is looked up once a batch of a rank", where="model.loss", given=given, remedy=remedy)
        if self.judges_clicks(data):
            check_labels(data)
        for key, column in self.evaluate.named if self.judges else ():
            if not self._has_clicks(data):
                raise UserError("quality in parts is of clicks", where=key, given=column, allowed="null", remedy=f"{key}=null")
            check_column(data, column, key)
        if self.trainer.start_from_baseline and self.trains and not (self.compares(data) and self.model.begins_first_order):
            keys = "".join(f" with model.{key}=true" for key in self.model.kind.start_keys)
            needs = f"a model of clicks{keys}, and baselines=true"
            raise UserError("nothing to start from", where="trainer.start_from_baseline", given="true", allowed=needs)

    def with_default_hyperparameters(self, data: DataSet) -> Experiment:
        """Itself, with what its config leaves open chosen for the rows of `data` where these ask for it: `chosen` says what."""
        if not data.chooses_settings:
            return self
        if self.model.objective == "next_item" and data.history_counts is not None:
            return self._decided(data.history_counts)
        model = self.model.able_to_begin()
        if self.mode in JUDGES:
            return replace(self, model=model)
        linear = model.has_first_order
        fits = self.baselines and data.learnable and self.model.objective != "next_item"
        begins = model.begins_first_order and fits and self.trainer.start_from_baseline is not False
        fit = default_hyperparameters(data.splits["train"].rows, self.data.batch_size, linear, begins, self.trainer, self.optimizer)
        chosen = {f"model.{key}": True for key in self.model.open_keys} | fit.chosen
        return replace(self, model=model, trainer=fit.trainer, optimizer=fit.optimizer, chosen=chosen)

    def _decided(self, counts: HistoryCounts) -> Experiment:
        """The same of a model for the next item. What a trained model is needs to be known where it is judged, too."""
        of_log = LogCounts(counts.items, counts.interactions, counts.max_length)
        fit, keys = next_item_defaults(of_log, self.model.keys, self.trainer, self.optimizer, self._same_batch)
        model, data = self.model.with_keys(keys), self.data
        if "loss" in keys:
            data = replace(data, open=partial(data.open, loss=keys["loss"]))  # type: ignore[call-arg]  # a key of its opener
        if self.mode in JUDGES:
            return replace(self, model=model, data=data)
        return replace(self, model=model, data=data, trainer=fit.trainer, optimizer=fit.optimizer, chosen=fit.chosen)

    def tables(self, data: DataSet) -> tuple[Table, ...]:
        return self.model.tables(data, self.precision.table)

    def build_model(self, data: DataSet, device: torch.device, towers: Towers = ()) -> ClickModel:
        """The model for the features of `data`, with a tower module for each of `towers`."""
        model = self.model.build(self.tables(data), data.dense_features, device, towers)
        return with_chances(model, data) if model.loss == IN_BATCH_SOFTMAX else model

    def shard(
        self,
        model: ClickModel,
        plan: ShardingPlan,
        device: torch.device,
        hot_rows: Mapping[str, np.ndarray] | None = None,
        scratch: str = "",
        start: FirstOrder | None = None,
    ) -> Any:
        """`model` with its tables placed by `plan` over the current process group. Raises UserError for a plan that cannot run here.

        `scratch`: the folder for rows of tables with a store on disk, unless the config names one. `start`: what the model begins with.
        """
        sparse = self.table_optimizer
        if (named := self.sharder.scratch) and plan.has_stores and not os.path.isdir(named):
            raise UserError("no such folder", where="sharder.scratch", given=named, remedy="make it, or name another")
        return self.sharder.execute(
            model,
            plan,
            device=device,
            optimizer=(sparse.name, sparse.rate, sparse.floor, sparse.weight_decay),
            precision=self.precision,
            seed=self.seed,
            hot_rows=hot_rows or {},
            scratch=self.sharder.scratch or scratch,
            start=start,
            dedup=self.sharder.dedup is True,
        )

    def title(self, *groups: str) -> str:
        """`dcn_torchrec`: what the run is called beside others."""
        return "_".join(str(self.choices[group]) for group in groups)


def resolve(config: DictConfig) -> Experiment:
    """The experiment that a checked config (`frozen.freeze`) describes. Raises UserError for figures that cannot be."""
    model, cluster, profile = ModelChoice.of(config.model), resolved(config.cluster), resolved(config.simulate.profile)
    simulate = typed_keys(config.simulate, SimulateOptions)
    if simulate.full_rows_hosts is not None:
        model = model.with_share_of_rows(cluster.hosts / simulate.full_rows_hosts)
    sharder = SharderChoice.of(config.sharder)
    if sharder.towers is not None:
        model = replace(model, column_slices=sharder.towers.column_slices)
    launch = resolved(config.launcher)
    choices = plain(config.choices)
    return Experiment(
        seed=config.seed,
        mode=config.mode,
        resume=config.resume,
        choices=choices,
        model=model,
        data=DataChoice.of(config.data, model),
        cluster=cluster,
        sharder=sharder,
        precision=resolved(config.precision),
        optimizer=typed(config.optimizer, OptimizerOptions),
        trainer=typed(config.trainer, TrainerOptions),
        launcher=LauncherChoice(launch, *(launch.keywords[key] for key in ("hosts", "ranks_per_host", "threads_per_rank"))),
        logger=resolved(config.logger),
        simulate=_with_batch_of_rank(simulate, cluster.world_size),
        profile=profile.of_sequences if model.kind.reads_sequences else profile,
        ablation=typed(config.ablation, AblationOptions),
        baselines=config.baselines,
        start_from=config.get("start_from"),
        predictions=config.get("predictions"),
        evaluate=typed(config.evaluate, EvaluateOptions),
        study=None if config.get("study") is None else _study(config.study, str(choices["experiment"])),
        config=plain(config),
        fingerprint=fingerprint(config),
    )


def _with_batch_of_rank(simulate: SimulateOptions, ranks: int) -> SimulateOptions:
    """With a rank's part of the global batch as its batch, where one is given. Raises UserError where that is no whole number."""
    if simulate.global_batch is None:
        return simulate
    given = f"{simulate.global_batch} for {ranks} ranks"
    return replace(simulate, batch_size=batch_of_rank(simulate.global_batch, ranks, "simulate.global_batch", given))


def batch_of_rank(batch: int, ranks: int, where: str, given: str) -> int:
    """Samples of a global batch that each rank has. Raises UserError with the nearest batches where that is no whole number."""
    if batch % ranks:
        near = [n for n in (batch // ranks * ranks, (batch // ranks + 1) * ranks) if n]
        raise UserError("the batch does not divide", where=where, given=given, allowed=f"such as {' or '.join(map(str, near))}")
    return batch // ranks


def of_words(words: Sequence[str], where: str, needed: str = "one run is needed") -> Experiment:
    """The experiment of run.py's `words`. Raises UserError for whatever is wrong with them, and for what is not one run."""
    with apart_from_hydra():  # else Lightning would start other ranks with words of Hydra's in their arguments
        return resolve(command_line.read_run(words, where, needed).config)


def _study(group: DictConfig, name: str) -> StudyChoice:
    make = resolved(group, beside=StudyCommon)
    common = typed_keys(group, StudyCommon)
    apart = {"_target_", *asdict(common)}
    return StudyChoice(name, make, common, {key: value for key, value in plain(group).items() if key not in apart})


__all__ = ["Experiment", "ModelChoice", "Towers", "of_words", "replace", "resolve"]
