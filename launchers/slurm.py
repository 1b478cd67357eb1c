"""SLURM through Hydra's submitit launcher: `-m` submits a job a run, and every task of a job is a rank.

A task sees SLURM's own variables; here they become torchrun's, and from there on the run is as under torchrun.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from launchers import torchrun
from recsys_lab.base.ranges import Hosts, RanksPerHost, Threads, Timeout
from recsys_lab.errors import UserError


def become_rank() -> None:
    """In a task that submitit started: sets the variables that torchrun would. Elsewhere nothing."""
    if os.environ.get("SUBMITIT_EXECUTOR") != "slurm" or torchrun.is_rank():
        return
    from submitit.helpers import TorchDistributedEnvironment

    TorchDistributedEnvironment().export(set_cuda_visible_devices=False)


def become_task() -> None:
    """In a task of srun, which submitit did not start: the same. Elsewhere nothing."""
    if "SLURM_STEP_ID" in os.environ and int(os.environ.get("SLURM_NTASKS", "1")) > 1:
        os.environ.setdefault("SUBMITIT_EXECUTOR", "slurm")
        become_rank()


def join(
    work: Callable[..., Any],
    arguments: dict,
    folder: Path,
    *,
    hosts: Hosts,
    ranks_per_host: RanksPerHost,
    threads_per_rank: Threads = 1,
    timeout_s: Timeout = 600.0,
) -> Any:
    """Runs `work(**arguments)` here, as the rank that this task is. Raises UserError outside of a job."""
    if not torchrun.is_rank():
        raise UserError("a run goes to SLURM as a sweep", where="launcher", given="slurm without -m", remedy="add -m: python run.py -m ...")
    return torchrun.join(
        work, arguments, folder, hosts=hosts, ranks_per_host=ranks_per_host, threads_per_rank=threads_per_rank, timeout_s=timeout_s
    )
