"""The folder of a run's checkpoints: what lies there by its names, what a kill left, what is removed. What is in them: checkpoint.py."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from pathlib import Path

from recsys_lab.base.export_files import MODEL_FILE
from recsys_lab.base.files import read_json, write_json
from recsys_lab.errors import UserError
from recsys_lab.train.manifest import base_of

PARTIAL = ".partial-"
BEFORE = PARTIAL + "before-"
#: Of one that is not what was written.
UNUSABLE = "unusable-"
TRAINER_FILE = "trainer.json"
FOLDER = "checkpoints"
PROGRESS_FILE = "progress.json"


def steps(checkpoints: Path) -> dict[int, Path]:
    """The checkpoints in a run's `checkpoints` folder by step, rising: `step=N`, N a number as we write it, with something in it.

    Such a folder was whole when it got its name, so a missing file makes it a broken one.
    """
    folders = {int(path.name[5:]): path for path in checkpoints.glob("step=*") if re.fullmatch(r"step=(0|[1-9][0-9]{0,17})", path.name)}
    return {step: folders[step] for step in sorted(folders) if folders[step].is_dir() and any(folders[step].iterdir())}


def latest(checkpoints: Path) -> Path | None:
    """The newest checkpoint in a run's `checkpoints` folder, or None."""
    return next(reversed(steps(checkpoints).values()), None)


def newest(run_folder: Path) -> Path | None:
    """The checkpoint from which the run goes on; None where it has written none. UserError where those that it wrote are gone."""
    last, progress = latest(run_folder / FOLDER), run_folder / PROGRESS_FILE
    if last is None and progress.is_file():
        raise UserError(
            "the checkpoints of this run are gone",
            where=run_folder / FOLDER,
            given=f"none, the last that it wrote was step={read_json(progress).get('step')}",
            remedy=f"put them back; or start again: remove {progress.name}, and resume",
        )
    return last


def trained(folder: Path) -> Path:
    """The weights that a run ended with: `folder`, if that is a checkpoint or an export, else its best or newest ones. UserError."""
    if (folder / MODEL_FILE).is_file():
        return folder
    if folder.parent.name == FOLDER:
        last: Path | None = folder if (folder / TRAINER_FILE).is_file() else None
    else:
        best = folder / FOLDER / "best"
        last = best if (best / TRAINER_FILE).is_file() else latest(folder / FOLDER)
    if last is None:
        what, remedy = "no checkpoint to start from", "name a run that has trained: start_from=RUN_FOLDER"
        raise UserError(what, where="start_from", given=folder, allowed="a run, a checkpoint, or an export", remedy=remedy)
    return last


def progressed(run_folder: Path, step: int) -> None:
    """Notes in the run folder that there is a checkpoint of `step`."""
    write_json(run_folder / PROGRESS_FILE, {"step": step})


def remove(folder: Path) -> None:
    """Deletes a checkpoint: renamed first, so that a kill in the middle leaves nothing that looks whole."""
    doomed = folder.with_name(PARTIAL + "old-" + folder.name)
    os.replace(folder, doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def remove_old(checkpoints: Path, keep: int) -> None:
    """Deletes all but the newest `keep` checkpoints, and the bases of these. Newer ones first, so that none outlives its base."""
    present = list(steps(checkpoints).values())
    kept = set(present[-keep:])
    for folder in present[-keep:]:
        with contextlib.suppress(UserError):  # nobody asked for it
            kept |= {base_of(folder) or folder}
    for folder in reversed(present):
        if folder not in kept:
            remove(folder)


def clear_partial(checkpoints: Path) -> None:
    """Deletes what a kill or a full disk cut short, and puts back what was to be replaced. Only while nobody writes there."""
    for before in checkpoints.glob(BEFORE + "*"):
        name = before.with_name(before.name.removeprefix(BEFORE))
        if not name.exists():
            os.replace(before, name)
    for left in checkpoints.glob(PARTIAL + "*"):
        shutil.rmtree(left, ignore_errors=True)
