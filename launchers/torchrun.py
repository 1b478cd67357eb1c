"""Processes that torchrun started: this one is already a rank."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from recsys_lab.errors import UserError


def is_rank() -> bool:
    """Whether torchrun (or anything that sets its variables) started this process."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def join(
    work: Callable[..., Any],
    arguments: dict,
    folder: Path,
    *,
    hosts: int,
    ranks_per_host: int,
    threads_per_rank: int = 1,
    timeout_s: float = 600.0,
) -> Any:
    """Runs `work(**arguments)` here, as the rank that the environment says. Raises UserError if the ranks do not fit the hosts."""
    if not is_rank():
        raise UserError(
            "no torchrun around this process",
            where="launcher",
            given="torchrun",
            remedy="start it with: torchrun --nproc_per_node N run.py ...",
        )
    import torch

    if hosts * ranks_per_host != int(os.environ["WORLD_SIZE"]):
        raise UserError(
            "the ranks that torchrun started are not hosts x ranks per host",
            where="launcher",
            given=f"{os.environ['WORLD_SIZE']} ranks, {hosts} hosts x {ranks_per_host}",
            remedy="start as many ranks on every host",
        )
    os.environ.setdefault("LOCAL_WORLD_SIZE", str(ranks_per_host))
    os.environ["RECSYS_LAB_TIMEOUT_S"] = str(timeout_s)
    torch.set_num_threads(threads_per_rank)
    return work(**arguments)


def is_follower() -> bool:
    """Whether this is a rank other than 0: rank 0 alone goes through Hydra and writes the run folder."""
    return is_rank() and int(os.environ["RANK"]) > 0


def with_launcher(argv: list[str]) -> list[str]:
    """`argv` with launcher=torchrun, if torchrun started this process and no launcher was chosen."""
    if not is_rank() or any(word.startswith("launcher=") for word in argv):
        return argv
    return [*argv, "launcher=torchrun"]


def shared_folder(folder: Path) -> Path:
    """The run folder of rank 0, on every rank; `folder` itself where torchrun did not start this."""
    if not is_rank():
        return folder
    import torch.distributed as dist

    from recsys_lab.train.strategy import start_process_group

    start_process_group()
    box = [str(folder.resolve())]
    dist.broadcast_object_list(box, src=0)
    return Path(box[0])
