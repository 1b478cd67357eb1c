"""A calibration of this machine from its first measurement to a cluster and a profile with the errors of their fit."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from launchers.local import launch
from launchers.processes import warm
from recsys_lab.calibrate import figures, work
from recsys_lab.calibrate.measured import Measured
from recsys_lab.calibrate.runs import Run, brief, runs
from recsys_lab.cluster import Cluster
from recsys_lab.experiment import LauncherChoice
from recsys_lab.simulate import Profile

#: The trainings that the profile is fitted to: one model where a rank holds most pieces of tables and where it holds fewest; shares of the
#: config's batch.
FIT_SHARDERS, FIT_BATCHES = ("flexshard_3tier", "dmt_sptt"), (1 / 4, 1, 2)
ROUNDS = 2


@dataclass(frozen=True)
class Calibration:
    """What was `measured` and `trained` here, and the cluster and profile that were fitted to it."""

    measured: Measured
    trained: Sequence[Run]
    cluster: Cluster
    profile: Profile


def calibrate(overrides: Sequence[str], tell: Callable[[str], None], young: bool = False) -> Calibration:
    """Measures and fits; writes nothing. `overrides`: as for run.py. `tell` hears of each step. `young`: as in run.py. Raises UserError."""
    if young:
        warm()
    experiment = brief(["cluster=local", *overrides])
    measured = measure(experiment.launcher, tell)
    cluster, profile = described(measured)
    points = [(name, max(int(experiment.data.batch_size * share), 1)) for name in FIT_SHARDERS for share in FIT_BATCHES]
    tell(f"short trainings, to which {', '.join(figures.FITTED_TO_RUNS + figures.MEMORY_FITTED_TO_RUNS)} are fitted:")
    trained = runs(points, overrides, ROUNDS, tell)
    profile = with_errors(figures.fitted_to(trained, cluster, figures.memory_fitted_to(trained, profile)), trained, cluster)
    return Calibration(measured, trained, cluster, profile)


def measure(launcher: LauncherChoice, tell: Callable[[str], None]) -> Measured:
    """All ranks that `launcher` would start here, at once."""
    hosts, ranks = launcher.hosts, launcher.ranks_per_host
    tell(f"{hosts} hosts x {ranks} ranks on this machine, all at it at once:")
    with tempfile.TemporaryDirectory() as logs:
        arguments = {"hosts": hosts, "ranks_per_host": ranks}
        return launch(work.measure, arguments, Path(logs), hosts=hosts, ranks_per_host=ranks, threads_per_rank=launcher.threads_per_rank)


def described(measured: Measured) -> tuple[Cluster, Profile]:
    """What `measured` says without any training."""
    ranks = measured.hosts * measured.ranks_per_host
    cluster = figures.cluster_of(measured, psutil.virtual_memory().total / 1e9 / ranks)
    profile = figures.dense_figures(figures.START, cluster, measured.machine.dense)
    profile = figures.dots_figures(profile, cluster, measured.machine.dots)
    return cluster, figures.table_figures(profile, cluster, measured.machine.tables)


def with_errors(profile: Profile, trained: Sequence[Run], cluster: Cluster) -> Profile:
    """`profile` with what it was fitted to, and the error of fits without each point."""
    errors = []
    for run in trained:
        others = figures.fitted_to([other for other in trained if other is not run], cluster, profile)
        errors.append(math.log(run.simulated(cluster, others).iteration_ms / run.iteration_ms))
    return replace(
        profile,
        fitted_on={run.name: run.iteration_ms for run in trained},
        relative_error=math.sqrt(sum(error**2 for error in errors) / len(errors)),
    )
