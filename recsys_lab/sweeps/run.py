"""A sweep, from its first job to its table: Hydra's sweeper and launcher decide which jobs run where."""

from __future__ import annotations

import sys
from pathlib import Path

from hydra import initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.types import HydraContext
from omegaconf import DictConfig, open_dict, read_write

from launchers import slurm, torchrun
from recsys_lab.base.paths import CONF
from recsys_lab.config.command_line import JobConfigs, Sweep
from recsys_lab.config.composition import hydra_errors, with_choices
from recsys_lab.errors import UserError
from recsys_lab.report import say
from recsys_lab.sweeps.ablation import log_ablation, print_ablation, write_ablation
from recsys_lab.sweeps.job import StartedJob, codes_elsewhere, run_in_sweep
from recsys_lab.sweeps.live import SweepShown


class NoCallbacks:
    """Of Hydra's sweeper: nothing is called around a job."""

    def on_job_start(self, **_: object) -> None: ...

    def on_job_end(self, **_: object) -> None: ...


class Job:
    """What Hydra's launcher calls for each job, here or on another machine. Its exit code is added to `codes`."""

    def __init__(self, progress: SweepShown, writes: bool):
        self.progress, self.writes, self.codes = progress, writes, list[int]()

    def __call__(self, config: DictConfig) -> None:
        with slurm.task():
            hydra = HydraConfig.get()
            folder = torchrun.shared_folder(Path(hydra.runtime.output_dir))
            job = StartedJob(with_choices(config, hydra), folder, hydra.job.num, tuple(hydra.overrides.task))
            self.codes.append(run_in_sweep(self.progress, job, self.writes and not torchrun.is_follower()))


def sweep(line: Sweep, writes: bool = True) -> list[int]:
    """Runs the jobs of `line`, and writes its table.

    Args:
        line: the sweep, checked.
        writes: False on torchrun's ranks other than 0.

    Returns:
        The exit codes of its jobs.
    """
    options = line.config.ablation
    with (
        hydra_errors(),
        initialize_config_dir(str(CONF), job_name="run", version_base="1.3"),
        SweepShown(line.folder, line.jobs, options.baseline, options.level, writes, options.cell) as progress,
    ):
        job = Job(progress, writes)
        context = HydraContext(config_loader=JobConfigs(line), callbacks=NoCallbacks())
        if line.config.launcher.get("dry_run"):
            _run_here(line.common)
        HydraConfig.instance().set_config(line.common)
        sweeper = Plugins.instance().instantiate_sweeper(config=line.common, hydra_context=context, task_function=job)
        sweeper.sweep(arguments=list(line.common.hydra.overrides.task))
    if writes:
        _write_table(line)
    return [*job.codes, *codes_elsewhere(line, job.codes)]


def _run_here(common: DictConfig) -> None:
    """Jobs run in this process, one after another, in place of where `launcher` sends them."""
    with read_write(common.hydra), open_dict(common.hydra):
        common.hydra.launcher = ConfigStore.instance().load("hydra/launcher/basic.yaml").node


def _write_table(line: Sweep) -> None:
    """The table and the page, in the terminal and in the logger."""
    try:
        options = line.config.ablation
        ablation = write_ablation(line.folder, options.baseline, options.level, cell=options.cell)
        print_ablation(ablation)
        log_ablation(ablation, line.config.logger)
        say.offline(line.folder)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
