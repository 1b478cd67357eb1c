"""Whose code a config may name. A run folder may be somebody else's, and what a `_target_` names is imported."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Override
from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf

from recsys_lab.errors import UserError

OURS = ("recsys_lab", "launchers", "experiments")
_TARGET = re.compile(r"""_target_['"]?\s*:\s*['"]?([\w.]+)""")


@dataclass(frozen=True)
class Named:
    """The modules that the user names. A `_target_` on the command line names one, or a YAML of the searchpath given there."""

    modules: frozenset[str] = frozenset()

    @staticmethod
    def of(overrides: Iterable[Override], config_dir: str | None = None) -> Named:
        folders, targets = [config_dir] if config_dir else [], set()
        for override in overrides:
            value = override.value()
            if override.key_or_group == "hydra.searchpath":
                folders += [str(path).removeprefix("file://") for path in (value if isinstance(value, list) else [value])]
            targets |= {target for _, target in _targets({override.key_or_group.rpartition(".")[2]: value}, "")}
        for folder in map(Path, folders):
            for file in filter(Path.is_file, (*folder.rglob("*.yaml"), *folder.rglob("*.yml"))):
                targets |= set(_TARGET.findall(file.read_text(encoding="utf-8", errors="replace")))
        return Named(frozenset(str(target).rpartition(".")[0] for target in targets))


def check_targets(config: DictConfig, user_modules: Named, folder: Path) -> None:
    """Raises UserError for a `_target_` of `config` that is neither ours nor of one of `user_modules`. Imports nothing else."""
    for where, target in _targets(OmegaConf.to_container(config, resolve=False), ""):
        if isinstance(target, str) and target.rpartition(".")[0] in user_modules.modules:
            continue
        if not isinstance(target, str) or target.split(".")[0] not in OURS or not _is_ours(target):
            raise UserError(
                "code that is not ours is not run for a folder's sake",
                where=f"{folder} {where}",
                given=target,
                allowed=f"{', '.join(OURS)}, and modules that the command names",
                remedy=f"if you trust it, say where it is from: hydra.searchpath=[file://CONF], or {where}={target}",
            )


def _is_ours(target: str) -> bool:
    """Not what a module of ours has imported from elsewhere, such as recsys_lab.job.os.system."""
    try:
        return str(getattr(get_object(target), "__module__", "")).split(".")[0] in OURS
    except (ImportError, AttributeError, ValueError):  # said where it is needed
        return True


def _targets(value: Any, where: str) -> Iterator[tuple[str, Any]]:
    """(key, target) of every `_target_` in plain data."""
    if isinstance(value, dict):
        for key, item in value.items():
            inner = f"{where}.{key}".strip(".")
            yield from [(inner, item)] if str(key) == "_target_" else _targets(item, inner)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _targets(item, f"{where}[{number}]")
