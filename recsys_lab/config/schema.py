"""The typed schema of a config group is the keyword-only signature of its `_target_`. Nothing is written twice.

What a value can be stands in the annotations too (recsys_lab/base/ranges.py), and is checked here.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import logging
import re
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.utils import get_object
from omegaconf import Container, DictConfig, OmegaConf, open_dict
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from recsys_lab.base.ranges import check_fields, hints_of
from recsys_lab.config import options
from recsys_lab.config.kinds import check_kind
from recsys_lab.errors import UserError, did_you_mean

#: Characters of a value that an error shows.
MOST_SHOWN = 400
#: What was accepted in this process, by schema, place and text. The configs of a sweep have most groups in common.
_ACCEPTED: dict[tuple[type, str, bool, str], Mapping[str, Any]] = {}
MOST_ACCEPTED = 4096
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


@functools.cache
def schema_of(target: Callable, beside: type | None = None) -> type:
    """A dataclass with the keyword-only parameters of `target` (or its fields, if it is a dataclass) and those of `beside`.

    Annotations keep what they declare.
    """
    if dataclasses.is_dataclass(target):
        return typing.cast(type, target)
    hints = _hints_of_keys(target.__init__ if inspect.isclass(target) else target)
    fields: list[Any] = list(hints_of(beside).items()) if beside else []
    for name, parameter in inspect.signature(target).parameters.items():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            default: dict[str, Any] = {}
            if parameter.default is not inspect.Parameter.empty:
                default["default_factory"] = lambda value=parameter.default: value
            fields.append((name, hints.get(name, Any), dataclasses.field(**default)))
    return dataclasses.make_dataclass(f"{target.__name__}Keys", fields, kw_only=True)


def _hints_of_keys(function: Any) -> dict[str, Any]:
    """What its keyword-only parameters declare. Other parameters may name types that only a type checker imports."""
    keys = {parameter.name for parameter in inspect.signature(function).parameters.values() if parameter.kind is parameter.KEYWORD_ONLY}
    own = {name: hint for name, hint in getattr(function, "__annotations__", {}).items() if name in keys}
    names = getattr(inspect.unwrap(function), "__globals__", {})
    return typing.get_type_hints(types.SimpleNamespace(__annotations__=own), names, include_extras=True)


def check_group(group: Mapping[str, Any], schema: type, where: str, whole: bool = True) -> Mapping[str, Any]:
    """`group`, plain and unresolved, with the schema's types. If it is `whole`, no value may be missing.

    Raises UserError for an unknown key, a wrong type, a missing value, and one out of its range.
    """
    key = (schema, where, whole, repr(group))
    if key not in _ACCEPTED:
        if len(_ACCEPTED) >= MOST_ACCEPTED:
            _ACCEPTED.clear()
        _ACCEPTED[key] = _checked(OmegaConf.create(dict(group)), schema, where, whole)
    return _ACCEPTED[key]


def _checked(group: DictConfig, schema: type, where: str, whole: bool) -> Mapping[str, Any]:
    nodes = {key: group._get_node(key) for key in group if key != "_target_"}
    try:
        checked = OmegaConf.merge(_structure(schema), nodes)
        missing = OmegaConf.missing_keys(checked)
    except OverflowError:
        key = next((key for key, value in leaves(group) if isinstance(value, int) and abs(value) > sys.float_info.max), "")
        raise UserError("a number is too large", where=f"{where}.{key}".strip("."), allowed="numbers below 1e308") from None
    except (ConfigKeyError, ConfigAttributeError) as error:
        declared = error.object_type if dataclasses.is_dataclass(error.object_type) else None
        names = [*hints_of(typing.cast(type, declared)), *PARTS.get(where, ())] if declared else []
        raise unknown_key(f"{where}.{error.full_key}".strip("."), names) from None
    except OmegaConfBaseException as error:
        key = error.full_key or ""
        raise UserError(
            "wrong type",
            where=f"{where}.{key}".strip("."),
            given=_short(OmegaConf.select(group, key, throw_on_resolution_failure=False)) if key else None,
            allowed=_allowed(error, schema, key),
        ) from None
    if missing and whole:
        raise UserError(
            "a value is needed", where=(key := f"{where}.{sorted(missing)[0]}".strip(".")), given="nothing", remedy=f"set {key}=..."
        )
    values = OmegaConf.to_container(checked, resolve=False)
    for name in missing:
        _leave_out(values, name.split("."))
    check_fields({key: values[key] for key in values if key in group}, where, schema)
    return typing.cast(Mapping[str, Any], OmegaConf.to_container(checked, enum_to_str=True))


def _leave_out(tree: Any, path: Sequence[str]) -> None:
    for part in path[:-1]:
        tree = tree[part]
    del tree[path[-1]]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]} ..."


def typed(group: DictConfig, schema: type) -> Any:
    """`group` as the frozen dataclass that is its schema."""
    return OmegaConf.to_object(OmegaConf.merge(_structure(schema), group))


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


@functools.cache
def _structure(schema: type) -> DictConfig:
    """The node that `schema` declares. A merge copies it."""
    return typing.cast(DictConfig, _writable(OmegaConf.structured(schema)))


def _writable(node: Any) -> Any:
    """Frozen dataclasses become read-only nodes, which nothing can be merged into."""
    if isinstance(node, DictConfig):
        OmegaConf.set_readonly(node, None)
        if not node._is_missing() and not node._is_none():
            for key in node:
                _writable(node._get_node(key))
    return node


#: Keys of groups that are named where one may be meant.
MOST_MEANT = 4


def unknown_key(where: str, allowed: Sequence[str], meant: Sequence[str] = ()) -> UserError:
    """The error for a key that does not exist, with those that may be `meant`, or the nearest one that does."""
    near = f"did you mean {' or '.join(meant[:MOST_MEANT])}?" if meant else None
    remedy = near or did_you_mean(where.rsplit(".", 1)[-1], allowed)
    return UserError("no such key", where=where or "an empty key", allowed=", ".join(allowed) or None, remedy=remedy)


def _allowed(error: OmegaConfBaseException, schema: type, key: str) -> str:
    expected: Any = schema
    for part in key.split("."):
        part = part.split("[")[0]
        if dataclasses.is_dataclass(expected) and part:
            expected = typing.get_type_hints(expected).get(part, expected)
    if dataclasses.is_dataclass(expected):
        return f"keys {', '.join(field.name for field in dataclasses.fields(expected))}"
    if typing.get_origin(expected) in (typing.Union, types.UnionType):
        return " or ".join("null" if kind is types.NoneType else _name(kind) for kind in typing.get_args(expected))
    return _name(expected)


def _name(kind: Any) -> str:
    return str(kind) if typing.get_args(kind) else getattr(kind, "__name__", str(kind))


def check_unresolved(config: DictConfig) -> None:
    """What `config` says itself, before interpolations are resolved: so that a mistake is found where it was made."""
    _check_parts(config)
    for where, schema in schemas_of(config):
        values = {key: value for key, value in _own_keys(config, where).items() if not _interpolates(value)}
        check_group(values, schema, where, whole=False)


def check_config(config: DictConfig) -> None:
    """Every group of the resolved `config` against its schema, in place: values take the schema's types. UserError for what is wrong."""
    _check_parts(config)
    for where, schema in schemas_of(config):
        own = _own_keys(config, where)
        checked = check_group(own, schema, where)
        group = OmegaConf.select(config, where) if where else config
        with open_dict(group):
            group.update({key: value for key, value in checked.items() if key not in own or repr(own[key]) != repr(value)})


def _own_keys(config: DictConfig, where: str) -> dict[str, Any]:
    """The group's keys but those of its parts, plain and unresolved."""
    group = OmegaConf.select(config, where) if where else config
    return {key: _plain(group._get_node(key)) for key in group if key not in PARTS.get(where, ())}


def _interpolates(node: Any) -> bool:
    """Whether there is an interpolation anywhere in it."""
    return any(isinstance(value, str) and "${" in value for _, value in leaves(node))


def schemas_of(config: DictConfig) -> Iterator[tuple[str, type]]:
    """Where each group of `config` stands, and what declares its keys. Raises UserError for a `_target_` that is none."""
    yield from PLAIN.items()
    for where in TARGETS:
        if (group := OmegaConf.select(config, where)) is not None:
            yield where, schema_of(target_of(group.get("_target_"), where), BESIDE_TARGET.get(where))


def _check_parts(config: DictConfig) -> None:
    """Every part is there, and is a mapping."""
    for where, parts in PARTS.items():
        node = OmegaConf.select(config, where) if where else config
        for part in parts:
            key = f"{where}.{part}".strip(".")
            raw = node._get_node(part) if part in node else None
            absent = raw is None or raw._is_none()
            if absent and (key in MAY_LACK or key == "choices"):
                continue
            if absent or not isinstance(raw, DictConfig) or raw._is_interpolation():
                given = "nothing" if raw is None or absent else _short(_plain(raw))
                raise UserError("a group of keys is needed", where=key, given=given, remedy=_how_to_choose(key))


def _how_to_choose(key: str) -> str:
    return (
        f"choose one: {key}=CHOICE; python run.py --help lists them" if key in GROUPS else f"leave {key} as it is, or set single keys of it"
    )


def target_of(target: Any, where: str) -> Callable:
    """What `_target_` names. Raises UserError for what is not there, or cannot be called."""
    remedy = "name the function that builds it, as the other choices do"
    if not isinstance(target, str) or not target:
        raise UserError("a `_target_` is needed", where=where, given=_short(target) if target else "none", remedy=remedy)
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


def _plain(node: Any) -> Any:
    """The value of a node, interpolations as they are written."""
    return OmegaConf.to_container(node, resolve=False) if isinstance(node, Container) and not node._is_interpolation() else node._value()


def leaves(node: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    """The key of every value inside `node` and the value, interpolations as they are written."""
    plain = OmegaConf.to_container(node, resolve=False) if isinstance(node, Container) else node
    inner = plain.items() if isinstance(plain, dict) else enumerate(plain) if isinstance(plain, list) else None
    if inner is None:
        yield where, plain
        return
    for key, value in inner:
        yield from leaves(value, f"{where}[{key}]" if isinstance(plain, list) else f"{where}.{key}".strip("."))


__all__ = ["build", "check_config", "check_group", "resolved", "schema_of", "schemas_of", "typed", "unknown_key"]
