"""The config that runs: resolved, read-only, with a fingerprint of all its fields."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from recsys_lab.base.files import write_text
from recsys_lab.config import calibrated
from recsys_lab.config.checks import check_values
from recsys_lab.config.schema import check_config
from recsys_lab.errors import UserError
from recsys_lab.tables.table_file import dim_of_tables
from recsys_lab.tables.torchrec_dry_run import batch_of_request

#: Fields that do not change what a run computes, so they are no part of its identity. They are how a run is shown, names of what other
#: fields hold in full, a provider's price today, how often devices fail, where rows lie, and which checkpoints are kept.
NOT_IDENTITY = (
    *("resume", "overwrite", "predictions", "evaluate", "logger", "ablation", "choices"),
    *("cluster.list_price", "cluster.failures", "sharder.scratch"),
    *("trainer.keep", "trainer.checkpoint_full_every"),
)
#: Where a run is, and how its tables lie there: a run that resumes may have others. Simulations do not change what is trained.
MOVES = ("launcher", "trainer.device", "cluster", "simulate", "sharder")
#: How long a run trains.
LENGTH = ("trainer.max_epochs", "trainer.max_steps", "trainer.max_minutes", "trainer.early_stopping.patience")
#: What changes nothing that was trained so far: a run that resumes may have others of these too.
AHEAD = (
    *LENGTH,
    *("trainer.checkpoint_every_steps", "trainer.log_every_steps", "trainer.measure_steps", "trainer.progress_bar"),
    *("trainer.evaluate_train_rows", "trainer.replan_saving", "data.prefetch_batches"),
)
CONFIG_FILE = "config.yaml"
#: Without these a config.yaml is none of ours.
NEEDED = ("seed", "mode", "model", "sharder", "precision", "cluster", "data", "optimizer", "trainer", "launcher", "logger")


def register_resolvers() -> None:
    """What the YAML may ask of this machine.

    `${host_link_gb_s:R,G}`: what the link of a host of R ranks carries, where each has G of it. `${of_ranks:R,X}`: what a host of R ranks
    has, where each has X of it; `${of_host:H,X}`: what one of H has of X. `${local_memory_gb:H,R}`: its memory, in GB (1e9 bytes), for each
    of H x R ranks. `${core_share:X,H,R}`: X with a core to itself, times a rank's part of the cores. The part is below 1 where H x R ranks
    of one thread are more than the cores. `${core_time:X,H,R}`: X with a core of its own, over the same part. `${run_name:E,M,S}`: of a
    run's folder: a study's own name, else those of model and sharder. `${unique:}`: six digits that no other run has, for runs that begin
    in one second. `${calibrated:KEY,X}`, `${calibrated_core:KEY,X}`, `${calibrated_time:KEY,X}`, `${calibrated_host:KEY,X}`: what calibrate
    measured, of a core, for a rank's part of one here, of the whole machine; X where it has not (calibrated.py).
    `${table_file:FILE,dim|half_dim}`: of the tables of `model.file`, their one dimension, or half of it. `${requested_batch:X}`: samples a
    rank of the request of TorchRec's in `model.file`, else the model's `rank_batch`, else X. `${torchrun_hosts:}`,
    `${torchrun_ranks_per_host:}`: what torchrun started. `${gpus_per_node:K,R}`: R where devices are of kind cuda, none elsewhere.
    """
    resolvers = {
        "host_link_gb_s": lambda ranks_per_host, gb_s: round(ranks_per_host * gb_s, 6),
        "of_ranks": lambda ranks_per_host, figure: round(ranks_per_host * figure, 6),
        "of_host": lambda hosts, figure: None if figure is None else float(f"{figure / max(1, hosts):.6g}"),
        "local_memory_gb": lambda hosts, ranks_per_host: round(psutil.virtual_memory().total / 1e9 / max(1, hosts * ranks_per_host), 1),
        "core_share": lambda figure, hosts, ranks: float(f"{figure * calibrated.core_share(hosts * ranks):.3g}"),
        "core_time": lambda figure, hosts, ranks: float(f"{figure / calibrated.core_share(hosts * ranks):.4g}"),
        "calibrated": calibrated.figure,
        "calibrated_core": calibrated.core_figure,
        "calibrated_host": calibrated.host_figure,
        "calibrated_time": calibrated.time_figure,
        "run_name": lambda study, model, sharder: study.replace("/", "_") if study and "/" in study else f"{model}_{sharder}",
        "unique": lambda: secrets.token_hex(3),
        "table_file": lambda file, what: {"dim": dim_of_tables, "half_dim": _half_dim}[what](file),
        "requested_batch": lambda samples, *, _root_: (
            batch_of_request(OmegaConf.select(_root_, "model.file")) or (OmegaConf.select(_root_, "model.rank_batch") or samples,)
        )[0],
        "gpus_per_node": lambda kind, ranks_per_host: ranks_per_host if kind == "cuda" else None,
        "torchrun_hosts": lambda: int(os.environ.get("WORLD_SIZE", 1)) // int(os.environ.get("LOCAL_WORLD_SIZE", 1)),
        "torchrun_ranks_per_host": lambda: int(os.environ.get("LOCAL_WORLD_SIZE", 1)),
    }
    for name, resolver in resolvers.items():
        OmegaConf.register_new_resolver(name, resolver, replace=True)


def freeze(config: DictConfig) -> DictConfig:
    """`config` checked, resolved and read-only. Itself if it is. Raises UserError for anything that is wrong with it."""
    if OmegaConf.is_readonly(config):
        return config
    written: Any = OmegaConf.to_container(config, resolve=False)
    config = OmegaConf.create(written)  # a copy, apart from Hydra's own node
    try:
        OmegaConf.resolve(config)
    except (RecursionError, OmegaConfBaseException) as error:
        check_config(OmegaConf.create(written), written, resolves=False)
        raise _of_resolver(error) or _unresolved(OmegaConf.create(written)) from None
    check_config(config, written)
    check_values(config)
    OmegaConf.set_struct(config, True)
    OmegaConf.set_readonly(config, True)
    return config


def _half_dim(file: str | None) -> int:
    return max(dim_of_tables(file) // 2, 1)


def _of_resolver(error: BaseException) -> UserError | None:
    """The mistake that a resolver found, which OmegaConf wraps."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, UserError):
        cause = cause.__cause__ or cause.__context__
    return cause


def _unresolved(config: DictConfig) -> UserError:
    """Which value stands for what cannot be found, and why."""
    leaves = _flat(OmegaConf.to_container(config, resolve=False)).items()
    sizes_first = sorted(leaves, key=lambda leaf: not leaf[0].startswith(("cluster.", "launcher.")))  # others follow from them
    for key, value in sizes_first:
        if not isinstance(value, str) or "${" not in value:
            continue
        try:
            OmegaConf.select(config, key)
        except (RecursionError, OmegaConfBaseException) as error:
            loop = isinstance(error, RecursionError) or "Recursive" in str(error)
            # cluster=local is as large as the launcher, launcher=kubernetes as the cluster
            sizes = loop and key.startswith(("cluster.", "launcher."))
            remedy = "name another cluster, or give launcher.hosts and launcher.ranks_per_host" if sizes else None
            why = "it leads back to itself" if loop else str(error).splitlines()[0]
            return UserError(f"cannot be resolved ({why})", where=key, given=value, remedy=remedy)
    return UserError("cannot be resolved", where="config")


def plain(config: DictConfig) -> dict[str, Any]:
    container = OmegaConf.to_container(config, resolve=True)
    assert isinstance(container, dict)
    return container


def fingerprint(config: DictConfig) -> str:
    """Of every field that can change a result: all but those in `NOT_IDENTITY`."""
    return _digest(plain(config), NOT_IDENTITY)


def identity(config: Mapping[str, Any]) -> str:
    """The fingerprint of a run's plain `config` less what `moves` names. A run that resumes elsewhere, or for longer, is the same run."""
    return _digest(config, (*NOT_IDENTITY, *moves(config)))


def moves(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The keys that a run may resume with otherwise. Not the sharder where its towers are modules of the model."""
    sharder = config.get("sharder") or {}
    return tuple(key for key in (*MOVES, *AHEAD) if key != "sharder" or not sharder.get("tower_modules"))


def has_other_length(config: Mapping[str, Any], earlier: Mapping[str, Any]) -> bool:
    """Whether the plain `config` says otherwise than an `earlier` one how long the run trains."""
    old, new = _flat(dict(earlier)), _flat(dict(config))
    return any(old.get(key) != new.get(key) for key in LENGTH)


def _digest(config: Mapping[str, Any], apart: tuple[str, ...]) -> str:
    content = _without(config, apart)
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _without(config: Mapping[str, Any], apart: tuple[str, ...], where: str = "") -> dict[str, Any]:
    """`config` less the keys that `apart` names with their groups, such as cluster.list_price."""
    subset = {key: value for key, value in config.items() if f"{where}{key}" not in apart}
    inner = {path.partition(".")[0] for one in apart if one.startswith(where) and "." in (path := one[len(where) :])}
    return subset | {
        key: _without(subset[key], apart, f"{where}{key}.") for key in subset if key in inner and isinstance(subset[key], Mapping)
    }


def save(config: Mapping[str, Any], folder: Path) -> None:
    """Writes the plain `config` where `load` finds it, whole or not at all."""
    write_text(folder / CONFIG_FILE, OmegaConf.to_yaml(OmegaConf.create(dict(config))))


def load(folder: Path) -> DictConfig:
    """The frozen config of a run folder. Raises UserError if there is none."""
    path = folder / CONFIG_FILE
    remedy = "give the folder of a run: resume=RUN_FOLDER"
    if not path.is_file():
        raise UserError("no run to resume here", where=path, given="no config.yaml", remedy=remedy)
    try:
        config = OmegaConf.load(path)
    except Exception as error:  # yaml's own errors are many
        raise UserError(f"config.yaml cannot be read ({type(error).__name__})", where=path, remedy=remedy) from None
    if missing := [key for key in NEEDED if not isinstance(config, DictConfig) or config.get(key) is None]:
        raise UserError("not the config of a run", where=path, given=f"no {', '.join(missing)}", remedy=remedy)
    assert isinstance(config, DictConfig)
    return config


def differences(config: DictConfig, earlier: DictConfig, apart: tuple[str, ...] = ()) -> list[str]:
    """`key: old -> new` for every field of identity that differs, less those of `apart`."""
    old, new = (_flat(_without(plain(one), (*NOT_IDENTITY, *apart))) for one in (earlier, config))
    keys = sorted({*old, *new})
    return [f"{k}: {old.get(k, 'absent')} -> {new.get(k, 'absent')}" for k in keys if old.get(k) != new.get(k)]


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(value, dict) and value:
        return {k: v for key, item in value.items() for k, v in _flat(item, f"{prefix}.{key}" if prefix else str(key)).items()}
    return {prefix: value}
