"""The checkpoint from which a run goes on: the newest whose files are as they were written. All ranks look at them together."""

from __future__ import annotations

import os
from pathlib import Path

import torch.distributed as dist

from recsys_lab.errors import UserError
from recsys_lab.record.metrics_csv import MetricsCsv, read_metrics
from recsys_lab.train.checkpoint import checked_trainer
from recsys_lab.train.checkpoint_folder import FOLDER, UNUSABLE, clear_partial, newest, steps


def newest_whole(run_folder: Path, run: str, resumes: bool, keeps_best: bool) -> Path | None:
    """None: the run begins. Drops what a killed run wrote of the steps after it. Says what is lost. Collective.

    Args:
        run: the fingerprint of the run, whose checkpoints they must be.
        resumes: else nothing is looked for.
        keeps_best: the checkpoint of the best weights must be whole too, where there is one.

    Raises:
        UserError: none is whole, or the best weights are not.
    """
    checkpoints = run_folder / FOLDER
    if dist.get_rank() == 0:
        clear_partial(checkpoints)
    dist.barrier()
    known = list(steps(checkpoints))
    found = _whole(run_folder, run) if resumes else None
    if found is not None and keeps_best and (best := checkpoints / "best").is_dir() and (why := _problem(best, run)):
        raise UserError(str(why.parts["what"]), where=best, remedy="put the file back, or start again in another folder")
    if dist.get_rank() == 0 and (run_folder / "metrics.csv").exists():
        step = int(found.name.split("=")[1]) if found is not None else -1
        if resumes:
            _say(_from(step, max([*known, *(int(row["step"] or 0) for row in read_metrics(run_folder))], default=0)))
        MetricsCsv(run_folder).truncate_after(step)
    dist.barrier()
    return found


def _whole(run_folder: Path, run: str) -> Path | None:
    """Sets aside those after it. Raises what is wrong with the newest, where none is whole."""
    if newest(run_folder) is None:
        return None
    problems: list[tuple[Path, UserError]] = []
    for folder in reversed(steps(run_folder / FOLDER).values()):
        if (problem := _problem(folder, run)) is None:
            for unusable, why in problems if dist.get_rank() == 0 else ():
                os.replace(unusable, aside := _aside(unusable))
                _say(f"not from {unusable.name}, {why.parts['what']}; it is {aside.name} now")
            dist.barrier()
            return folder
        problems.append((folder, problem))
    raise problems[0][1]


def _problem(folder: Path, run: str) -> UserError | None:
    """What the first rank that found something says of a checkpoint, on every rank. Collective."""
    own: UserError | None = None
    try:
        checked_trainer(folder, run, dist.get_rank(), dist.get_world_size())
    except UserError as error:
        own = error
    parts: list[dict | None] = [None] * dist.get_world_size()
    dist.all_gather_object(parts, own and own.parts)
    first = next((one for one in parts if one is not None), None)
    return None if first is None else UserError(**first)


def _aside(folder: Path) -> Path:
    """A free name for it beside it, by which no run takes it for a checkpoint."""
    number, name = 1, folder.with_name(UNUSABLE + folder.name)
    while name.exists():
        number += 1
        name = folder.with_name(f"{UNUSABLE}{folder.name}-{number}")
    return name


def _from(step: int, reached: int) -> str:
    """`reached`: the last step that something is known of."""
    if step < 0:
        return f"from the beginning, as it has no checkpoint; it had reached step {reached} at least"
    if reached <= step:
        return f"from step {step}"
    lost = f"step {reached} is" if reached == step + 1 else f"steps {step + 1} to {reached} at least are"
    return f"from step {step}; {lost} lost and trained again"


def _say(sentence: str) -> None:
    print(f"   resumes  {sentence}", flush=True)
