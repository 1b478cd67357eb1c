"""A sweep's folder. It says what was requested (`sweep.json`), and the folder of each job, run in this call or in an earlier one."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path

import yaml

from recsys_lab.base.files import NOTHING, read_json, what_is, write_json
from recsys_lab.base.paths import SWEEP_FILE
from recsys_lab.base.schema import check_shape
from recsys_lab.errors import UserError
from recsys_lab.record.environment import ENVIRONMENT_FILE
from recsys_lab.record.ownership import LOCK_FILE, written
from recsys_lab.record.result import RESULT_FILE, read_result
from recsys_lab.record.run_folder import SUPERSEDED, value_at

#: Overrides of these keys change how a job is run or shown, not what it computes.
NOT_A_CHOICE = ("hydra", "ablation", "logger", "resume", "overwrite")


@dataclass(frozen=True)
class Requests:
    """`sweep.json`: the choices of every job."""

    jobs: Sequence[Mapping[str, str]]


def choices(overrides: Iterable[str]) -> dict[str, str]:
    """`["+a=1", "logger=none"]` as `{"a": "1"}`: what makes a job this one."""
    pairs = [line.partition("=") for line in overrides]
    return {name: value for key, _, value in pairs if (name := key.lstrip("+~")).split(".")[0].split("/")[0] not in NOT_A_CHOICE}


def ask_for(sweep: Path, jobs: Sequence[Sequence[str]]) -> None:
    """Keeps in the folder which jobs this call requests, after those of earlier calls. So the table can show missing ones."""
    earlier = planned(sweep)
    new = [job for overrides in jobs if (job := choices(overrides)) not in earlier]
    if new:
        write_json(sweep / SWEEP_FILE, {"schema": 1, "jobs": [*earlier, *new]})


def planned(sweep: Path) -> list[dict[str, str]]:
    """The choices of every job that was ever asked for. Empty where nobody said."""
    path = sweep / SWEEP_FILE
    if what_is(path) == NOTHING:
        return []
    data = read_json(path)
    check_shape(data, Requests, path, "take the file away: it says no more than which jobs are missing")
    return list(data["jobs"])


def jobs_in(sweep: Path) -> dict[str, dict[str, str]]:
    """Job folders by name, in the order of their numbers, each with its choices."""
    choices_of = {path.parent.parent.name: _read(path, path.stat().st_mtime_ns) for path in sweep.glob("*/.hydra/overrides.yaml")}
    return {
        name: job_choices
        for name in sorted(choices_of, key=lambda name: (len(name), name))
        if (job_choices := choices_of[name]) is not None
    }


def folder_for(sweep: Path, overrides: Sequence[str], number: int) -> str:
    """The name of the job's folder. It is the one that has these choices already, else its number, or the next free one."""
    jobs, own_choices = jobs_in(sweep), choices(overrides)
    for name, job_choices in jobs.items():
        if job_choices == own_choices:
            return name
    while str(number) in jobs or _is_somebodys(sweep / str(number)):
        number += 1
    return str(number)


def _is_somebodys(folder: Path) -> bool:
    """Whether there is anything at `folder` that no job of a sweep has left."""
    if not folder.is_dir():
        return folder.exists()
    names = {path.relative_to(folder).parts[0] for path in written(folder)} | {LOCK_FILE}
    return not {path.name for path in folder.iterdir()} <= names


def finished_elsewhere(folder: Path, fingerprint: str, data: Callable[[], str | None] = lambda: None) -> str | None:
    """The name of the sweep's job, other than that of `folder`, that completed with the same config and data; None where there is none."""
    others = [name for name in jobs_in(folder.parent) if name != folder.name]
    return next((name for name in others if has_finished(folder.parent / name, fingerprint, data)), None)


def has_finished(folder: Path, fingerprint: str, data: Callable[[], str | None] = lambda: None, pruned: bool = False) -> bool:
    """Whether the job in `folder` completed with just this config and data; or, where `pruned` counts too, was cut short by a search.

    `data`: asked for their fingerprint where the config is the same.
    """
    try:
        result = read_result(folder)
    except UserError:
        return False
    ended = ("completed", "pruned") if pruned else ("completed",)
    return result["status"] in ended and result["config_fingerprint"] == fingerprint and not has_other_data(folder, data())


def has_other_data(folder: Path, data: str | None) -> bool:
    """Whether the run in `folder` says that it read other data than those with the fingerprint `data`. An older one does not say."""
    recorded = data_of(folder)
    return None not in (recorded, data) and recorded != data


def data_of(folder: Path) -> str | None:
    """The fingerprint of the data that the run in `folder` read; None where it does not say."""
    try:
        recorded = value_at(read_json(folder / ENVIRONMENT_FILE), "data.fingerprint")
    except UserError:
        return None
    return recorded if isinstance(recorded, str) else None


def copy_result(folder: Path, name: str) -> None:
    """Give `folder` the record of the sweep's job `name`, which has the same config, and say so in it."""
    write_json(folder / RESULT_FILE, read_json(folder.parent / name / RESULT_FILE) | {"same_as": name})
    for file in ("config.yaml", ENVIRONMENT_FILE):
        if (folder.parent / name / file).is_file():
            shutil.copyfile(folder.parent / name / file, folder / file)


def set_aside(folder: Path) -> Path | None:
    """Move what a run wrote, but for Hydra's own files, from `folder` to the sweep's `superseded`. Where to; None if there is nothing."""
    names = {path.relative_to(folder).parts[0] for path in written(folder)}
    paths = [folder / name for name in sorted(names - {".hydra"})]
    if not paths:
        return None
    aside = next(path for n in count(1) if not (path := folder.parent / SUPERSEDED / f"{folder.name}-{n}").exists())
    aside.mkdir(parents=True)
    for path in paths:
        shutil.move(path, aside / path.name)
    return aside


@cache
def _read(path: Path, written_ns: int) -> dict[str, str] | None:
    """None for a file that a kill left empty."""
    try:
        lines = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, OSError, ValueError, RecursionError):
        return None
    return choices(lines) if isinstance(lines, list) and all(isinstance(line, str) for line in lines) else None
