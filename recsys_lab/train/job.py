"""What a rank gets to do. No torch yet: who starts ranks imports this, and ranks have the libraries."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recsys_lab.experiment import Experiment
from recsys_lab.plan import ShardingPlan, Steps
from recsys_lab.record.result import Result
from recsys_lab.tables import AccessStatistics
from recsys_lab.train.start import Start

#: Where ranks live, and those that train nothing.
RANK, EVALUATES = "recsys_lab.train.rank", "recsys_lab.train.trained"


@dataclass(frozen=True)
class Job:
    """What a rank gets. `record`: what is known before training. `replan`: the plan that other access statistics would give.

    `most_rows`: to how many rows tables are cut here, None for no limit. `sweep`: the name of the sweep that this run is a job of.
    `start`: what the baseline has learnt, on rank 0. `weights`: the checkpoint that it begins with.
    """

    experiment: Experiment
    folder: Path
    plan: ShardingPlan
    steps: Steps
    record: Result
    replan: Callable[[AccessStatistics], ShardingPlan]
    most_rows: int | None = None
    sweep: str | None = None
    start: Start | None = None
    weights: Path | None = None


def train(job: Job) -> dict[str, Any] | None:
    """Trains `job`, or evaluates, as the rank that the environment names. Returns the record (JSON) on rank 0, None elsewhere."""
    if not job.experiment.trains:
        evaluated: dict[str, Any] | None = importlib.import_module(EVALUATES).evaluate_here(job)
        return evaluated
    written: dict[str, Any] | None = importlib.import_module(RANK).train_here(job)
    return written
