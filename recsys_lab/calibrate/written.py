"""A calibrated cluster and profile as choices of `conf/`, in a folder of the user's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from recsys_lab.base.files import write_text
from recsys_lab.calibrate.cores import SharedCores
from recsys_lab.config.calibrated import FILES, core_share
from recsys_lab.config.command_line import CONF
from recsys_lab.errors import UserError

if TYPE_CHECKING:
    from recsys_lab.calibrate.calibration import Calibration

#: What `cluster=local` reads.
OF_THIS_MACHINE = "calibrated"
HEADS = {
    "cluster": "# The ranks of {launcher} as `python -m recsys_lab calibrate` measured them.\n#   python run.py mode=simulate {words}\n",
    "profile": "# This project's executors there, by `python -m recsys_lab calibrate`.\n#   python run.py mode=simulate {words}\n",
}
#: A named cluster brings its profile.
BRINGS = "defaults:\n  - override /profile@_global_.simulate.profile: {name}\n  - _self_\n"
HOSTS = "${cluster.hosts}"
RANKS = f"{HOSTS},${{cluster.ranks_per_host}}"


def check_name(name: str) -> None:
    """Raises UserError for a name that no choice can have, or that one of ours has."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise UserError("not a name for a cluster", where="--name", given=name, allowed="small letters, digits and _, a letter first")
    if any((CONF / group / f"{name}.yaml").exists() for group in FILES):
        raise UserError("a cluster or a profile of ours has this name", where="--name", given=name, remedy="take another")


def paths_of(folder: Path, name: str = OF_THIS_MACHINE) -> list[Path]:
    """The files that `write` writes."""
    return [folder / FILES[group].replace(OF_THIS_MACHINE, name) for group in ("cluster", "profile")]


def write(folder: Path, calibration: Calibration, name: str = OF_THIS_MACHINE) -> list[Path]:
    """Both files, in `folder`, which is made. Raises UserError where that cannot be written.

    Of a cluster with a name whose ranks share the cores of one machine, figures follow the number of ranks.
    """
    named = name != OF_THIS_MACHINE
    words = f"cluster={name} cluster.hosts=8" if named else "cluster=local"
    cluster = _rounded(asdict(calibration.cluster) | ({"name": name} if named else {}))
    profile = _rounded(asdict(calibration.profile) | ({"name": name} if named else {}))
    if named and calibration.cores is not None:
        _follow_ranks(cluster, profile, calibration.cores, core_share(calibration.experiment.launcher.ranks))
    targets = {"cluster": "recsys_lab.cluster.Cluster", "profile": "recsys_lab.simulate.Profile"}
    paths = []
    for (group, figures), path in zip((("cluster", cluster), ("profile", profile)), paths_of(folder, name)):
        head = HEADS[group].format(launcher=f"launcher={calibration.experiment.choices['launcher']}", words=words)
        brings = BRINGS.format(name=name) if named and group == "cluster" else ""
        text = head + brings + yaml.safe_dump({"_target_": targets[group], **figures}, sort_keys=False, width=140)
        paths.append(write_text(path, text))
    return paths


def _follow_ranks(cluster: dict[str, Any], profile: dict[str, Any], cores: SharedCores, share: float) -> None:
    """Tells figures that were measured with `share` of a core by the part that a rank has of one."""
    device, hosts = cluster["device"], cluster["hosts"]
    for part in filter(None, (cluster["host"], cluster["disk"])):
        part |= {key: f"${{of_host:{HOSTS},{figure * hosts:.6g}}}" for key, figure in part.items() if isinstance(figure, float)}
    device["memory_gb"] = f"${{local_memory_gb:{RANKS}}}"
    cores.follow(
        cluster,
        profile,
        rate=lambda figure: f"${{core_share:{figure / share:.4g},{RANKS}}}",
        time=lambda figure: f"${{core_time:{figure * share:.4g},{RANKS}}}",
    )


def _rounded(value: Any) -> Any:
    """Four digits of every figure: no clock here tells more."""
    if isinstance(value, Mapping):
        return {key: _rounded(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(inner) for inner in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value
