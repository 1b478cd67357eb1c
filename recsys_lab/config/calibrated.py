"""Figures of this machine that `python -m recsys_lab calibrate` wrote, for `cluster=local` and its profile."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf

from recsys_lab.base.files import FOLDER, NOTHING, read_text, what_is
from recsys_lab.base.paths import user_config
from recsys_lab.errors import UserError

#: Names the folder of the figures; "none": those in conf/.
VARIABLE = "RECSYS_LAB_CALIBRATION"
#: A rank's part of a core where the times on file were measured: four ranks on two cores.
SHARE_ON_FILE = 0.5
REMEDY = f"python -m recsys_lab calibrate, or {VARIABLE}=none"
#: Of any figure.
MOST = 1e15
FILES = {"cluster": "cluster/calibrated.yaml", "profile": "profile/calibrated.yaml"}


def folder() -> Path | None:
    """Where calibration's figures are, or would be; None where the user wants none."""
    setting = os.environ.get(VARIABLE)
    if setting == "none":
        return None
    return Path(setting) if setting else user_config()


def figure(key: str, default: Any, *, _root_: DictConfig) -> Any:
    """`${calibrated:cluster.device.source,X}`: the figure of that name, or X where there is none or the config says `calibrated: false`."""
    value = None if OmegaConf.select(_root_, "calibrated") is False else _figures()
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if value is None:
        return default
    return _number(key, value) if isinstance(default, int | float) else value


def _number(key: str, value: Any) -> float:
    """`value`, the figure of `key`. UserError, which names its file, where it is no number that could be measured."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < MOST:
        group, _, inner = key.partition(".")
        where = f"{(folder() or Path()) / FILES[group]}: {inner}"
        raise UserError("no figure", where=where, given=str(value)[:60], allowed="a number, 0 or more", remedy=REMEDY)
    return value


def core_figure(key: str, default: float, *, _root_: DictConfig) -> float:
    """`${calibrated_core:cluster.device.memory_bandwidth_gb_s,X}`: the same for a whole core: it was measured for a rank's part of one."""
    measured = figure(key, None, _root_=_root_)
    if measured is None:
        return default
    return float(_number(key, measured) / core_share(_ranks_measured(_root_)))


def host_figure(key: str, default: float | None, *, _root_: DictConfig) -> float | None:
    """`${calibrated_host:cluster.disk.read_gb_s,X}`: the same for the machine, of which a host has a part."""
    measured = figure(key, None, _root_=_root_)
    return default if measured is None else float(f"{_number(key, measured) * figure('cluster.hosts', 1, _root_=_root_):.6g}")


def _ranks_measured(_root_: DictConfig) -> int:
    """With how many ranks calibrate measured."""
    return int(figure("cluster.hosts", 1, _root_=_root_) * figure("cluster.ranks_per_host", 1, _root_=_root_))


def time_figure(key: str, default: float, *, _root_: DictConfig) -> float:
    """`${calibrated_time:profile.launch_overhead_us,X}`: what a rank's own work takes with its part of a core.

    It is the measured value, or X with `SHARE_ON_FILE`. Either is scaled to the part of a core that each of the launcher's ranks has.
    """
    measured = figure(key, None, _root_=_root_)
    share = SHARE_ON_FILE if measured is None else core_share(_ranks_measured(_root_))
    launcher = OmegaConf.select(_root_, "launcher")
    here = share if launcher is None else core_share(launcher.hosts * launcher.ranks_per_host)
    return float(f"{(default if measured is None else _number(key, measured)) * share / here:.4g}")


def is_there() -> bool:
    """Whether calibration has left figures where `cluster=local` looks."""
    return bool(_figures())


def fitted_on() -> dict[str, float]:
    """The trainings that the calibrated profile was fitted to, ms."""
    value = _figures().get("profile", {}).get("fitted_on")
    return dict(value) if isinstance(value, dict) else {}


def core_share(ranks: int) -> float:
    """A rank's part of a core, with one thread each."""
    return min(1.0, len(os.sched_getaffinity(0)) / max(1, ranks))


def _figures() -> dict[str, Any]:
    where = folder()
    if where is not None and os.environ.get(VARIABLE) and (value := what_is(where)) not in (FOLDER, NOTHING):
        raise UserError("not a folder", where=VARIABLE, given=f"{where}, {value or 'a file'}", allowed="a folder, or none")
    paths = {} if where is None else {group: where / name for group, name in FILES.items()}
    return {group: _read(path, path.stat().st_mtime_ns) for group, path in paths.items() if path.is_file()}


@cache
def _read(path: Path, changed: int) -> dict[str, Any]:
    """The mapping in `path` as it was `changed`."""
    try:
        value = yaml.safe_load(read_text(path))
    except (yaml.YAMLError, RecursionError, UserError):
        value = None
    if not isinstance(value, dict):
        raise UserError("not a file that calibrate wrote", where=path, remedy=REMEDY)
    return value
