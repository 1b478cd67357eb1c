"""The typed schema of the keys that have no `_target_`: top level, optimizer, trainer, simulate, ablation.

Every other group's schema is the keyword-only signature of its `_target_` (see `schema.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

MODES = ("auto", "plan", "simulate", "train")


@dataclass(frozen=True)
class DenseOptimizer:
    """Of everything but the tables. `momentum` is SGD's."""

    name: str  # sgd | adagrad | adam
    lr: float
    eps: float
    weight_decay: float
    momentum: float


@dataclass(frozen=True)
class SparseOptimizer:
    """Of the embedding tables: a row moves only when its gradient is not zero."""

    name: str  # sgd | adagrad | row_wise_adagrad | adam
    lr: float
    eps: float
    weight_decay: float  # times a row, added to its gradient in steps that move the row


@dataclass(frozen=True)
class Schedule:
    """Multiplies both learning rates: linear warm-up over `warmup_steps`, then `name` down to `final_ratio`."""

    name: str  # constant | linear | cosine | step
    warmup_steps: int
    final_ratio: float
    step_epochs: float
    gamma: float


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

    metric: str
    patience: int


@dataclass(frozen=True)
class TrainerOptions:
    """`max_steps` -1: as many as `max_epochs` hold. `evaluate_every_epochs` 0: only at the end."""

    max_epochs: int
    max_steps: int
    evaluate_every_epochs: int
    evaluate_train_rows: int
    evaluate_pairs: int
    checkpoint_every_steps: int
    log_every_steps: int
    gradient_clip_norm: float | None
    early_stopping: EarlyStoppingOptions
    restore_best: bool
    measure_steps: int
    replan_saving: float  # of the global exchange: from here on the report advises a new plan for tables that are placed row by row
    progress_bar: bool


@dataclass(frozen=True)
class SimulateOptions:
    """`batch_size`: samples per rank of the named cluster. `profile` has its own `_target_`. `hot_rows`: of a table cut by rows, ranks on
    which hot rows lie serve more look-ups, and hold the others up.
    """

    batch_size: int
    hot_rows: bool


@dataclass(frozen=True)
class PruneOptions:
    """Set by a search: `bounds` of the validation split's `metric` after the first epoch, the second and so on; null: none."""

    metric: str
    bounds: list[float | None]


@dataclass(frozen=True)
class AblationOptions:
    """`baseline`: what the others are compared with, such as model=dlrm,sharder=torchrec; null: the first; none: nothing is compared.

    `level`: the chance of any false claim in the table, at most. `repeat`: run again what an earlier call in the folder finished.
    `prune`: where a run of a search is cut short.
    """

    baseline: str | None
    level: float
    repeat: bool
    prune: PruneOptions | None = None


@dataclass(frozen=True)
class StudyCommon:
    """What a study says before it runs; its other keys are its function's.

    `budget`: quick, or long, which `studies --run quick` leaves out. `within`: how far off an amount may be and count as reproduced, a
    share; `within_points`: the same of a percentage. `why`: where it deviates, the reason, as far as it is known.
    """

    question: str
    hypothesis: str
    budget: str
    within: float
    within_points: float
    why: str | None


@dataclass(frozen=True)
class DataCommon:
    """The keys that every data choice has."""

    batch_size: int  # samples a step over all ranks that train here
    prefetch_batches: int
    frequencies: str | None  # a file of row frequencies to plan with; null: those of the train split


@dataclass(frozen=True)
class TopLevel:
    """The keys outside every group."""

    seed: int
    mode: str
    resume: str | None


@dataclass(frozen=True)
class ExecutorOptions:
    """The keys of `sharder.executor`.

    exchange: of whole tables' pooled rows: all_to_all, scatter_list or fused_scatter.
    overlap: False: that exchange and the all-reduce of dense gradients block.
    communication_cores: of those that a rank may use, for gloo's threads alone; 0: any thread on any core.
    pipeline: the next batch's ids travel while this batch computes.
    dense_bucket_mib: DistributedDataParallel's buckets.
    """

    exchange: str = "all_to_all"
    overlap: bool = True
    communication_cores: int = 0
    pipeline: bool = False
    dense_bucket_mib: int = 25
