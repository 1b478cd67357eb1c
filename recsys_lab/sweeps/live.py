"""What a sweep shows while it runs. It is a table at the foot of the terminal, or a line for each job without one, and ablation.html."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from recsys_lab.errors import UserError
from recsys_lab.record.metrics_csv import read_metrics
from recsys_lab.record.run_folder import value_at
from recsys_lab.report import say
from recsys_lab.sweeps import folder as sweep_folder
from recsys_lab.sweeps.ablation import write_ablation
from recsys_lab.sweeps.cells import digits_of, heading, title_of
from recsys_lab.sweeps.figures import Figure
from recsys_lab.sweeps.rows import SweepJob
from recsys_lab.sweeps.table import LEVEL, Cell, figures_of, fold, read_ablation, read_jobs, varying_keys

#: An open ablation.html reloads itself so often while the sweep runs.
RELOAD_S = 10
#: The table is rewritten after a job unless that would take more than this share of the time.
WRITING_SHARE = 0.05


class SweepShown:
    """A context around a sweep of `jobs` (their overrides) in `folder`.

    `begin` and `end` are called around each job. `cut_short` takes the place of `end` where a signal ends the job, and the sweep.
    """

    def __init__(
        self,
        folder: Path,
        jobs: Sequence[Sequence[str]],
        baseline: str | None = None,
        level: float = LEVEL,
        writes: bool = True,
        cell: Cell = "median",
    ):
        self.folder, self.baseline, self.level, self.writes, self.cell = folder, baseline, level, writes, cell
        self.choices = [sweep_folder.choices(job) for job in jobs]
        self.running: dict[str, str] | None = None
        self.started, self.ran, self.ended = time.monotonic(), 0, 0
        self.job_began = self.last_written = self.started
        self.writing_s = self.running_s = 0.0
        self.goes_on = True
        self.jobs: list[SweepJob] = []
        in_terminal = writes and say.CONSOLE.is_terminal
        own = Console(highlight=False)  # that of `say` does not wrap, and a table that overflows could not be drawn again
        self.live = Live(console=own, get_renderable=self.table, refresh_per_second=1) if in_terminal else None

    def __enter__(self) -> SweepShown:
        if self.writes and self.choices:
            sweep_folder.ask_for(self.folder, [[f"{key}={value}" for key, value in job.items()] for job in self.choices])
            self.jobs = read_jobs(self.folder)
        if self.live is not None and self.choices:
            self.live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.goes_on = self.goes_on and kind is None
        self._stop()
        if self.writes and kind is not None and self.jobs:
            self._write(None)

    def __getstate__(self) -> dict[str, Any]:
        """For a job on another machine (SLURM), which shows and writes nothing of the sweep's."""
        return self.__dict__ | {"live": None, "writes": False}

    def begin(self, overrides: Sequence[str]) -> None:
        self.running, self.job_began = sweep_folder.choices(overrides), time.monotonic()

    def end(self, repeated: bool) -> None:
        """`repeated`: the job was not run, since an earlier call had finished it."""
        now = time.monotonic()
        self.running, self.ended = None, self.ended + 1
        if not repeated:
            self.ran, self.running_s = self.ran + 1, self.running_s + now - self.job_began
        if not self.writes or not self.choices:
            return
        due = self.writing_s <= WRITING_SHARE * (now - self.last_written)
        if due and not repeated:
            self.jobs = self._write(RELOAD_S)
            self.last_written = time.monotonic()
            self.writing_s = self.last_written - now
        if self.ended == len(self.choices):
            self._stop()
        elif self.live is None and not repeated:
            say.sweep(self.summary())

    def cut_short(self) -> None:
        """The job that runs is not done, and no other follows."""
        self.running, self.goes_on = None, False
        if self.writes and self.choices and self.live is None:
            say.sweep(self.summary())

    def _stop(self) -> None:
        if self.live is not None:
            self.live.stop()
            self.live = None

    def _write(self, reload_s: int | None) -> list[SweepJob]:
        try:
            ablation = read_ablation(self.folder, self.baseline, self.level, self.cell)
            write_ablation(self.folder, reload_s=reload_s, ablation=ablation)
        except UserError:  # a file that another program is just writing; the end of the sweep says what is wrong
            return self.jobs
        return [job for row in ablation.rows for job in row.jobs]

    def summary(self) -> str:
        """How far the sweep is, and how long it may take."""
        failed = sum(job.failed for job in self.jobs)
        elapsed_s = time.monotonic() - self.started
        left_s = (len(self.choices) - self.ended) * self.running_s / self.ran if self.ran and self.goes_on else None
        remaining = "" if left_s is None else f", about {_minutes(left_s)} left"
        progress = f"{self.ended} of {len(self.choices)} jobs done, {failed} failed, {_minutes(elapsed_s)} so far"
        return f"{progress}{remaining}; {self.folder}/ablation.html"

    def table(self) -> Group:
        """A row for each configuration, a column for each seed.

        Of configurations that do not fit the screen, it shows those around the running one.
        """
        if self.running is None and time.monotonic() - self.last_written > RELOAD_S:  # its jobs run elsewhere
            self.jobs, self.last_written = read_jobs(self.folder), time.monotonic()
        rows = fold(self.jobs)
        varying, figure = varying_keys(rows), next(iter(figures_of(rows)), None)
        seeds = list(dict.fromkeys(job.seed for job in self.jobs))
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for name in varying:
            table.add_column(name, no_wrap=True)
        for seed in seeds:
            table.add_column(f"seed {seed}", justify="right", no_wrap=True)
        at = next((i for i, row in enumerate(rows) for job in row.jobs if job.choices == self.running), 0)
        most = max(4, say.CONSOLE.height - 8)
        first = max(0, min(at - most // 2, len(rows) - most))
        for row in rows[first : first + most]:
            by_seed = {job.seed: job for job in row.jobs}
            cells = [self._cell(by_seed.get(seed), figure) for seed in seeds]
            table.add_row(*(row.overrides.get(name, "default") for name in varying), *cells)
        title = f"{title_of(figure)}: {heading(figure)}" if figure else "no job has ended yet"
        return Group(Text(""), Text(title, style="bold"), table, Text(self.summary(), style="dim"))

    def _cell(self, job: SweepJob | None, figure: Figure | None) -> Text:
        if job is None:
            return Text("")
        if job.choices == self.running:
            return Text(f"{self._step()}{_minutes(time.monotonic() - self.job_began)}", style="bold yellow")
        if job.completed:
            value = value_at(job.result, figure.path) if figure else None
            return Text("done" if value is None or figure is None else digits_of(value, figure), style="green")
        if job.pruned:
            return Text("pruned", style="dim")
        if job.result is not None:
            return Text("failed", style="red")
        return Text("waiting" if job.folder is None else "to finish", style="dim")

    def _step(self) -> str:
        """The last logged step of the job that runs."""
        names = [name for name, choices in sweep_folder.jobs_in(self.folder).items() if choices == self.running]
        try:
            steps = [row["step"] for row in read_metrics(self.folder / names[0])] if names else []
        except (UserError, OSError):
            return ""
        return f"step {steps[-1]:.0f}, " if steps and steps[-1] is not None else ""


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
