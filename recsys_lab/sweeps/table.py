"""A sweep, read back: its rows, what each is compared with and what came of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Literal

from recsys_lab.base.files import NOTHING, what_is
from recsys_lab.config.options import DataCommon
from recsys_lab.errors import UserError
from recsys_lab.record.result import RESULT_FILE
from recsys_lab.record.run_folder import read_config, read_record
from recsys_lab.report.sections import CALIBRATE, PIPELINE, unlike_pipelines
from recsys_lab.sweeps import folder as sweep_folder
from recsys_lab.sweeps.baseline import Bases, data_of_rows, find_bases
from recsys_lab.sweeps.comparisons import Comparison, Side, compare_all
from recsys_lab.sweeps.figures import FIGURES, Figure
from recsys_lab.sweeps.names import DEFAULT, row_name, short_keys, short_values
from recsys_lab.sweeps.rows import Row, SweepJob

LEVEL = 0.05
#: What a cell has of its seeds.
Cell = Literal["median", "median_range", "mean_std"]
#: Keys of a data set that do not change its rows.
_NOT_OF_THE_ROWS = {"cache", *(field.name for field in fields(DataCommon))}
_OTHER_DATA = "its data have changed since: run the same command again"


@dataclass(frozen=True)
class Ablation:
    """A sweep's rows, the keys that vary between them, which row each is compared with, and what came of it.

    `comparisons` by row and name of the figure: of measured figures alone. `level`: the chance of any false claim in them. `cell`: what a
    cell has of its seeds.
    """

    folder: Path
    rows: tuple[Row, ...]
    varying: tuple[str, ...]
    bases: Bases
    comparisons: dict[tuple[int, str], Comparison]
    level: float
    notes: tuple[str, ...]
    cell: Cell = "median"

    @property
    def figures(self) -> tuple[Figure, ...]:
        """Those that some row has."""
        return figures_of(self.rows)

    @property
    def compared(self) -> bool:
        return any(base is not None and base != row for row, base in enumerate(self.bases.of_rows))

    def label(self, row: Row, key: str) -> str:
        return row.overrides.get(key, DEFAULT)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The keys that vary, as a table's columns."""
        return short_keys(self.varying)

    @cached_property
    def choices(self) -> tuple[tuple[str, ...], ...]:
        """For each row its values of `columns`, without what all rows share."""
        labels = [[self.label(row, key) for row in self.rows] for key in self.varying]
        short = [short_values(list(dict.fromkeys(of_key))) for of_key in labels]
        return tuple(tuple(values[label] for values, label in zip(short, of_row)) for of_row in zip(*labels)) or ((),) * len(self.rows)

    @cached_property
    def short_names(self) -> tuple[str, ...]:
        """For each row its name in charts, such as `dcn lr=0.1`."""
        of_rows = {key: list(values) for key, values in zip(self.columns, zip(*self.choices))}
        return tuple(row_name(dict(zip(self.columns, of_row)), of_rows) or "the configuration" for of_row in self.choices)

    @cached_property
    def data(self) -> tuple[int, ...]:
        """For each row the first one that has the same data."""
        return data_of_rows(self.rows)

    @property
    def seeds(self) -> int | None:
        """Of every row; None where rows have not all as many, or lack some."""
        counts = {(len(row.completed), len(row.jobs)) for row in self.rows}
        return counts.pop()[0] if len(counts) == 1 and all(done == asked for done, asked in counts) else None

    def middle(self, index: int, figure: Figure) -> float | None:
        """A row's mean or median, as its cells have it; None without a value."""
        values = self.rows[index].values(figure)
        return None if not values else fmean(values) if self.cell == "mean_std" else self.rows[index].median(figure)

    def name(self, index: int) -> str:
        """A row in words, such as `model=dcn sharder=dmt`."""
        return " ".join(f"{key}={self.label(self.rows[index], key)}" for key in self.varying) or "the configuration"

    def against_base(self, index: int, figure: Figure) -> float | None:
        """The row's middle minus its baseline's, or their ratio, as the figure has it; None where either is absent."""
        base = self.bases.of_rows[index]
        if base is None:
            return None
        middle, base_middle = self.middle(index, figure), self.middle(base, figure)
        if middle is None or base_middle is None or (figure.against == "ratio" and not base_middle):
            return None
        return middle - base_middle if figure.against == "difference" else middle / base_middle


def read_ablation(folder: Path | str, baseline: str | None = None, level: float = LEVEL, cell: Cell = "median") -> Ablation:
    """The sweep in `folder`. UserError where it holds no job. A `baseline` that fits no row becomes a note."""
    folder = Path(folder)
    jobs = read_jobs(folder)
    if not jobs:
        raise UserError("no jobs here: not the folder of a sweep", where=folder, remedy="name the folder that hydra.sweep.dir was")
    rows = fold(jobs)
    varying = varying_keys(rows)
    fixed = {key: value for key, value in rows[0].overrides.items() if key not in (*varying, "data.root")}
    bases = find_bases(rows, varying, baseline)
    measured = [figure for figure in FIGURES if not figure.simulated]
    sides = {(i, figure.name): Side(row.by_seed(figure), figure) for i, row in enumerate(rows) for figure in measured}
    comparisons = compare_all(sides, bases.of_rows, level)
    notes = [f"every job: {' '.join(f'{k}={v}' for k, v in fixed.items())}"] if fixed else []
    return Ablation(
        folder, rows, varying, bases, comparisons, level, (*notes, *_of_simulations(rows), *_of_pipelines(rows), *bases.notes), cell
    )


def _of_simulations(rows: Sequence[Row]) -> list[str]:
    """Whose software is simulated, and how far from what it was fitted to. Or why no simulation is shown."""
    jobs = [job for row in rows for job in row.completed]
    notes = [f"no simulated time: {CALIBRATE}"] if any(job.hides_simulation for job in jobs) else []
    shown = [job.result["simulated"] for job in jobs if job.result and job.shows_simulation]
    for profile in dict.fromkeys(one["profile"] for one in shown):
        beyond = dict.fromkeys(one["extrapolates"] for one in shown if one["profile"] == profile and one.get("extrapolates"))
        notes.append("; ".join([f"simulated with profile {profile}", *beyond]))
    return [*notes, *dict.fromkeys(one["doubt"] for one in shown if one.get("doubt"))]


def _of_pipelines(rows: Sequence[Row]) -> list[str]:
    """That some of the sharders send the next batch's ids ahead and others do not. Nothing where the sweep varies just that."""
    executors = [(str(row.setting("sharder")), (row.config.get("sharder") or {}).get("executor") or {}) for row in rows]
    if any(PIPELINE in row.overrides for row in rows):
        return []
    return unlike_pipelines([(sharder, bool(executor["pipeline"])) for sharder, executor in executors if "pipeline" in executor])


def fold(jobs: Sequence[SweepJob]) -> tuple[Row, ...]:
    """One row for the jobs that differ in their seed alone, in the order of the first of each."""
    groups: dict[tuple, list[SweepJob]] = {}
    for job in jobs:
        groups.setdefault(tuple(sorted((k, v) for k, v in job.choices.items() if k != "seed")), []).append(job)
    return tuple(Row({k: v for k, v in members[0].choices.items() if k != "seed"}, tuple(members)) for members in groups.values())


def varying_keys(rows: Sequence[Row]) -> tuple[str, ...]:
    """The overrides in which the rows differ."""
    keys = list(dict.fromkeys(key for row in rows for key in row.overrides))
    return tuple(key for key in keys if len({row.overrides.get(key) for row in rows}) > 1)


def figures_of(rows: Sequence[Row]) -> tuple[Figure, ...]:
    """Those that some row has."""
    return tuple(figure for figure in FIGURES if any(row.values(figure) for row in rows))


def read_jobs(folder: Path) -> list[SweepJob]:
    """Every job that was asked for, then the others in the folder, in the order of their numbers."""
    jobs = _of_newest_data([_read_job(folder / name, choices) for name, choices in sweep_folder.jobs_in(folder).items()])
    requests = sweep_folder.planned(folder)
    requested = [next((job for job in jobs if job.choices == choices), SweepJob(None, choices, None, {})) for choices in requests]
    return [*requested, *(job for job in jobs if job.choices not in requests)]


def _read_job(folder: Path, choices: dict[str, str]) -> SweepJob:
    if what_is(folder / RESULT_FILE) == NOTHING:
        return SweepJob(folder, choices, None, {})
    try:
        return SweepJob(folder, choices, read_record(folder), read_config(folder))
    except UserError as error:
        return SweepJob(folder, choices, None, {}, broken=str(error))


def _of_newest_data(jobs: Sequence[SweepJob]) -> list[SweepJob]:
    """`jobs`, without the figures of those whose files have changed since: one table is of one state of the data."""
    newest: dict[str, tuple[float, str]] = {}
    read: dict[Path, tuple[str, str]] = {}  # what is read, and its state
    for job in jobs:
        options = job.config.get("data") or {}
        if job.folder is not None and job.result is not None and options.get("root") and (data := sweep_folder.data_of(job.folder)):
            key = json.dumps({name: value for name, value in options.items() if name not in _NOT_OF_THE_ROWS}, sort_keys=True, default=str)
            read[job.folder] = key, data
            newest[key] = max(newest.get(key, (0.0, "")), ((job.folder / RESULT_FILE).stat().st_mtime, data))
    other = {folder for folder, (key, data) in read.items() if newest[key][1] != data}
    return [replace(job, result=None, broken=_OTHER_DATA) if job.folder in other else job for job in jobs]
