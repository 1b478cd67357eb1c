"""Calibrations and trainings that nobody measured."""

from __future__ import annotations

import functools
from dataclasses import replace

from recsys_lab.calibrate import figures
from recsys_lab.calibrate.calibration import Calibration
from recsys_lab.calibrate.measured import Machine, Measured
from recsys_lab.calibrate.runs import Run, brief
from recsys_lab.cluster import Cluster, Device, Link
from recsys_lab.planning import plan_for
from recsys_lab.simulate import Profile

#: Of a launcher whose ranks are not on one machine.
TORCHRUN = {"launcher": {"_target_": "launchers.torchrun.join"}}
MACHINE = Machine(20.0, {"fp32": 0.1, "bf16": 0.4, "fp16": 0.002}, (), (), ())
GPU = replace(MACHINE, device="some GPU", kind="cuda", memory_gb=80.0)


def cluster(hosts: int = 2, ranks_per_host: int = 2) -> Cluster:
    return figures.cluster_of(Measured(hosts, ranks_per_host, 2, MACHINE, ()), 4.0, on_file())


@functools.cache
def on_file() -> Cluster:
    """What is known of a machine before it is measured."""
    return Cluster("local", 2, 2, Device("any", "cpu", 4.0, 10.0, {"fp32": 0.1}, "nothing"), *(Link(n, 2.0, 90.0, "nothing") for n in "ab"))


def on_gpus(hosts: int = 1, ranks_per_host: int = 1) -> Cluster:
    return figures.cluster_of(Measured(hosts, ranks_per_host, 2, GPU, ()), 4.0, on_file())


def calibration(profile: Profile = figures.START, words: tuple[str, ...] = (), made: Cluster | None = None) -> Calibration:
    made = cluster() if made is None else made
    measured = Measured(made.hosts, made.ranks_per_host, 2, GPU if made.device.kind == "cuda" else MACHINE, ())
    return Calibration(brief(["data=synthetic_brief", *words]), measured, (), made, profile)


def run_of(sharder: str, batch: int, *words: str) -> Run:
    """Its plan; what it measured is made up by each test."""
    experiment = brief([f"sharder={sharder}", f"data.batch_size={batch}", "data=synthetic_brief", *words])
    return Run(sharder, batch, (), plan_for(experiment, experiment.open_data()))


def runs_of_two_sharders() -> list[Run]:
    return [run_of(sharder, batch) for sharder in ("flexshard_2tier", "dmt_sptt") for batch in (256, 2048)]


def told(run: Run, ms: float, added: float | None = None) -> Run:
    return replace(run, measured=({"iteration_ms": {"median": ms}, "added_memory_bytes": added},))
