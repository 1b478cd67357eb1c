"""The config that runs: resolved, read-only, with a fingerprint of all its fields."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import psutil
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from recsys_lab.config.checks import check_values
from recsys_lab.config.schema import check_config
from recsys_lab.errors import UserError

#: How a run is shown, and the names of what other fields hold in full, do not change what it computes: not part of its identity.
NOT_IDENTITY = ("resume", "logger", "ablation", "choices")


def register_resolvers() -> None:
    """What the YAML may ask of this machine.

    `${local_memory_gb:H,R}`: its memory, in GB (1e9 bytes), for each of H x R ranks.
    `${torchrun_hosts:}`, `${torchrun_ranks_per_host:}`: what torchrun started.
    """
    resolvers = {
        "local_memory_gb": lambda hosts, ranks_per_host: round(psutil.virtual_memory().total / 1e9 / max(1, hosts * ranks_per_host), 1),
        "torchrun_hosts": lambda: int(os.environ.get("WORLD_SIZE", 1)) // int(os.environ.get("LOCAL_WORLD_SIZE", 1)),
        "torchrun_ranks_per_host": lambda: int(os.environ.get("LOCAL_WORLD_SIZE", 1)),
    }
    for name, resolver in resolvers.items():
        OmegaConf.register_new_resolver(name, resolver, replace=True)


def freeze(config: DictConfig) -> DictConfig:
    """`config` checked, resolved and read-only. Raises UserError for anything that is wrong with it."""
    config = OmegaConf.create(OmegaConf.to_container(config, resolve=False))  # a copy, apart from Hydra's own node
    try:
        OmegaConf.resolve(config)
    except OmegaConfBaseException as error:
        raise UserError(f"cannot be resolved ({str(error).splitlines()[0]})", where=error.full_key or "config") from None
    check_config(config)
    check_values(config)
    OmegaConf.set_struct(config, True)
    OmegaConf.set_readonly(config, True)
    return config


def plain(config: DictConfig) -> dict[str, Any]:
    container = OmegaConf.to_container(config, resolve=True)
    assert isinstance(container, dict)
    return container


def fingerprint(config: DictConfig) -> str:
    """Of every field that can change a result: all but those in `NOT_IDENTITY`."""
    identity = {key: value for key, value in plain(config).items() if key not in NOT_IDENTITY}
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]


def load(folder: Path) -> DictConfig:
    """The frozen config of a run folder. Raises UserError if there is none."""
    path = folder / "config.yaml"
    if not path.is_file():
        raise UserError("no run to resume here", where=path, given="no config.yaml", remedy="give the folder of a run: resume=RUN_FOLDER")
    try:
        config = OmegaConf.load(path)
    except Exception as error:  # yaml's own errors are many
        raise UserError(f"config.yaml cannot be read ({type(error).__name__})", where=path) from None
    assert isinstance(config, DictConfig)
    return config


def differences(ours: DictConfig, theirs: DictConfig) -> list[str]:
    """`key: theirs -> ours` for every field of identity that differs."""
    a, b = _flat(plain(theirs)), _flat(plain(ours))
    keys = sorted(k for k in {*a, *b} if k.split(".")[0] not in NOT_IDENTITY)
    return [f"{k}: {a.get(k, 'absent')} -> {b.get(k, 'absent')}" for k in keys if a.get(k) != b.get(k)]


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(value, dict) and value:
        return {k: v for key, item in value.items() for k, v in _flat(item, f"{prefix}.{key}" if prefix else str(key)).items()}
    return {prefix: value}
