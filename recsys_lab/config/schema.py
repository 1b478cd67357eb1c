"""What each group of the config may say: the keyword-only parameters of its `_target_`, and the keys that stand beside these.

Nothing is declared twice. Pydantic holds values to the annotations (base/schema.py).
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import logging
import re
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf, open_dict
from pydantic import ValidationError

from recsys_lab.base.schema import adapter, checked, first_written, line_of, schema_of
from recsys_lab.config import absent, options
from recsys_lab.config.kinds import check_kind
from recsys_lab.errors import UserError

logging.getLogger("hydra.utils").setLevel(logging.CRITICAL)  # it logs what we raise again

#: Keys that are not a target's, by where they stand. They are in the whole config, in a group without target, or beside a target's own.
PLAIN: dict[str, type] = {
    "": options.TopLevel,
    "optimizer": options.OptimizerOptions,
    "trainer": options.TrainerOptions,
    "ablation": options.AblationOptions,
    "simulate": options.SimulateOptions,
    "sharder": options.SharderCommon,
}
BESIDE_TARGET = {"data": options.DataCommon, "study": options.StudyCommon}
#: What has a `_target_`. The cluster is as large as the launcher, or the other way round: the launcher is checked first.
TARGETS = (
    "launcher",
    "model",
    "cluster",
    "precision",
    "data",
    "logger",
    "sharder.towers",
    "sharder.planner",
    "sharder.executor",
    "simulate.profile",
    "study",
)
#: Targets that a config can do without.
MAY_LACK = ("sharder.towers", "study")
#: The keys of the parts that are put together from others.
GROUPS = ("model", "sharder", "precision", "cluster", "data", "optimizer", "trainer", "launcher", "logger")
PARTS = {"": (*GROUPS, "simulate", "ablation", "study", "choices"), "sharder": ("planner", "executor", "towers"), "simulate": ("profile",)}
#: Keys of groups that are named where one may be meant.
MOST_MEANT = 4


def check_config(config: DictConfig, written: Mapping[str, Any], resolves: bool = True) -> None:
    """Holds every group of `config` to its schema, in place: values take the schema's types.

    Args:
        config: resolved; where it does not resolve, as it is written.
        written: the same before it was resolved, plain.
        resolves: False: only what does not depend on interpolations is checked, and nothing is changed.

    Raises:
        UserError: for what is wrong. A mistake is shown where it was written before what follows from it elsewhere.
    """
    _check_parts(config)
    follows: UserError | None = None
    for where, kind in schemas_of(config):
        group = OmegaConf.select(config, where) if where else config
        of_group = functools.reduce(dict.__getitem__, where.split(".") if where else (), dict(written))
        plain: Any = OmegaConf.to_container(group, resolve=False)
        own = {key: value for key, value in plain.items() if key != "_target_" and key not in PARTS.get(where, ())}
        try:
            values = adapter(kind).dump_python(adapter(kind).validate_python(own))
        except ValidationError as error:
            if (detail := first_written(error, of_group)) is not None and (resolves or not detail["type"].startswith("missing")):
                raise _line(detail, kind, where, config) from None
            if resolves:
                follows = follows or _line(error.errors(include_url=False)[0], kind, where, config)
            continue
        if resolves:
            with open_dict(group):
                group.update({key: value for key, value in values.items() if key not in own or repr(own[key]) != repr(value)})
    if follows is not None:
        raise follows


def _line(detail: Any, kind: type, where: str, config: DictConfig) -> UserError:
    mistake = line_of(detail, kind, where, [part for part in PARTS.get(where, ()) if part != "choices"])
    if (remedy := absent.KEYS.get(str(mistake.parts["where"]))) is not None:
        return UserError(str(mistake.parts["what"]), where=mistake.parts["where"], allowed=mistake.parts["allowed"], remedy=remedy)
    is_key = mistake.parts["what"] == "no such key" and not where and len(detail["loc"]) == 1
    if is_key and (meant := _keys_named(config, str(detail["loc"][-1]))):
        near = f"did you mean {' or '.join(meant[:MOST_MEANT])}?"
        return UserError("no such key", where=mistake.parts["where"], allowed=mistake.parts["allowed"], remedy=near)
    return mistake


def _keys_named(config: DictConfig, name: str) -> list[str]:
    """Keys of groups that are called `name`. Where none is, those that have it as a word, as data.batch_size has batch."""
    nodes = [(group, node) for group, node in config.items() if isinstance(node, DictConfig) and group != "choices"]
    keys = [(f"{group}.{key}", str(key)) for group, node in nodes for key in node if key != "_target_"]
    return sorted(path for path, key in keys if key == name) or sorted(path for path, key in keys if name in key.split("_"))


def schemas_of(config: DictConfig) -> Iterator[tuple[str, type]]:
    """Where each group of `config` stands, and what declares its keys. Raises UserError for a `_target_` that is none."""
    yield from PLAIN.items()
    for where in TARGETS:
        if (group := OmegaConf.select(config, where)) is not None:
            yield where, schema_of(target_of(group.get("_target_"), where), BESIDE_TARGET.get(where))


def _check_parts(config: DictConfig) -> None:
    """Every part is there, and is a mapping."""
    for where, parts in PARTS.items():
        plain: Any = OmegaConf.to_container(OmegaConf.select(config, where) if where else config, resolve=False)
        for part in parts:
            key, value = f"{where}.{part}".strip("."), plain.get(part)
            if not isinstance(value, dict) and not (value is None and key in (*MAY_LACK, "choices")):
                given = "nothing" if value is None else str(value)[:60]
                raise UserError("a group of keys is needed", where=key, given=given, remedy=_how_to_choose(key))


def _how_to_choose(key: str) -> str:
    if key in GROUPS:
        return f"choose one: {key}=CHOICE; python run.py --help lists them"
    return f"leave {key} as it is, or set single keys of it"


def typed(group: DictConfig, kind: type) -> Any:
    """`group` as the frozen dataclass that is its schema."""
    return checked(OmegaConf.to_container(group, resolve=True), kind, "config")


def typed_keys(group: DictConfig, kind: type) -> Any:
    """The keys of `group` that the frozen dataclass `kind` has, which stand beside others, as that dataclass."""
    return typed(OmegaConf.masked_copy(group, [field.name for field in dataclasses.fields(kind) if field.name in group]), kind)


def resolved(group: DictConfig, beside: type | None = None, where: str = "config") -> Any:
    """The `_target_` of `group` with the group's keys, typed: an instance of a dataclass, else a partial without its other arguments.

    Keys of `beside` are left out.
    """
    target = target_of(group.get("_target_"), where)
    apart = {"_target_", *(field.name for field in dataclasses.fields(beside))} if beside else {"_target_"}
    keys = typed(OmegaConf.masked_copy(group, [key for key in group if key not in apart]), schema_of(target))
    if dataclasses.is_dataclass(target):
        return keys
    return functools.partial(target, **{field.name: getattr(keys, field.name) for field in dataclasses.fields(keys)})


def build(group: DictConfig, *arguments: Any, **more: Any) -> Any:
    """What the `_target_` of `group` makes of `arguments` and the group's keys, with their types. Its errors come as they are.

    (Hydra's `instantiate` wraps every error, which would hide the user's mistakes behind tracebacks of ours.)
    """
    product = resolved(group)
    return product(*arguments, **more) if isinstance(product, functools.partial) else product


def target_of(target: Any, where: str) -> Callable:
    """What `_target_` names. Raises UserError for what is not there, or cannot be called."""
    remedy = "name the function that builds it, as the other choices do"
    if not isinstance(target, str) or not target:
        raise UserError("a `_target_` is needed", where=where, given=str(target)[:60] if target else "none", remedy=remedy)
    try:
        callee = get_object(target)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        missing = re.search(r"No module named '(\w+)", str(error))
        if missing and missing[1] != "recsys_lab" and not target.startswith(f"{missing[1]}."):
            remedy = f"install {missing[1]}, or choose another {where}"
        if missing and target.startswith(f"{missing[1]}.") and (Path(f"{missing[1]}.py").is_file() or Path(missing[1]).is_dir()):
            remedy = f"{missing[1]} lies in this folder, in which Python does not look: put PYTHONPATH=. before the command"
        if "fbgemm" in str(error):  # its build for CUDA is on a CPU machine, or is not of this torch
            remedy = "python -m recsys_lab doctor says which packages do not belong together, and what to do"
        raise UserError(f"`_target_` cannot be imported ({error})", where=f"{where}._target_", given=target, remedy=remedy) from None
    if not inspect.isfunction(callee) and not inspect.isclass(callee):
        raise UserError("`_target_` is no class and no function", where=f"{where}._target_", given=target, remedy=remedy)
    check_kind(callee, where, target)
    return typing.cast(Callable, callee)
