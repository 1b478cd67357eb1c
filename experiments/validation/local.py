"""`validate --local`: the sharders trained here for a few steps, and what the simulator of `cluster=local` says of the same iterations.

Nothing is fitted here: the cluster and the profile are those that any run gets. Points that `calibrate` fitted to are marked.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from recsys_lab.calibrate.runs import Run, brief, runs
from recsys_lab.config import calibrated
from recsys_lab.planning import price
from recsys_lab.report.sections import Table
from recsys_lab.report.terminal import console, print_table
from recsys_lab.simulate import Profile
from recsys_lab.units import MB

SHARDERS = ("torchrec", "torchrec_row_wise", "flexshard_2tier", "flexshard_3tier", "dmt_sptt", "dmt")
#: Of a measured iteration, and of a simulated one: its steps by the part of the training step that runs them.
PHASES = ("forward", "backward", "optimizer", "other")


@dataclass(frozen=True)
class Compared:
    """A point. Phases in ms; memory is what training adds to the process of the rank with most, in bytes, None where it is not told."""

    sharder: str
    batch_size: int
    fitted: bool
    measured_ms: float
    simulated_ms: float
    measured_phases_ms: dict[str, float]
    simulated_phases_ms: dict[str, float]
    measured_memory_bytes: float | None
    simulated_memory_bytes: float

    @property
    def error(self) -> float:
        return self.simulated_ms / self.measured_ms - 1

    @property
    def memory_error(self) -> float | None:
        return None if self.measured_memory_bytes is None else self.simulated_memory_bytes / self.measured_memory_bytes - 1


def compare(overrides: Sequence[str], rounds: int) -> list[Compared]:
    """Every sharder, with the config's batch and with a quarter and four times as much."""
    experiment = brief(["cluster=local", *overrides])
    whole = experiment.data.batch_size
    points = [(name, whole) for name in SHARDERS] + [(name, batch) for batch in (whole // 4, whole * 4) for name in SHARDERS]
    found = runs(points, overrides, rounds, partial(print, file=sys.stderr, flush=True))
    fitted = calibrated.fitted_on()
    return [compared(run, experiment.profile, run.name in fitted) for run in found]


def compared(run: Run, profile: Profile, fitted: bool) -> Compared:
    simulated, timeline = price(run.planned, profile)
    phases = dict.fromkeys(PHASES, 0.0)
    for event in timeline.events:
        if not event.elsewhere:
            phases[phase_of(event.step.kind, event.step.phase)] += event.ms
    phases["other"] = simulated.iteration_ms - sum(phases.values())
    measured = run.phases_ms
    return Compared(
        run.sharder,
        run.batch_size,
        fitted,
        run.iteration_ms,
        simulated.iteration_ms,
        {name: measured[name] + (measured["data_wait"] if name == "other" else 0.0) for name in PHASES},
        phases,
        run.added_memory_bytes,
        simulated.added_memory_bytes or 0.0,
    )


def phase_of(kind: str, phase: str) -> str:
    """The part of a training step in which the executors run a step: ids travel in the forward pass, tables are updated at the end."""
    if kind == "update":
        return "optimizer"
    return "forward" if phase == "input" else phase


def summary(found: Sequence[Compared]) -> dict[str, Any]:
    """Mean absolute percentage errors: in all, of what was not fitted, and by sharder; then every point."""
    free = [point for point in found if not point.fitted]
    memory = [abs(point.memory_error) for point in found if point.memory_error is not None]
    return {
        "mape": _percent([abs(point.error) for point in found]),
        "not_fitted_mape": _percent([abs(point.error) for point in free]),
        "memory_mape": _percent(memory),
        "calibrated": calibrated.is_there(),
        "sharders": {name: _percent([abs(p.error) for p in found if p.sharder == name]) for name in SHARDERS},
        "points": [asdict(point) | {"error": point.error, "memory_error": point.memory_error} for point in found],
    }


def _percent(errors: Sequence[float]) -> float | None:
    return 100 * sum(errors) / len(errors) if errors else None


def show(found: Sequence[Compared], made: dict[str, Any]) -> None:
    percent = partial("{:+.0%}".format)
    rows, phases = [], []
    for point in found:
        memory = ("not told", "", "")
        if point.measured_memory_bytes is not None and point.memory_error is not None:
            sizes = (point.measured_memory_bytes, point.simulated_memory_bytes)
            memory = (*(f"{size / MB:.0f}" for size in sizes), percent(point.memory_error))  # type: ignore[assignment]
        name = point.sharder + (" (fitted)" if point.fitted else "")
        times = (f"{point.measured_ms:.1f}", f"{point.simulated_ms:.1f}", percent(point.error))
        rows.append((name, str(point.batch_size), *times, *memory))
        pairs = ((point.measured_phases_ms[phase], point.simulated_phases_ms[phase]) for phase in PHASES)
        phases.append((point.sharder, str(point.batch_size), *(f"{measured:.1f} {simulated:.1f}" for measured, simulated in pairs)))
    by_sharder = ", ".join(f"{name} {error:.0f} %" for name, error in made["sharders"].items())
    whose = "calibrated figures" if made["calibrated"] else "figures on file, not of this machine: python -m recsys_lab calibrate"
    free = "" if made["not_fitted_mape"] is None else f", of what was not fitted {made['not_fitted_mape']:.1f} %"
    note = f"Mean error {made['mape']:.1f} %{free}; {by_sharder}. {whose}. Memory: what training adds to a process."
    columns = ("sharder", "batch", "ms", "sim. ms", "error", "MB", "sim. MB", "off")
    print_table(console(), Table("Here, measured and simulated", columns, tuple(rows), note, columns[1:]))
    told = "Python's share of an iteration is known as a whole only: simulated, all of it is in other."
    print_table(console(), Table("Phases, ms: measured, simulated", ("sharder", "batch", *PHASES), tuple(phases), told, ("batch", *PHASES)))
