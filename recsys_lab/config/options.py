"""The typed schema of the keys that have no `_target_`: top level, optimizer, trainer, simulate, ablation.

Every other group's schema is the keyword-only signature of its `_target_` (see `schema.py`). What a value can be stands in its annotation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal, get_args

from annotated_types import Interval
from pydantic import Strict

from recsys_lab.base.devices import AUTO as AUTO_DEVICE
from recsys_lab.base.devices import DEVICES
from recsys_lab.base.ranges import Count, CountFromZero, Hosts, NotNegative, OneOf, Positive, Seed, Share, ShareBelowOne, text_like
from recsys_lab.base.store_names import AUTO, LFU, NONE, POLICIES, STORES

Mode = Literal["auto", "plan", "simulate", "train", "evaluate", "predict"]
TRAINS = ("auto", "train")
PREDICT = "predict"
#: Modes that use a trained model as it is.
JUDGES = ("evaluate", PREDICT)
#: Modes that start ranks.
STARTS_RANKS = (*TRAINS, *JUDGES)
SparseName = Literal["sgd", "adagrad", "row_wise_adagrad", "adam", "lamb"]
Metric = Literal["auc", "ne", "log_loss", "ndcg_10", "hit_rate_10"]
SPARSE_OPTIMIZERS, METRICS = get_args(SparseName), get_args(Metric)

LearningRate = Annotated[float, Strict(), Interval(ge=0, le=1e6)]
Eps = Annotated[float, Strict(), Interval(ge=1e-30, le=1)]  # smaller is 0 in float32, and 0 / 0 where a gradient is
Steps = CountFromZero
FOLDER = text_like(r".+", 4095, "a folder")


@dataclass(frozen=True)
class DenseOptimizer:
    """Of everything but the tables. `momentum` is SGD's. adamw takes weight decay from the weights, adam adds it to gradients."""

    name: Literal["sgd", "adagrad", "adam", "adamw"]
    lr: LearningRate | None  # null: 1e-3
    eps: Eps
    weight_decay: NotNegative
    momentum: ShareBelowOne

    @property
    def rate(self) -> float:
        return 1e-3 if self.lr is None else self.lr


@dataclass(frozen=True)
class SparseOptimizer:
    """Of the embedding tables: a row moves only when its gradient is not zero. `rate`, `floor`: lr and eps, never null."""

    name: SparseName
    lr: LearningRate | None  # null: 1e-3
    eps: Eps | None  # null: 1e-8
    weight_decay: NotNegative  # times a row, added to its gradient in steps that move the row

    @property
    def rate(self) -> float:
        return 1e-3 if self.lr is None else self.lr

    @property
    def floor(self) -> float:
        return 1e-8 if self.eps is None else self.eps


@dataclass(frozen=True)
class Schedule:
    """Multiplies both learning rates: linear warm-up over `warmup_steps`, then `name` down to `final_ratio`."""

    name: Literal["constant", "linear", "cosine", "step"]
    warmup_steps: Steps
    final_ratio: Share
    step_epochs: Positive
    gamma: Share


@dataclass(frozen=True)
class OptimizerOptions:
    dense: DenseOptimizer
    sparse: SparseOptimizer
    schedule: Schedule


@dataclass(frozen=True)
class EarlyStoppingOptions:
    """Stop when `metric` of the validation split has not got better `patience` times; 0: never.

    auc, ne and log_loss are of clicks, ndcg_10 and hit_rate_10 of held-out items.
    """

    metric: Metric
    patience: CountFromZero | None  # null: 0


@dataclass(frozen=True)
class TrainerOptions:
    """`max_steps` -1: as many as `max_epochs` hold. `evaluate_every_epochs` 0: only at the end.

    A null is replaced where the data suggest a value (default_hyperparameters.py). Else it means 1 epoch, no time limit and false.
    """

    max_epochs: Annotated[int, Strict(), Interval(ge=1, le=10**6)] | None
    max_minutes: Positive | None
    max_steps: Annotated[int, Strict(), Interval(ge=-1, le=10**9)]
    evaluate_every_epochs: CountFromZero
    evaluate_train_rows: Annotated[int, Strict(), Interval(ge=0, le=2**40)]
    evaluate_pairs: Annotated[int, Strict(), Interval(ge=0, le=2**40)]
    checkpoint_every_steps: Steps
    log_every_steps: Count
    gradient_clip_norm: Positive | None
    early_stopping: EarlyStoppingOptions
    restore_best: bool | None
    measure_steps: Annotated[int, Strict(), Interval(ge=1, le=10**5)]
    replan_saving: NotNegative  # of the global exchange: from here on the report advises a new plan for tables that are placed row by row
    progress_bar: bool
    device: Annotated[str, OneOf(DEVICES)] = AUTO_DEVICE
    start_from_baseline: bool | None = None  # null: false
    checkpoint_full_every: Annotated[int, Strict(), Interval(ge=1, le=10**6)] = 1
    keep: Annotated[int, Strict(), Interval(ge=1, le=10**6)] = 2

    @property
    def epochs(self) -> int:
        return self.max_epochs or 1


Growth = Annotated[float, Strict(), Interval(ge=0.1, le=10)]


@dataclass(frozen=True)
class HistoryOptions:
    """Lengths of samples' histories, in events, in place of the data's: mean, standard deviation, longest. Null: the data's."""

    mean: Positive | None = None
    spread: NotNegative | None = None
    cap: Positive | None = None

    def __bool__(self) -> bool:
        return (self.mean, self.spread, self.cap) != (None, None, None)


@dataclass(frozen=True)
class SimulateOptions:
    """Of the named cluster; `profile` has its own `_target_`.

    Attributes:
        batch_size: samples per rank.
        global_batch: samples of all ranks together, in place of `batch_size`: strong scaling.
        full_rows_hosts: hosts on which the model's tables have all their rows; on others in proportion, as Neo scales weakly (section 8.3).
        hot_rows: ranks that hold hot rows of a table cut by rows serve more look-ups, and hold the others up.
        history: how long samples are, in place of what the data say.
        length_growth: histories and bags of several ids are so many times as long as the data's: as at the end of a stream.
        skew_growth: a row with frequency p has one in proportion to p ** skew_growth.
    """

    batch_size: Count
    hot_rows: bool
    length_growth: Growth = 1.0
    skew_growth: Growth = 1.0
    global_batch: Count | None = None
    full_rows_hosts: Hosts | None = None
    history: HistoryOptions = HistoryOptions()


@dataclass(frozen=True)
class PruneOptions:
    """Set by a search: `bounds` of the validation split's `metric` after the first epoch, the second and so on; null: none."""

    metric: Metric
    bounds: list[Annotated[float, Strict(), Interval(ge=-1e9, le=1e9)] | None]


@dataclass(frozen=True)
class AblationOptions:
    """`baseline`: what the others are compared with, such as model=dlrm,sharder=torchrec; null: the first; none: nothing is compared.

    A key alone, such as model: one for each value of it. `level`: the chance of any false claim in the table, at most. `cell`: what a cell
    has of its seeds. `repeat`: run again what an earlier call in the folder finished. `prune`: where a run of a search is cut short.
    """

    baseline: str | None
    level: Annotated[float, Strict(), Interval(gt=0, lt=1)]
    cell: Literal["median", "median_range", "mean_std"]
    repeat: bool
    prune: PruneOptions | None = None


@dataclass(frozen=True)
class StudyCommon:
    """What a study says before it runs; its other keys are its function's.

    `budget`: quick, or long, which `studies --run quick` leaves out. `within`: how far off an amount may be and count as reproduced, a
    share; `within_points`: the same of a percentage. `why`: where it deviates, the reason, where it is known. `compares`: the item's own
    subject, or what is compared in its place: FLOPs and parameters without quality, or data that we generate. `reading`: what its
    published figures are by our reading, where the text leaves it open.
    """

    question: str
    hypothesis: str
    budget: Literal["quick", "long"]
    within: NotNegative
    within_points: NotNegative
    why: str | None
    compares: Literal["subject", "complexity_only", "generated_data"] = "subject"
    reading: str | None = None


@dataclass(frozen=True)
class DataCommon:
    """The keys that every data choice has. `order`: of training's samples; stored: as the data have them, user after user in histories.

    `balance`: of a step's samples over ranks. none: as they come; tokens, work: each rank has as many, and as many events or FLOPs.
    """

    batch_size: Count  # samples a step over all ranks that train here
    prefetch_batches: Annotated[int, Strict(), Interval(ge=1, le=1024)]
    frequencies: str | None  # a file of row frequencies to plan with; null: those of the train split
    order: Literal["shuffled", "stored"] = "shuffled"
    balance: Literal["none", "tokens", "work"] = "none"


@dataclass(frozen=True)
class EvaluateOptions:
    """What else is said of the quality of clicks on validation and test.

    Attributes:
        by: columns for each of whose values there is a quality; null: none.
        group: a column such as user_id, by which GAUC is; null: none.
        min_rows: values of a column with fewer rows are put together.
    """

    by: list[str] | str | None = None
    group: str | None = None
    min_rows: Count = 100

    @property
    def columns(self) -> tuple[str, ...]:
        """Of `by`, each once."""
        return tuple(dict.fromkeys([self.by] if isinstance(self.by, str) else self.by or ()))

    @property
    def named(self) -> list[tuple[str, str]]:
        """(key, column) of all."""
        return [*(("evaluate.by", column) for column in self.columns), *([("evaluate.group", self.group)] if self.group else [])]


@dataclass(frozen=True)
class TopLevel:
    """The keys outside every group."""

    seed: Seed
    mode: Mode
    resume: str | None
    start_from: str | None = None
    predictions: str | None = None
    overwrite: bool = False
    baselines: bool = True
    evaluate: EvaluateOptions = field(default_factory=EvaluateOptions)


@dataclass(frozen=True)
class SharderCommon:
    """The keys that a sharder has beside its parts.

    Attributes:
        tower_modules: each group of features has a module of the model.
        memory_budget_gb: what a rank may use of its device's memory; null: all of it.
        store: where rows go that do not fit: auto, none (then the plan is refused), host, host_paged, host_cached, disk_cached
            or disk_host_cached.
        cached_share: of the rows of each table that leaves memory, those in its cache; then every table leaves that can; null: the tables
            that do not fit leave, with caches as large as fit.
        host_share: of disk_host_cached, the rows of each such table in the hosts' memory; null: as many as fit.
        cache_policy: what leaves a full cache: lfu or lru.
        scratch: the folder of files with rows, which exists; null: what RECSYS_LAB_SCRATCH names, else the run folder.
        dedup: equal ids of a rank's batch travel and are looked up once, where sequences travel; auto: where it is simulated faster.
    """

    tower_modules: bool = False
    memory_budget_gb: Positive | None = None
    store: Annotated[str, OneOf((AUTO, NONE, *STORES))] = AUTO
    cached_share: Annotated[float, Strict(), Interval(gt=0, le=1)] | None = None
    host_share: Annotated[float, Strict(), Interval(gt=0, le=1)] | None = None
    cache_policy: Annotated[str, OneOf(POLICIES)] = LFU
    scratch: Annotated[str, FOLDER] | None = None
    dedup: Literal[True, False, "auto"] = False


@dataclass(frozen=True)
class ExecutorOptions:
    """The keys of `sharder.executor`.

    Attributes:
        exchange: of whole tables' pooled rows: all_to_all, scatter_list or fused_scatter.
        overlap: False: that exchange and the all-reduce of dense gradients block.
        communication_cores: of those that a rank may use, for gloo's threads alone; 0: any thread on any core.
        pipeline: the next batch's ids travel while this batch computes.
        dense_bucket_mib: DistributedDataParallel's buckets.
        sync: what copies of tables in groups of ranks average: gradients or weights.
        dense_sync: dense gradients are averaged by an all_reduce, or by a reduce_scatter and an all-gather.
        row_update: default, or an algorithm of the CPU DLRM paper: reference, atomic or race_free.
    """

    exchange: str = "all_to_all"
    overlap: bool = True
    communication_cores: int = 0
    pipeline: bool = False
    dense_bucket_mib: int = 25
    sync: str = "gradients"
    dense_sync: str = "all_reduce"
    row_update: str = "default"

    @property
    def in_flight(self) -> int:
        """Batches whose rows are in use at a time."""
        return 2 if self.pipeline else 1
