"""Short real trainings on the launcher's ranks, and what the simulator needs to tell their iterations."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from launchers import torchrun
from recsys_lab import pipeline
from recsys_lab.cluster import Cluster
from recsys_lab.experiment import Experiment, of_words
from recsys_lab.planning import Planned, most_rows_here, plan_for, plan_here, price
from recsys_lab.report import say
from recsys_lab.simulate import Profile, Simulated
from recsys_lab.units import counted

STEPS = 45
#: Few rows, no logger, no checkpoint: an iteration is the same.
BRIEF = (
    "mode=train",
    f"trainer.max_steps={STEPS}",
    "trainer.evaluate_every_epochs=0",
    "trainer.evaluate_train_rows=0",
    "trainer.checkpoint_every_steps=0",
    "trainer.progress_bar=false",
    "data.rows_validation=1024",
    "data.rows_test=1024",
    "logger=none",
)


@dataclass(frozen=True)
class Run:
    """A training as it was `measured` here, once a round, and its plan for simulations. Figures are medians over the rounds."""

    sharder: str
    batch_size: int
    measured: tuple[dict[str, Any], ...]
    planned: Planned

    @property
    def name(self) -> str:
        return f"{self.sharder}, batch {self.batch_size}"

    def name_on(self, cluster: Cluster) -> str:
        """Its name, by which `validate --local` knows it, and its hosts where they are not all of `cluster`."""
        hosts = self.planned.plan.hosts
        return self.name if hosts == cluster.hosts else f"{self.name}, {counted(hosts, 'host')}"

    @property
    def iteration_ms(self) -> float:
        return float(median(one["iteration_ms"]["median"] for one in self.measured))

    @property
    def phases_ms(self) -> dict[str, float]:
        return {name: float(median(one["phases_ms"][name] for one in self.measured)) for name in self.measured[0]["phases_ms"]}

    @property
    def added_memory_bytes(self) -> float | None:
        known = [one["added_memory_bytes"] for one in self.measured if one.get("added_memory_bytes") is not None]
        return float(median(known)) if known else None

    def simulated(self, cluster: Cluster, profile: Profile) -> Simulated:
        return price(self.planned, profile, cluster)[0]


def train(experiment: Experiment) -> dict[str, Any]:
    """What a run of `experiment` measures, in a folder that is removed again. Nothing on ranks that follow. Raises as run.py would."""
    quiet, say.CONSOLE.quiet = say.CONSOLE.quiet, True
    try:
        with tempfile.TemporaryDirectory() as folder:
            record = pipeline.run(experiment, torchrun.shared_folder(Path(folder)), writes=not torchrun.is_follower())
    finally:
        say.CONSOLE.quiet = quiet
    if torchrun.is_follower():
        return {}
    assert record is not None and record["measured"] is not None, "the run has enough steps"
    return dict(record["measured"])


def brief(overrides: Sequence[str]) -> Experiment:
    """A short run of `overrides`, by default on this machine. Raises UserError for a sweep."""
    return of_words([*BRIEF, *overrides], where="overrides")


def runs(points: Sequence[tuple[str, int]], overrides: Sequence[str], rounds: int, tell: Callable[[str], None]) -> list[Run]:
    """Each of `points`, (sharder, batch), once a round: what slows the machine for a while slows all of them. `tell` hears of each.

    Nothing on ranks that follow.
    """
    ranks = brief(overrides).launcher.ranks
    experiments = [brief([*overrides, f"sharder={name}", *_of_batch(batch, ranks)]) for name, batch in points]
    measured: list[list[dict[str, Any]]] = [[] for _ in points]
    for number in range(rounds):
        for (name, batch), experiment, trained in zip(points, experiments, measured):
            trained.append(train(experiment))
            if not torchrun.is_follower():
                tell(f"  round {number + 1} of {rounds}: {name}, batch {batch}: {trained[-1]['iteration_ms']['median']:.1f} ms")
    if torchrun.is_follower():
        return []
    return [Run(*point, tuple(trained), plan_run(experiment)) for point, trained, experiment in zip(points, measured, experiments)]


def plan_run(experiment: Experiment) -> Planned:
    """What its training ran, on as many ranks as its launcher starts."""
    data = experiment.open_data()
    named = plan_for(experiment, data)
    return plan_here(experiment, data, named, most_rows_here(experiment, named))


def _of_batch(batch: int, ranks: int) -> tuple[str, ...]:
    """Words for `batch` samples a step over so many ranks, planned for as many a rank."""
    return f"data.batch_size={batch}", f"data.rows_train={batch * STEPS}", f"simulate.batch_size={-(-batch // ranks)}"
