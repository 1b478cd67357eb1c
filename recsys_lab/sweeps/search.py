"""A search over configurations by Optuna: each trial is a configuration that runs with every seed. Bad ones are cut short.

A trial is judged by the median over its seeds of a figure of the validation split. Two things are stopped early, by the rule of the median
of earlier trials at the same point (Golovin et al. 2017, Google Vizier, section 3.2.2). One is a run whose figure after an epoch is worse
than that median. The other is the remaining seeds of a trial that is worse after some seeds. Both are known before a run begins, so a run
needs no word from the search while it trains. The same command proposes and cuts the same again.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from annotated_types import Interval
from pydantic import Strict

from recsys_lab.base.files import write_json
from recsys_lab.base.ranges import OneOf, Seed
from recsys_lab.base.schema import check_fields
from recsys_lab.config.options import METRICS
from recsys_lab.config.search_space import Axis, Space
from recsys_lab.errors import UserError
from recsys_lab.record.metrics import HIGHER_IS_BETTER
from recsys_lab.record.metrics_csv import read_metrics
from recsys_lab.record.result import read_result

SEARCH_FILE = "search.json"
SAMPLERS = ("tpe", "random")
_DIGITS = 4  # of a drawn number: more would tell nothing, and make long commands


@dataclass(frozen=True)
class SearchOptions:
    """`metric` of the validation split. `startup_trials` are drawn at random and never cut. Nothing is cut where `prune` is false."""

    metric: Annotated[str, OneOf(METRICS)]
    n_trials: Annotated[int, Strict(), Interval(ge=1, le=10**5)]
    startup_trials: Annotated[int, Strict(), Interval(ge=1, le=10**5)]
    sampler: Annotated[str, OneOf(SAMPLERS)]
    seed: Seed
    prune: bool

    def __post_init__(self) -> None:
        check_fields(self, "hydra.sweeper")

    @property
    def higher(self) -> bool:
        return self.metric in HIGHER_IS_BETTER


@dataclass
class Trial:
    """A trial: by seed its figures after each epoch, and that at the end where it came there. `state`: completed | pruned | failed."""

    overrides: tuple[str, ...]
    curves: list[dict[int, float]] = field(default_factory=list)
    finals: list[float] = field(default_factory=list)
    state: str = "completed"

    @property
    def value(self) -> float | None:
        """What it is judged by: None where no seed came to its end."""
        return statistics.median(self.finals) if self.finals else None

    def after_seeds(self, seeds: int) -> float | None:
        return statistics.median(self.finals[:seeds]) if len(self.finals) >= seeds else None

    def after_epoch(self, epoch: int) -> float | None:
        values = [curve[epoch] for curve in self.curves if epoch in curve]
        return statistics.median(values) if values else None


#: Runs a job with these overrides; its folder, or None where it left none.
Run = Callable[[tuple[str, ...]], Path | None]


def search(space: Space, options: SearchOptions, folder: Path, run: Run) -> list[Trial]:
    """All trials, in their order; `folder`/search.json holds those that are there. UserError for a metric that no run has."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    samplers = {"tpe": optuna.samplers.TPESampler, "random": optuna.samplers.RandomSampler}
    startup = {"n_startup_trials": options.startup_trials} if options.sampler == "tpe" else {}
    sampler = samplers[options.sampler](seed=options.seed, **startup)
    study = optuna.create_study(sampler=sampler, direction="maximize" if options.higher else "minimize")
    distributions = {axis.key: _distribution(axis) for axis in space.axes}
    states = {
        "completed": optuna.trial.TrialState.COMPLETE,
        "pruned": optuna.trial.TrialState.PRUNED,
        "failed": optuna.trial.TrialState.FAIL,
    }
    trials: list[Trial] = []
    for _ in range(options.n_trials):
        trial = study.ask(distributions)
        words = tuple(f"{key}={_as_word(value)}" for key, value in trial.params.items())
        outcome = _try(words, space, options, trials, run)
        trials.append(outcome)
        for epoch in sorted({epoch for curve in outcome.curves for epoch in curve}):
            trial.report(outcome.after_epoch(epoch) or 0.0, epoch)
        study.tell(trial, outcome.value if outcome.state == "completed" else None, state=states[outcome.state])
        write_json(folder / SEARCH_FILE, as_json(trials, options, space))
    return trials


def best(trials: Sequence[Trial], options: SearchOptions) -> Trial | None:
    """The completed trial with the best value, the earliest of equals."""
    completed = [trial for trial in trials if trial.state == "completed" and trial.value is not None]
    key: Callable[[Trial], float] = lambda trial: -(trial.value or 0.0) if options.higher else trial.value or 0.0  # noqa: E731
    return min(completed, key=key) if completed else None


def as_json(outcomes: Sequence[Trial], options: SearchOptions, space: Space) -> dict:
    winner = best(outcomes, options)
    trials = [{"overrides": list(t.overrides), "state": t.state, "value": t.value, "seeds": t.finals} for t in outcomes]
    summary = None if winner is None else {"overrides": [*space.fixed, *winner.overrides], "value": winner.value}
    return {"schema": 1, "metric": f"validation {options.metric}", "seeds": list(space.seeds), "best": summary, "trials": trials}


def _try(words: tuple[str, ...], space: Space, options: SearchOptions, earlier: Sequence[Trial], run: Run) -> Trial:
    trial = Trial(words)
    judged = [t for t in earlier if t.state != "failed"]
    judges = judged if options.prune and len(judged) >= options.startup_trials else []
    for place, seed in enumerate(space.seeds or ("",)):
        bound = _median([t.after_seeds(place) for t in judges]) if place else None
        if bound is not None and _worse(trial.after_seeds(place), bound, options):
            trial.state = "pruned"
            return trial
        own = (f"seed={seed}",) if seed else ()
        folder = run((*space.fixed, *words, *own, *_bounds(judges, options)))
        result = _result(folder)
        if folder is None or result is None or result["status"] == "failed":
            trial.state = "failed"
            return trial
        trial.curves.append(_curve(folder, options))
        if result["status"] == "pruned":
            trial.state = "pruned"
            return trial
        value = ((result["quality"] or {}).get("validation") or {}).get(options.metric)
        if value is None:
            allowed = ", ".join((result["quality"] or {}).get("validation") or {}) or "a mode that trains, on data that can be learnt"
            raise UserError("the run has no such figure", where="hydra.sweeper.metric", given=options.metric, allowed=allowed)
        trial.finals.append(value)
    return trial


def _bounds(judges: Sequence[Trial], options: SearchOptions) -> tuple[str, ...]:
    """The override that says where a run is cut. After each epoch but the last it is the median of earlier trials there."""
    last = max((epoch for t in judges for curve in t.curves for epoch in curve), default=0)
    bounds = [_median([t.after_epoch(epoch) for t in judges]) for epoch in range(last)]
    if all(bound is None for bound in bounds):
        return ()
    words = ",".join("null" if bound is None else repr(bound) for bound in bounds)
    return (f"+ablation.prune={{metric:{options.metric},bounds:[{words}]}}",)


def _curve(folder: Path, options: SearchOptions) -> dict[int, float]:
    """The metric after each epoch, from 0 on."""
    rows = read_metrics(folder) if (folder / "metrics.csv").is_file() else []
    points = [(row["epoch"], row.get(f"validation_{options.metric}")) for row in rows]
    return {int(epoch): value for epoch, value in points if epoch is not None and value is not None}


def _result(folder: Path | None) -> dict | None:
    try:
        return None if folder is None else read_result(folder)
    except UserError:
        return None


def _median(values: Sequence[float | None]) -> float | None:
    figures = [value for value in values if value is not None]
    return statistics.median(figures) if figures else None


def _worse(value: float | None, bound: float, options: SearchOptions) -> bool:
    return value is not None and (value < bound if options.higher else value > bound)


def _distribution(axis: Axis):
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if axis.choices:
        return CategoricalDistribution(axis.choices)
    if axis.whole:
        return IntDistribution(int(axis.low), int(axis.high), log=axis.log, step=int(axis.step or 1))
    return FloatDistribution(axis.low, axis.high, log=axis.log, step=axis.step)


def _as_word(value: object) -> str:
    if not isinstance(value, float) or not math.isfinite(value):
        return str(value)
    return repr(float(f"{value:.{_DIGITS}g}"))
