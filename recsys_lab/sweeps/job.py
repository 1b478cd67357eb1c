"""One job of a sweep: what an earlier call in the same folder finished is not repeated, and what was cut short goes on."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from recsys_lab.config.command_line import Invocation, StartedJob
from recsys_lab.config.frozen import fingerprint, freeze, load, register_resolvers
from recsys_lab.errors import UserError
from recsys_lab.job import INTERRUPTED, run_job
from recsys_lab.report import say
from recsys_lab.report.page import PAGE_FILE, write_page
from recsys_lab.sweeps import folder as sweep_folder
from recsys_lab.sweeps.live import SweepShown


def job_folder(sweep: str, overrides: Sequence[str], number: int) -> str:
    """`${job_folder:...}`, by which conf/config.yaml names a job's folder: the one of an earlier call, else one that is free."""
    return sweep_folder.folder_for(Path(sweep), list(overrides), number)


# Not in a function: a job that SLURM starts resolves its folder as soon as this module is imported, before any line of ours runs.
register_resolvers()
OmegaConf.register_new_resolver("job_folder", job_folder, replace=True)


def show(asked: Invocation, writes: bool) -> AbstractContextManager[SweepShown | None]:
    """What the sweep that is `asked` for shows while it runs; nothing for a single run."""
    if not asked.multirun or asked.folder is None or asked.config is None:
        return nullcontext()
    return SweepShown(asked.folder, asked.jobs, asked.config.ablation.baseline, asked.config.ablation.level, writes)


def in_sweep(shown: SweepShown | None, job: StartedJob, folder: Path, writes: bool) -> int:
    """One job from its head to its line in the table; the exit code. KeyboardInterrupt ends the whole sweep."""
    if writes:
        say.job(job.number, job.overrides)
    assert shown is not None  # a sweep has one
    shown.begin(job.overrides)
    code = run_sweep_job(job.config, folder, writes)
    shown.end(repeated=code is None)
    if code == INTERRUPTED:
        raise KeyboardInterrupt
    return code or 0


def run_sweep_job(config: DictConfig, folder: Path, writes: bool = True) -> int | None:
    """Runs `config` in `folder`, one of a sweep's; the exit code. None where a job with just this config has finished in the sweep.

    A run of the same config that was cut short goes on from its last checkpoint. What another config left is set aside.
    `ablation.repeat=true` runs everything anew. `writes`: False on torchrun's ranks other than 0.
    """
    sweep = folder.parent
    try:
        ours = fingerprint(freeze(config))
    except UserError:  # said and recorded there
        return run_job(config, folder, sweep.name, writes)
    if not config.ablation.repeat:
        if sweep_folder.has_finished(folder, ours, pruned=config.ablation.get("prune") is not None):
            if writes:
                say.not_repeated(folder.name)
                _whole(folder)
            return None
        if (other := sweep_folder.finished_elsewhere(folder, ours)) is not None:
            if writes:
                sweep_folder.copy_result(folder, other)
                say.not_repeated(other)
            return None
        if _left(folder) == ours:
            config.resume = str(folder)
    if writes and config.resume is None and (aside := sweep_folder.set_aside(folder)) is not None:
        say.set_aside(aside)
    return run_job(config, folder, sweep.name, writes)


def _left(folder: Path) -> str | None:
    """The fingerprint of the config of the run that was begun in `folder`; None where none was."""
    try:
        return fingerprint(load(folder))
    except UserError:
        return None


def _whole(folder: Path) -> None:
    """The page, if the process was killed after the record was written and before its page."""
    if not (folder / PAGE_FILE).is_file() and (folder / "plan.json").is_file():
        write_page(folder)
