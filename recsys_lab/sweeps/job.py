"""One job of a sweep. What an earlier call in the same folder finished is not repeated, and a job that was cut short resumes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from recsys_lab.base.files import read_json
from recsys_lab.config.command_line import Sweep
from recsys_lab.config.frozen import fingerprint, freeze, load, register_resolvers
from recsys_lab.errors import PlanDoesNotFit, RankLost, UserError
from recsys_lab.job import CUT_SHORT, data_fingerprint, run_job
from recsys_lab.record.ownership import Ownership
from recsys_lab.record.result import RESULT_FILE
from recsys_lab.report import say
from recsys_lab.report.page import write_missing_page
from recsys_lab.sweeps import folder as sweep_folder
from recsys_lab.sweeps.live import SweepShown


def job_folder(sweep: str, overrides: Sequence[str], number: int) -> str:
    """`${job_folder:...}`, by which conf/config.yaml names a job's folder: the one of an earlier call, else one that is free."""
    return sweep_folder.folder_for(Path(sweep), list(overrides), number)


# Not in a function: a job that SLURM starts resolves its folder when this module is imported, before any line of ours runs.
register_resolvers()
OmegaConf.register_new_resolver("job_folder", job_folder, replace=True)


#: Exit codes of what a record says went wrong; anything else is a bug of ours.
CODES = {kind.__name__: kind.exit_code for kind in (UserError, PlanDoesNotFit, RankLost)}


@dataclass(frozen=True)
class StartedJob:
    """A job that Hydra's launcher has started: its composed config, its folder, its number in the sweep and its overrides."""

    config: DictConfig
    folder: Path
    number: int
    overrides: tuple[str, ...]


def run_in_sweep(progress: SweepShown, job: StartedJob, writes: bool) -> int:
    """One job from its head to its line in the table. The exit code. KeyboardInterrupt and Terminated end the whole sweep."""
    if writes:
        say.job(job.number, job.overrides)
    progress.begin(job.overrides)
    code = run_sweep_job(job.config, job.folder, writes)
    for signalled, its_code in CUT_SHORT.items():
        if code == its_code:
            progress.cut_short()
            raise signalled
    progress.end(repeated=code is None)
    return code or 0


def codes_elsewhere(sweep: Sweep, codes: Sequence[int]) -> list[int]:
    """The exit codes of the jobs of `sweep` that ran on other machines (SLURM), from their records.

    `codes`: of those that ran here. 4 of a job that left no record.
    """
    if len(codes) >= len(sweep.jobs):
        return []
    folders, elsewhere = sweep_folder.jobs_in(sweep.folder), []
    for choices in map(sweep_folder.choices, sweep.jobs):
        records = [sweep.folder / name / RESULT_FILE for name, own_choices in folders.items() if own_choices == choices]
        record = read_json(records[0]) if records and records[0].is_file() else {"error": {"type": RankLost.__name__}}
        failed = record.get("error")
        elsewhere.append(0 if failed is None else CODES.get(failed["type"], 1))
    return elsewhere


def run_sweep_job(config: DictConfig, folder: Path, writes: bool = True) -> int | None:
    """Runs `config` in `folder`, one of a sweep's. The exit code. None where one with just this config and data has finished in the sweep.

    A run of the same config that was cut short goes on from its last checkpoint. What another config or other data left is set aside.
    `ablation.repeat=true` runs everything again. `writes`: False on torchrun's ranks other than 0.
    """
    sweep = folder.parent
    try:
        checked = freeze(config)
    except UserError:  # said and recorded there
        return run_job(config, folder, sweep=sweep.name, writes=writes)
    own_fingerprint = fingerprint(checked)
    if not config.ablation.repeat:
        data = cache(lambda: data_fingerprint(checked))  # opens them: only where a job with this config is there
        if sweep_folder.has_finished(folder, own_fingerprint, data, pruned=config.ablation.get("prune") is not None):
            if writes:
                say.not_repeated(folder.name)
                write_missing_page(folder)
            return None
        if (other := sweep_folder.finished_elsewhere(folder, own_fingerprint, data)) is not None:
            if writes:
                sweep_folder.copy_result(folder, other)
                say.not_repeated(other)
            return None
        if _fingerprint_in(folder) == own_fingerprint:
            if not sweep_folder.has_other_data(folder, data()):
                config.resume = str(folder)
            elif writes:
                say.other_data()
    try:
        with Ownership.of(folder) if writes else nullcontext():
            if writes and config.resume is None and (aside := sweep_folder.set_aside(folder)) is not None:
                say.set_aside(aside)
            return run_job(checked if config.resume is None else config, folder, sweep=sweep.name, writes=writes)
    except UserError as error:  # another process has it: a SLURM job that outlived the sweep, whose record this must not touch
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code


def _fingerprint_in(folder: Path) -> str | None:
    """The fingerprint of the config of the run that was begun in `folder`; None where none was."""
    try:
        return fingerprint(load(folder))
    except UserError:
        return None
