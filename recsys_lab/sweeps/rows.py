"""A sweep's jobs, and the rows that they make: one a configuration, whatever its seeds."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recsys_lab.errors import PlanDoesNotFit
from recsys_lab.record.run_folder import hides_simulation, value_at
from recsys_lab.report.sections import number
from recsys_lab.sweeps.figures import Figure


@dataclass(frozen=True)
class SweepJob:
    """One job. `choices` are its overrides, without those of Hydra, logger and table. `folder` None: it never began.

    `result` None: it left no record that can be read; `broken`: why, where one of its files cannot.
    """

    folder: Path | None
    choices: dict[str, str]
    result: dict[str, Any] | None
    config: dict[str, Any]
    broken: str = ""

    @property
    def completed(self) -> bool:
        return self.result is not None and self.result["status"] == "completed"

    @property
    def hides_simulation(self) -> bool:
        return self.result is not None and hides_simulation(self.result)

    @property
    def shows_simulation(self) -> bool:
        return self.result is not None and bool(self.result["simulated"]) and not self.hides_simulation

    @property
    def pruned(self) -> bool:
        """Whether a search cut it short. A whole run would come to something else, so its result is no figure of the row's."""
        return self.result is not None and self.result["status"] == "pruned"

    @property
    def failed(self) -> bool:
        return self.result is not None and not self.completed and not self.pruned

    @property
    def error(self) -> str:
        """Why it has no figures. Empty where it has."""
        if self.folder is None:
            return "not run yet"
        if self.broken:
            return self.broken
        if self.result is None:
            return "ended before its record was written"
        if pruning := self.result.get("pruned"):
            value, bound = number(pruning["value"], 4), number(pruning["bound"], 4)
            return f"validation {pruning['metric']} {value} after epoch {pruning['epoch']}, bound {bound}"
        failure = self.result.get("error")
        return f"{failure['type']}: {failure['message']}" if failure else ""

    @property
    def seed(self) -> str:
        return self.choices.get("seed") or (str(self.result["seed"]) if self.result else "of the config")


@dataclass(frozen=True)
class Row:
    """One configuration: its jobs differ in the seed alone."""

    overrides: dict[str, str]
    jobs: tuple[SweepJob, ...]

    @property
    def completed(self) -> list[SweepJob]:
        return [job for job in self.jobs if job.completed]

    def by_seed(self, figure: Figure) -> dict[str, float]:
        """The figure of every completed seed that has it."""
        shown = [job for job in self.completed if not figure.simulated or job.shows_simulation]
        values = {job.seed: value_at(job.result, figure.path) for job in shown}
        return {seed: float(value) * figure.scale for seed, value in values.items() if value is not None}

    def values(self, figure: Figure) -> list[float]:
        return list(self.by_seed(figure).values())

    def median(self, figure: Figure) -> float | None:
        values = self.values(figure)
        return statistics.median(values) if values else None

    @property
    def status(self) -> str:
        if len(self.completed) == len(self.jobs):
            return "completed"
        pruned = any(job.pruned for job in self.jobs)
        if self.completed:
            return f"{'pruned, ' * pruned}{len(self.completed)} of {len(self.jobs)} seeds completed"
        if any(job.failed for job in self.jobs):
            return "failed"
        if pruned:
            return "pruned"
        return "missing" if all(job.folder is None for job in self.jobs) else "unfinished"

    @property
    def error(self) -> str:
        """The reasons of the jobs without figures, each with its seeds."""
        without = [job for job in self.jobs if not job.completed]
        reasons = list(dict.fromkeys(job.error for job in without))
        if len(reasons) == 1:
            return reasons[0]
        seeds = {reason: ", ".join(job.seed for job in without if job.error == reason) for reason in reasons}
        return "; ".join(f"seed{'s' * (',' in seeds[reason])} {seeds[reason]}: {reason}" for reason in reasons)

    @property
    def fits(self) -> bool | None:
        """Whether its plan fits the named cluster; None where no job got so far."""
        verdicts = [value_at(job.result, "simulated.feasible") for job in self.completed]
        if any(value_at(job.result, "error.type") == PlanDoesNotFit.__name__ for job in self.jobs):
            return False
        return all(verdicts) if verdicts and None not in verdicts else None

    def setting(self, key: str) -> str | None:
        """What it has for a key: of its overrides, its record's choices or its config."""
        if key in self.overrides:
            return self.overrides[key]
        for job in self.jobs:
            value = value_at(job.result, f"choices.{key}") or value_at(job.config, f"choices.{key}")
            value = value_at(job.config, key) if value is None else value
            if value is not None:
                return str(value)
        return None

    @property
    def config(self) -> dict[str, Any]:
        return next((job.config for job in self.completed if job.config), {})
