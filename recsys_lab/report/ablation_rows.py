"""A sweep's jobs, read back and folded: one row a configuration, whatever its seeds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from recsys_lab.errors import UserError
from recsys_lab.report.compare import value_at
from recsys_lab.report.record import read_result
from recsys_lab.report.run_folder import flat, read_config


@dataclass(frozen=True)
class Figure:
    """One column: its name, its place in result.json, its digits, and what a baseline is compared by."""

    name: str
    path: str
    digits: int
    against: str  # difference | ratio


FIGURES = (
    Figure("validation_auc", "quality.validation.auc", 4, "difference"),
    Figure("validation_ne", "quality.validation.ne", 4, "difference"),
    Figure("validation_log_loss", "quality.validation.log_loss", 4, "difference"),
    Figure("test_auc", "quality.test.auc", 4, "difference"),
    Figure("test_ne", "quality.test.ne", 4, "difference"),
    Figure("test_log_loss", "quality.test.log_loss", 4, "difference"),
    Figure("validation_ndcg_10", "quality.validation.ndcg_10", 4, "difference"),
    Figure("test_ndcg_10", "quality.test.ndcg_10", 4, "difference"),
    Figure("test_hit_rate_10", "quality.test.hit_rate_10", 4, "difference"),
    Figure("measured_examples_per_second", "measured.examples_per_second", 0, "ratio"),
    Figure("measured_iteration_ms", "measured.iteration_ms.median", 2, "ratio"),
    Figure("simulated_examples_per_second", "simulated.examples_per_second", 0, "ratio"),
    Figure("simulated_iteration_ms", "simulated.iteration_ms", 3, "ratio"),
)


@dataclass(frozen=True)
class SweepJob:
    """One job's folder. `overrides` without those of Hydra itself; `result` None where the job left no record."""

    folder: Path
    overrides: dict[str, str]
    result: dict[str, Any] | None
    config: dict[str, Any]

    @property
    def completed(self) -> bool:
        return self.result is not None and self.result["status"] == "completed"

    @property
    def error(self) -> str:
        """Why it failed; empty where it did not."""
        if self.result is None:
            return "ended before its record was written"
        failure = self.result.get("error")
        return f"{failure['type']}: {failure['message']}" if failure else ""


@dataclass(frozen=True)
class Row:
    """One configuration: its jobs differ in the seed alone."""

    overrides: dict[str, str]
    jobs: tuple[SweepJob, ...]

    @property
    def done(self) -> list[SweepJob]:
        return [job for job in self.jobs if job.completed]

    def values(self, figure: Figure) -> list[float]:
        """The figure of every completed seed that has it."""
        found = [value_at(job.result, figure.path) for job in self.done]
        return [value for value in found if value is not None]

    def median(self, figure: Figure) -> float | None:
        values = self.values(figure)
        return statistics.median(values) if values else None

    @property
    def status(self) -> str:
        if len(self.done) == len(self.jobs):
            return "completed"
        return "failed" if not self.done else f"{len(self.done)} of {len(self.jobs)} seeds completed"

    @property
    def error(self) -> str:
        """The reasons of the jobs that failed, each with its seed."""
        failed = [job for job in self.jobs if not job.completed]
        reasons = list(dict.fromkeys(job.error for job in failed))
        if len(reasons) == 1:
            return reasons[0]
        return "; ".join(f"seed {_seed(job)}: {job.error}" for job in failed)


@dataclass(frozen=True)
class Ablation:
    """A sweep's rows, the override keys that vary between them, and the row that the others are compared with."""

    folder: Path
    rows: tuple[Row, ...]
    varying: tuple[str, ...]
    baseline: Row | None
    notes: tuple[str, ...]

    @property
    def figures(self) -> tuple[Figure, ...]:
        """Those that some row has."""
        return tuple(figure for figure in FIGURES if any(row.values(figure) for row in self.rows))

    def label(self, row: Row, key: str) -> str:
        return row.overrides.get(key, "default")

    def against_baseline(self, row: Row, figure: Figure) -> float | None:
        """The row's median minus the baseline's, or their ratio, as the figure has it; None where either is absent."""
        ours, base = row.median(figure), self.baseline.median(figure) if self.baseline else None
        if ours is None or base is None or (figure.against == "ratio" and not base):
            return None
        return ours - base if figure.against == "difference" else ours / base


def read_ablation(folder: Path | str, baseline: str | None = None) -> Ablation:
    """The sweep in `folder`. UserError where it holds no job. A `baseline` that fits no row, or several, becomes a note."""
    folder = Path(folder)
    jobs = [_read_job(found.parent.parent) for found in folder.glob("*/.hydra/overrides.yaml")]
    if not jobs:
        raise UserError("no jobs here: not the folder of a sweep", where=folder, remedy="name the folder that hydra.sweep.dir was")
    jobs.sort(key=lambda job: (len(job.folder.name), job.folder.name))
    groups: dict[tuple, list[SweepJob]] = {}
    for job in jobs:
        groups.setdefault(tuple(sorted((k, v) for k, v in job.overrides.items() if k != "seed")), []).append(job)
    rows = tuple(Row({k: v for k, v in members[0].overrides.items() if k != "seed"}, tuple(members)) for members in groups.values())
    keys = list(dict.fromkeys(key for row in rows for key in row.overrides))
    varying = tuple(key for key in keys if len({row.overrides.get(key) for row in rows}) > 1)
    fixed = {key: value for key, value in rows[0].overrides.items() if key not in varying and not key.startswith("ablation.")}
    base, note = _find_baseline(rows, baseline)
    notes = [f"every job: {' '.join(f'{k}={v}' for k, v in fixed.items())}"] if fixed else []
    return Ablation(folder, rows, varying, base, (*notes, *([note] if note else [])))


def _read_job(folder: Path) -> SweepJob:
    lines = yaml.safe_load((folder / ".hydra/overrides.yaml").read_text(encoding="utf-8")) or []
    pairs = [line.partition("=") for line in lines]
    overrides = {key.lstrip("+~"): value for key, _, value in pairs if not key.lstrip("+~").startswith("hydra")}
    try:
        result = read_result(folder)
    except UserError:  # the row says that the record is missing
        result = None
    return SweepJob(folder, overrides, result, read_config(folder))


def _seed(job: SweepJob) -> str:
    return job.overrides.get("seed") or (str(job.result["seed"]) if job.result else "of the config")


def _find_baseline(rows: Sequence[Row], baseline: str | None) -> tuple[Row | None, str]:
    """The one row whose overrides, choices or config hold every `key=value` of `baseline`; or None and what was wrong."""
    if not baseline:
        return None, ""
    wanted = dict(pair.strip().partition("=")[::2] for pair in baseline.split(","))
    found = [row for row in rows if all(_value_of(row, key) == value for key, value in wanted.items())]
    if len(found) == 1:
        return found[0], f"compared with {baseline}: differences of quality, ratios of speed, median to median"
    return None, f"ablation.baseline={baseline} fits {len(found) or 'none'} of the {len(rows)} rows, not one: nothing is compared"


def _value_of(row: Row, key: str) -> str | None:
    if key in row.overrides:
        return row.overrides[key]
    for job in row.jobs:
        known = {**flat(job.config), **(job.config.get("choices") or {}), **((job.result or {}).get("choices") or {})}
        if key in known:
            return str(known[key])
    return None
