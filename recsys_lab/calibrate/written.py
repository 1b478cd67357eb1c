"""A calibrated cluster and profile as choices of `conf/`, in a folder of the user's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from recsys_lab.cluster import Cluster
from recsys_lab.config.calibrated import FILES
from recsys_lab.errors import unwritable
from recsys_lab.simulate import Profile

HEADS = {
    "cluster": "# This machine as `python -m recsys_lab calibrate` measured it; cluster=local takes its figures from here.\n"
    "#   python run.py mode=simulate cluster=local\n",
    "profile": "# This project's executors on this machine, by `python -m recsys_lab calibrate`; cluster=local brings these figures.\n"
    "#   python run.py mode=simulate cluster=local\n",
}


def write(folder: Path, cluster: Cluster, profile: Profile) -> list[Path]:
    """Both files, in `folder`, which is made. Raises UserError where that cannot be written."""
    made = {
        "cluster": {"_target_": "recsys_lab.cluster.Cluster", **asdict(cluster)},
        "profile": {"_target_": "recsys_lab.simulate.Profile", **asdict(profile)},
    }
    paths = []
    for group, figures in made.items():
        path = folder / FILES[group]
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(HEADS[group] + yaml.safe_dump(_rounded(figures), sort_keys=False, width=140), encoding="utf-8")
        except OSError as error:
            raise (unwritable(error, path) or error) from None
        paths.append(path)
    return paths


def _rounded(value: Any) -> Any:
    """Four digits of every figure: no clock here tells more."""
    if isinstance(value, Mapping):
        return {key: _rounded(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(inner) for inner in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value
