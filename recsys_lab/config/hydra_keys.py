"""Hydra's own keys on a command line: those that a run or a sweep takes. Others would change what runs, and Hydra checks few of them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.types import Override

from recsys_lab.errors import UserError, did_you_mean

#: Of a sweep's jobs, below hydra.sweep.dir.
SUBDIR = "hydra.sweep.subdir"
FOLDERS = ("hydra.run.dir", "hydra.sweep.dir", SUBDIR, "hydra.searchpath")
SWEEPER = "hydra/sweeper"
#: Keys of the chosen sweeper and launcher, which their own schemas check.
OF_A_CHOICE = ("hydra.sweeper.", "hydra.launcher.")
#: Of Hydra's own sweeper: values to run through stand on the command line, and a job is composed when it starts.
OF_THE_GRID = ("hydra.sweeper.max_batch_size", "hydra.sweeper.params")
_FILE, _PACKAGE = "file://", "pkg://"


def check_hydra_keys(overrides: list[Override]) -> None:
    """Raises UserError for a key of Hydra's that is not for users, and for a folder of choices that is not there."""
    for override in overrides:
        key = override.key_or_group
        if key != "hydra" and not key.startswith(("hydra.", "hydra/")):
            continue
        if override.is_delete() or not _is_taken(key):
            keys = (*FOLDERS, SWEEPER, *(f"{prefix}*" for prefix in OF_A_CHOICE))
            remedy = "launcher=slurm brings its own" if key == "hydra/launcher" else did_you_mean(key, keys)
            raise UserError(
                "not a key of Hydra's that a run takes", where=key, given=override.input_line, allowed=", ".join(keys), remedy=remedy
            )
        if key == "hydra.searchpath":
            folders_of(override)
        if key == SUBDIR:
            _check_subdir(str(override.value()))
        if key == SWEEPER and not override.is_sweep_override():
            _check_sweeper(override.value())


def _is_taken(key: str) -> bool:
    if key.endswith("._target_") or key.startswith(OF_THE_GRID):
        return False
    return key in (*FOLDERS, SWEEPER) or key.startswith(OF_A_CHOICE)


def _check_subdir(value: str) -> None:
    """One folder would be all jobs', and one outside of the sweep is nobody's."""
    parts = Path(value).parts
    if ".." in parts or parts[:1] == ("/",) or "${" not in value:
        allowed = "a path below hydra.sweep.dir that differs by job, as job_${hydra.job.num}"
        raise UserError("no folder of its own for each job", where=SUBDIR, given=value, allowed=allowed)


def _check_sweeper(name: Any) -> None:
    options = GlobalHydra.instance().config_loader().get_group_options(SWEEPER)
    if name not in options:
        raise UserError("no such choice", where=SWEEPER, given=name, allowed=", ".join(options), remedy=did_you_mean(str(name), options))


def folders_of(override: Override) -> list[str]:
    """What an override of hydra.searchpath names. UserError where it is no list, or holds what is not there."""
    value, allowed = override.value(), "a list of folders: [DIR], [file://DIR] or [pkg://PACKAGE]"
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise UserError("wrong type", where="hydra.searchpath", given=override.get_value_element_as_str(), allowed=allowed)
    for item in value:
        scheme, separator, rest = item.partition("://")
        if separator and f"{scheme}://" not in (_FILE, _PACKAGE):
            raise UserError("no folder of choices", where="hydra.searchpath", given=item, allowed=allowed)
        if item.startswith(_PACKAGE) and not _is_package(rest):
            raise UserError("no such package", where="hydra.searchpath", given=item, remedy="install it, or name a folder")
        if not item.startswith(_PACKAGE) and not Path(item.removeprefix(_FILE)).is_dir():
            raise UserError("not a folder", where="hydra.searchpath", given=item, allowed=allowed)
    return value


def _is_package(path: str) -> bool:
    """Whether the first part of `path` is a package: its name, perhaps with folders in it. Nothing of it is run."""
    try:
        return importlib.util.find_spec(path.replace("/", ".").split(".")[0]) is not None
    except (ImportError, ValueError):
        return False
