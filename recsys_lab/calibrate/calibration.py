"""A calibration. It goes from the first measurement of the ranks to a cluster and a profile with the errors of their fit."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from launchers import slurm, torchrun
from launchers.local import HERE
from recsys_lab.base.devices import CPU
from recsys_lab.calibrate import disk, figures, work
from recsys_lab.calibrate.cores import SharedCores
from recsys_lab.calibrate.measured import CollectiveTime, Measured
from recsys_lab.calibrate.runs import Run, brief, runs
from recsys_lab.cluster import Cluster, Disk
from recsys_lab.config.choices import built
from recsys_lab.errors import UserError
from recsys_lab.experiment import Experiment
from recsys_lab.simulate import Profile
from recsys_lab.simulate.posterior import hosts_seen
from recsys_lab.units import grid

#: The trainings that the profile is fitted to, of one model. Under the first sharder a rank holds most pieces of tables, under the second
#: fewest. Batches are shares of the config's.
FIT_SHARDERS, FIT_BATCHES = ("flexshard_3tier", "dmt_sptt"), (1 / 4, 1, 2)
ROUNDS = 2
EMULATED = HERE[1]
#: One emulated host also times the collectives of so many times as many ranks.
CROWD = 4
#: The profile on file whose error on more hosts stands for that of a calibrated one.
TOLD_BY = "hugectr"
OF_MORE_HOSTS = (
    f"that of profile {TOLD_BY}, whose points on several hosts were predicted by fits to one host; own trainings tell nothing of it"
)


@dataclass(frozen=True)
class Calibration:
    """What was `measured` and `trained` by `experiment`'s launcher, and the cluster and profile that were fitted to it."""

    experiment: Experiment
    measured: Measured
    trained: Sequence[Run]
    cluster: Cluster
    profile: Profile

    @property
    def cores(self) -> SharedCores | None:
        """Of this machine, where all ranks share them, however many hosts they stand for."""
        return cores_of(self.experiment, self.measured)

    def simulated_ms(self, run: Run) -> float:
        """The iteration of `run` on as many hosts as it had."""
        return simulated_ms(run, self.profile, self.cluster, self.cores)


def calibrate(overrides: Sequence[str], tell: Callable[[str], None], named: bool = False) -> Calibration | None:
    """Measures and fits. Writes nothing. None on ranks that follow, under torchrun or srun. Raises UserError.

    `overrides`: as for run.py. `tell` hears of each step. `named`: the cluster gets a name of its own.
    """
    if "launcher=slurm" in overrides:
        slurm.become_task()
    overrides = torchrun.with_launcher(list(overrides))
    experiment = brief(overrides)
    measured: Measured = measure(experiment, tell)
    if lacks_network(experiment, measured):
        measured = replace(measured, crowded=tuple(crowded(overrides, measured.ranks_per_host, tell)))
    if measured.machine.kind != "cpu" and not named:
        raise UserError(
            "cluster=local is the CPU of this machine",
            where="--name",
            given=f"none, for ranks that compute on {measured.machine.device}",
            remedy=f"--name NAME, then cluster=NAME; or trainer.device={CPU}",
        )
    drive = None if torchrun.is_follower() else disk.measure(lambda text: tell(f"  {text}"))
    cluster, profile = described(measured, experiment, drive)
    points = [(name, max(int(experiment.data.batch_size * share), 1)) for name in FIT_SHARDERS for share in FIT_BATCHES]
    if not torchrun.is_follower():
        tell(f"short trainings, to which {', '.join(figures.FITTED_TO_RUNS + figures.MEMORY_FITTED_TO_RUNS)} are fitted:")
    trained = [run for words in trainings(overrides, experiment) for run in runs(points, words, ROUNDS, tell)]
    if torchrun.is_rank():
        work.leave()
    if torchrun.is_follower():
        return None
    profile = figures.memory_fitted_to(trained, profile)
    iteration_ms = partial(simulated_ms, cluster=cluster, cores=cores_of(experiment, measured))
    profile = with_errors(figures.fitted_to(trained, profile, iteration_ms), trained, cluster, iteration_ms)
    return Calibration(experiment, measured, trained, cluster, profile)


def trainings(overrides: Sequence[str], experiment: Experiment) -> list[list[str]]:
    """Words for the ranks to train on. Where hosts of this machine wait for a network, its first host trains by itself too.

    That tells a rank's own work. While some ranks wait for the network, others have their cores.
    """
    if launched_by(experiment) != EMULATED or experiment.launcher.hosts == 1:
        return [list(overrides)]
    others = [word for word in overrides if not word.startswith(("cluster.hosts=", "launcher.hosts="))]
    return [[*others, "cluster.hosts=1"], list(overrides)]


def cores_of(experiment: Experiment, measured: Measured) -> SharedCores | None:
    """Those that all ranks of its launcher share; None where they have machines or GPUs of their own."""
    launcher, links = launched_by(experiment), figures.links_crossed(measured.collectives)
    if launcher not in HERE or measured.machine.kind != "cpu":
        return None
    messages = figures.LINKS if measured.crowded else links
    return SharedCores(messages, tuple(link for link in links if launcher != EMULATED or link == "intra_host"))


def simulated_ms(run: Run, profile: Profile, cluster: Cluster, cores: SharedCores | None) -> float:
    """The iteration of `run`, on as many hosts as it had."""
    hosts = run.planned.plan.hosts
    if cores is not None and hosts != cluster.hosts:
        cluster, profile = cores.with_hosts(cluster, profile, hosts)
    return run.simulated(cluster, profile).iteration_ms


def launched_by(experiment: Experiment) -> str:
    """The `_target_` of its launcher."""
    return str(experiment.config["launcher"]["_target_"])


def measure(experiment: Experiment, tell: Callable[[str], None], task: Callable[..., Any] = work.measure) -> Any:
    """What `task` returns on the first of the ranks that the launcher of `experiment` starts, or that are there, all at once."""
    hosts, ranks = experiment.launcher.hosts, experiment.launcher.ranks_per_host
    if not torchrun.is_follower():
        tell(f"{grid(hosts, ranks)} ({experiment.choices['launcher']}), all at it at once:")
    with tempfile.TemporaryDirectory() as logs:
        words = {"hosts": hosts, "ranks_per_host": ranks, "device": experiment.trainer.device}
        return experiment.launcher.launch(task, words, Path(logs))


def lacks_network(experiment: Experiment, measured: Measured) -> bool:
    """Whether one host of this machine was measured: its CPU ranks sent messages to each other, and none to another host."""
    alone = figures.links_crossed(measured.collectives) == ("intra_host",)
    return launched_by(experiment) == EMULATED and measured.machine.kind == "cpu" and alone


def crowded(overrides: Sequence[str], ranks_per_host: int, tell: Callable[[str], None]) -> list[CollectiveTime]:
    """Collectives of as many ranks as `CROWD` hosts have, all on one. Hosts that are added share its cores, and messages wait for these."""
    words = ("launcher.hosts=1", f"launcher.ranks_per_host={CROWD * ranks_per_host}", f"trainer.device={CPU}")
    times: list[CollectiveTime] = measure(brief([*overrides, *words]), tell, work.measure_collectives)
    return times


def described(measured: Measured, experiment: Experiment, drive: Disk | None) -> tuple[Cluster, Profile]:
    """What `measured` and `drive` say without any training. What they do not tell, such as the network where there is one host, is
    `experiment`'s.
    """
    hosts_here, memory_gb = measured.hosts if launched_by(experiment) in HERE else 1, psutil.virtual_memory().total / 1e9
    cluster = figures.cluster_of(measured, memory_gb / hosts_here / measured.ranks_per_host, experiment.cluster)
    cluster = figures.with_host(cluster, memory_gb, hosts_here, drive)
    start = replace(figures.START, overlaps=overlaps_of(launched_by(experiment), cluster.device.kind), fitted_kind=cluster.device.kind)
    profile = figures.dense_figures(start, cluster, measured.machine.dense)
    profile = figures.dots_figures(profile, cluster, measured.machine.dots)
    profile = figures.table_figures(profile, cluster, measured.machine.tables)
    return cluster, figures.cache_figures(profile, measured.caches)


def overlaps_of(launcher: str, kind: str) -> list[str]:
    """What runs beside compute in our executors. Collectives wait for links; on the cores of one machine they wait for cores."""
    if kind == "cuda":
        return ["host", "collectives"]
    return [] if launcher == HERE[0] else ["collectives"]


def with_errors(profile: Profile, trained: Sequence[Run], cluster: Cluster, iteration_ms: figures.IterationTime) -> Profile:
    """`profile` with what it was fitted to, the error of fits without each point, and that of more hosts."""
    errors = []
    for run in trained:
        others = figures.fitted_to([other for other in trained if other is not run], profile, iteration_ms)
        errors.append(math.log(iteration_ms(run, others) / run.iteration_ms))
    within = math.sqrt(sum(error**2 for error in errors) / len(errors))
    return replace(
        profile,
        fitted_on={run.name_on(cluster): run.iteration_ms for run in trained},
        fitted_systems={cluster.device.name: hosts_seen(cluster)},
        relative_error=within,
        relative_error_hosts=error_of_more_hosts(within),
        sources=profile.sources | {"relative_error_hosts": OF_MORE_HOSTS},
    )


def error_of_more_hosts(within: float) -> float:
    """That of a profile on file by fits to one host, and no less than `within`. Trainings on the ranks that are there do not tell it."""
    error = built("profile", TOLD_BY).relative_error_hosts
    assert isinstance(error, float), "it was fitted to published times on several hosts"
    return max(within, error)
