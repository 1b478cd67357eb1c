"""Whether the packages of a config's choices are installed: asked when the config is composed, before anything is planned or written."""

from __future__ import annotations

import shutil

from omegaconf import DictConfig, OmegaConf

from recsys_lab.base.packages import check_training, missing
from recsys_lab.config.command_line import SingleRun, Sweep
from recsys_lab.config.options import STARTS_RANKS
from recsys_lab.config.schema import TARGETS, target_of
from recsys_lab.errors import UserError

SLURM = "launchers.slurm.join"


def check_packages(line: SingleRun | Sweep) -> None:
    """Raises UserError for the first choice of a run, or of any job of a sweep, that this machine lacks something for."""
    for config in line.configs if isinstance(line, Sweep) else (line.config,):
        check_installed(config)
    if isinstance(line, Sweep):
        check_submits(line.config)


def check_installed(config: DictConfig) -> None:
    """Raises UserError for the first choice of a checked `config` whose package is missing. A launcher needs its own only to train."""
    trains = config.mode in STARTS_RANKS and config.get("study") is None
    if trains:
        check_training()
    for where in TARGETS:
        group = OmegaConf.select(config, where)
        if group is None or (where == "launcher" and not trains):
            continue
        if (package := missing(target_of(group.get("_target_"), where))) is not None:
            raise package.refusal(where, (config.get("choices") or {}).get(where) or group.get("_target_"))


def check_submits(config: DictConfig) -> None:
    """Raises UserError where a sweep of `config` would go to SLURM, which this machine cannot reach."""
    if config.launcher.get("_target_") == SLURM and not config.launcher.get("dry_run") and shutil.which("srun") is None:
        remedy = "give the command on a machine of the SLURM cluster, or use launcher=local"
        raise UserError("SLURM is not installed here", where="launcher", given="slurm", allowed="where srun and sbatch are", remedy=remedy)
