"""SLURM through Hydra's submitit launcher: `-m` submits a job a run, and every task of a job is a rank. Or a script for sbatch, of one run.

A task sees SLURM's own variables; here they become torchrun's, and from there on the run is as under torchrun. In the script's tasks
torchrun itself starts the ranks.
"""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Interval
from pydantic import Strict

from launchers import manifest, torchrun
from launchers.kubernetes import INTERFACE
from recsys_lab.base.files import override_of
from recsys_lab.base.paths import ROOT, sweep_of
from recsys_lab.base.ranges import Count, CountFromZero, Hosts, RanksPerHost, Threads, Timeout, text_like
from recsys_lab.errors import Terminated, UserError
from recsys_lab.units import counted

FILE, LOGS = "slurm.sh", "logs"
#: What sbatch takes besides: `qos`, and what it is to be.
OPTION = text_like(r"[a-z][a-z0-9-]*", 63, "an option of sbatch without its --, such as qos")
VALUE = text_like(r"[^\x00-\x1f]*", 1024, "one line of text")
NAME = text_like(r"[A-Za-z0-9_][A-Za-z0-9_.,-]*", 255, "a name of SLURM's, or several with commas")


@contextmanager
def task() -> Iterator[None]:
    """In a task that submitit started: a rank, which SIGTERM ends with its exit code. Elsewhere nothing."""
    if os.environ.get("SUBMITIT_EXECUTOR") != "slurm":
        yield
        return
    become_rank()
    signal.signal(signal.SIGTERM, _terminate)  # submitit's handler takes no notice
    try:
        yield
    except Terminated as error:
        torchrun.leave(error.exit_code)


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
    dry_run: bool = False,
    device_kind: Literal["cuda", "cpu"] = "cpu",
    partition: Annotated[str, NAME] | None = None,
    account: Annotated[str, NAME] | None = None,
    minutes: Count = 1440,
    cpus_per_rank: Threads = 8,
    host_memory_gb: Count | None = None,
    jobs_at_once: Count = 1,
    sbatch: dict[Annotated[str, OPTION], Annotated[str, VALUE] | int | bool] | None = None,
    max_restarts: CountFromZero = 3,
    port: Annotated[int, Strict(), Interval(ge=1024, le=65535)] | None = None,
    interface: Annotated[str, INTERFACE] | None = None,
    threads_per_rank: Threads = 1,
    timeout_s: Timeout = 600.0,
) -> Any:
    """In a job: runs `work(**arguments)` as the rank that this task is. Elsewhere, with `dry_run`: writes `folder`/slurm.sh.

    Of a sweep's job it also writes slurm.sh into the sweep's folder, an array of the jobs that are there so far.
    Other keys than those below are of sbatch. `conf/launcher/slurm.yaml` explains them.

    Args:
        work, arguments, folder, hosts, ranks_per_host, threads_per_rank, timeout_s: those of `launchers.local.launch`.
        dry_run: whether the script is wanted.
        device_kind: the named cluster's; cuda: a rank has a GPU.

    Returns:
        What the rank returned; None where only the script was written.

    Raises:
        UserError: outside of a job, without `dry_run`.
    """
    if torchrun.is_rank():
        return torchrun.join(
            work, arguments, folder, hosts=hosts, ranks_per_host=ranks_per_host, threads_per_rank=threads_per_rank, timeout_s=timeout_s
        )
    if not dry_run:
        remedy = "add -m: python run.py -m ...; or launcher.dry_run=true, which writes a script for sbatch"
        raise UserError("a run goes to SLURM as a sweep", where="launcher", given="slurm without -m", remedy=remedy)
    write = partial(
        _write,
        hosts=hosts,
        ranks_per_host=ranks_per_host,
        gpus_per_node=ranks_per_host if device_kind == "cuda" else None,
        cpus_per_rank=cpus_per_rank,
        host_memory_gb=host_memory_gb,
        minutes=minutes,
        partition=partition,
        account=account,
        jobs_at_once=jobs_at_once,
        options=[_option(name, value) for name, value in (sbatch or {}).items() if value is not False],
        max_restarts=max_restarts,
        port=port,
        interface=interface,
    )
    folder = folder.resolve()
    path, sweep = write(folder, shlex.quote(override_of("resume", folder)), []), sweep_of(folder)
    print(f"{'slurm':>10}  {counted(hosts, 'node')} of {counted(ranks_per_host, 'rank')}; the job goes on with the run in {folder}")
    print(f"{'':>10}  submit it with: sbatch {path}")
    if sweep is not None:
        numbers = sorted(int(one.parent.name) for one in sweep.glob(f"*/{FILE}") if one.parent.name.isdigit())
        before, _, after = override_of("resume", sweep / "JOB").rpartition("JOB")
        array = write(sweep, f'{shlex.quote(before)}"$SLURM_ARRAY_TASK_ID"{after and shlex.quote(after)}', numbers)
        print(f"{'':>10}  or the {counted(len(numbers), 'job')} of the sweep so far, {jobs_at_once} at a time: sbatch {array}")
    return None


def _write(folder: Path, words: str, array: Sequence[int], **keys: Any) -> Path:
    """`folder`/slurm.sh, of one run or an `array` of them. `words`: of run.py, as the shell reads them."""
    (folder / LOGS).mkdir(exist_ok=True)
    log = shlex.quote(str(folder / LOGS / ("slurm_%A_%a.txt" if array else "slurm_%j.txt")))
    checkout, name = shlex.quote(str(ROOT)), manifest.name_of(folder)
    return manifest.write(folder, FILE, name=name, words=words, array=array, checkout=checkout, log=log, **keys)


def _option(name: str, value: str | int | bool) -> str:
    """As a line of the script has it behind `--`."""
    return name if value is True else f"{name}={shlex.quote(str(value))}"


def _terminate(number: int, frame: object) -> None:
    raise Terminated
