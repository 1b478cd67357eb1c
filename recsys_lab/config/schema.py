"""The typed schema of a config group is the keyword-only signature of its `_target_`. Nothing is written twice."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import logging
import typing
from collections.abc import Callable
from typing import Any

from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from recsys_lab.config import options
from recsys_lab.errors import UserError, did_you_mean

logging.getLogger("hydra.utils").setLevel(logging.CRITICAL)  # it logs what we raise again

#: Groups without a `_target_`, and keys that a group has beside its target's.
PLAIN = {"optimizer": options.OptimizerOptions, "trainer": options.TrainerOptions, "ablation": options.AblationOptions}
BESIDE_TARGET = {"data": options.DataCommon, "study": options.StudyCommon}
#: Where a target is found inside its group.
TARGETS = (
    "model",
    "cluster",
    "precision",
    "data",
    "launcher",
    "logger",
    "sharder.towers",
    "sharder.planner",
    "sharder.executor",
    "simulate.profile",
    "study",
)
#: The keys of the parts that are put together from others.
GROUPS = ("model", "sharder", "precision", "cluster", "data", "optimizer", "trainer", "launcher", "logger")
KEYS = {
    "": {*GROUPS, "simulate", "ablation", "study", "choices", *(field.name for field in dataclasses.fields(options.TopLevel))},
    "sharder": {"planner", "executor", "towers", "tower_modules"},
    "simulate": {"batch_size", "hot_rows", "profile"},
}


@functools.cache
def schema_of(target: Callable, beside: type | None = None) -> type:
    """A dataclass with the keyword-only parameters of `target` (or its fields, if it is a dataclass) and those of `beside`."""
    if dataclasses.is_dataclass(target):
        return typing.cast(type, target)
    hints = typing.get_type_hints(target.__init__ if inspect.isclass(target) else target)
    fields: list[Any] = [(f.name, typing.get_type_hints(beside)[f.name]) for f in dataclasses.fields(beside)] if beside else []
    for name, parameter in inspect.signature(target).parameters.items():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            default: dict[str, Any] = {}
            if parameter.default is not inspect.Parameter.empty:
                default["default_factory"] = lambda value=parameter.default: value
            fields.append((name, hints[name], dataclasses.field(**default)))
    return dataclasses.make_dataclass(f"{target.__name__}Keys", fields, kw_only=True)


def check_group(group: DictConfig, schema: type, where: str) -> DictConfig:
    """`group` with the schema's types. Raises UserError for an unknown key, a wrong type or a missing value."""
    given = {key: group._get_node(key) for key in group if key != "_target_"}
    typed = _writable(OmegaConf.structured(schema))
    try:
        checked = OmegaConf.merge(typed, given)
        missing = OmegaConf.missing_keys(checked)
    except (ConfigKeyError, ConfigAttributeError) as error:
        raise unknown_key(f"{where}.{error.full_key}", error) from None
    except OmegaConfBaseException as error:
        key = error.full_key or ""
        raise UserError(
            "wrong type",
            where=f"{where}.{key}".strip("."),
            given=repr(OmegaConf.select(group, key, throw_on_resolution_failure=False)) if key else None,
            allowed=_allowed(error, schema, key),
        ) from None
    if missing:
        raise UserError(
            "a value is needed", where=f"{where}.{sorted(missing)[0]}", given="nothing", remedy=f"set {where}.{sorted(missing)[0]}=..."
        )
    return typing.cast(DictConfig, checked)


def typed(group: DictConfig, schema: type) -> Any:
    """`group` as the frozen dataclass that is its schema."""
    return OmegaConf.to_object(OmegaConf.merge(_writable(OmegaConf.structured(schema)), group))


def resolved(group: DictConfig, beside: type | None = None) -> Any:
    """The `_target_` of `group` with the group's keys, typed: an instance of a dataclass, else a partial without its other arguments.

    Keys of `beside` are left out.
    """
    target = _resolve(group.get("_target_"), "config")
    apart = {"_target_", *(field.name for field in dataclasses.fields(beside))} if beside else {"_target_"}
    keys = typed(OmegaConf.masked_copy(group, [key for key in group if key not in apart]), schema_of(target))
    if dataclasses.is_dataclass(target):
        return keys
    return functools.partial(target, **{field.name: getattr(keys, field.name) for field in dataclasses.fields(keys)})


def build(group: DictConfig, *given: Any, **more: Any) -> Any:
    """What the `_target_` of `group` makes of `given` and the group's keys, with their types. Its errors come as they are.

    (Hydra's `instantiate` wraps every error, which would hide the user's mistakes behind tracebacks of ours.)
    """
    made = resolved(group)
    return made(*given, **more) if isinstance(made, functools.partial) else made


def _writable(node: Any) -> Any:
    """Frozen dataclasses become read-only nodes, which nothing can be merged into."""
    if isinstance(node, DictConfig):
        OmegaConf.set_readonly(node, None)
        if not node._is_missing() and not node._is_none():
            for key in node:
                _writable(node._get_node(key))
    return node


def unknown_key(where: str, error: OmegaConfBaseException | None = None, allowed: list[str] | None = None) -> UserError:
    """The error for a key that does not exist, with the nearest one that does."""
    if allowed is None:
        known = getattr(error, "object_type", None)
        allowed = [f.name for f in dataclasses.fields(known)] if known is not None and dataclasses.is_dataclass(known) else []
    return UserError("no such key", where=where, allowed=", ".join(allowed) or None, remedy=did_you_mean(where.rsplit(".", 1)[-1], allowed))


def _allowed(error: OmegaConfBaseException, schema: type, key: str) -> str:
    expected: Any = schema
    for part in key.split("."):
        part = part.split("[")[0]
        if dataclasses.is_dataclass(expected) and part:
            expected = typing.get_type_hints(expected).get(part, expected)
    return getattr(expected, "__name__", str(expected)) if not typing.get_args(expected) else str(expected)


def check_config(config: DictConfig) -> None:
    """Every group of `config` against its schema, in place: values take the schema's types."""
    for where, allowed in KEYS.items():
        node = OmegaConf.select(config, where) if where else config
        for key in node:
            if key not in allowed:
                raise unknown_key(f"{where}.{key}".strip("."), allowed=sorted(allowed))
    top = OmegaConf.masked_copy(config, ["seed", "mode", "resume"])
    config.merge_with(check_group(top, options.TopLevel, ""))
    config.simulate.merge_with(
        check_group(OmegaConf.masked_copy(config.simulate, ["batch_size", "hot_rows"]), options.SimulateOptions, "simulate")
    )
    for where, schema in PLAIN.items():
        _replace(config, where, check_group(config[where], schema, where))
    for where in TARGETS:
        group = OmegaConf.select(config, where)
        if group is None:
            continue
        target = OmegaConf.select(group, "_target_")
        checked = check_group(group, schema_of(_resolve(target, where), BESIDE_TARGET.get(where)), where)
        _replace(config, where, checked, target)


def _resolve(target: str | None, where: str) -> Callable:
    if not target:
        raise UserError(
            "a `_target_` is needed", where=where, given="none", remedy="name the function that builds it, as the other choices do"
        )
    try:
        return get_object(target)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"`_target_` cannot be imported ({error})", where=where, given=target) from None


def _replace(config: DictConfig, where: str, checked: DictConfig, target: str | None = None) -> None:
    plain = OmegaConf.to_container(checked, resolve=False, enum_to_str=True)
    assert isinstance(plain, dict)
    OmegaConf.update(config, where, {"_target_": target, **plain} if target else plain, merge=False, force_add=True)


__all__ = ["build", "check_config", "check_group", "resolved", "schema_of", "typed", "unknown_key"]
