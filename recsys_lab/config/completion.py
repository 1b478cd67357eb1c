"""Completes a command line of run.py: groups, choices, keys and values. They are read from the YAML files alone.

A shell waits for it, so neither Hydra nor torch is imported: Hydra's own completion takes seconds, since it imports its plugins.
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from recsys_lab.base.ranges import OneOf
from recsys_lab.base.schema import hints_of
from recsys_lab.config import options
from recsys_lab.config.yaml_comments import GROUPS, comments, is_global, loaded

#: How a group is chosen, and where its keys stand, if not by its name.
CHOSEN_AS = {"profile": "profile@simulate.profile"}
#: The typed options without a `_target_`: their annotations import nothing that takes time.
TYPED = {
    "": options.TopLevel,
    "optimizer": options.OptimizerOptions,
    "trainer": options.TrainerOptions,
    "ablation": options.AblationOptions,
    "simulate": options.SimulateOptions,
    "sharder": options.SharderCommon,
    "sharder.executor": options.ExecutorOptions,
}
_NAMES = re.compile(r"^[\w-]+( \| [\w-]+)+")


def offered(confs: Iterable[Path], words: Iterable[str], word: str) -> list[str]:
    """Whole words that begin with `word`. What goes on after one ends in `=`, `.` or `/`.

    Args:
        confs: folders with groups: the built-in one first, then the user's own.
        words: what stands before it: choices there decide which keys there are.
        word: the beginning, such as "model=d", "sharder.", "seed" or "model=dcn,".
    """
    confs = tuple(confs)
    key, equals, value = word.partition("=")
    if not equals:
        return sorted(name for name in _names(confs, words, word) if name.startswith(word))
    head, comma, _ = value.rpartition(",")
    group = next((name for name in GROUPS if CHOSEN_AS.get(name, name) == key), None)
    values = choices(confs, group) if group else _values(confs, words, key)
    return sorted(text for each in values if (text := f"{key}={head}{comma}{each}").startswith(word))


def choices(confs: Iterable[Path], group: str) -> list[str]:
    """Of a group, those in its folders too where these are choices: dmt/table2 of experiment."""
    files = [(path, conf / group) for conf in confs for path in (conf / group).glob("**/*.yaml" if group == "experiment" else "*.yaml")]
    return sorted({path.relative_to(root).with_suffix("").as_posix() for path, root in files})


def _names(confs: tuple[Path, ...], words: Iterable[str], word: str) -> Iterator[str]:
    """Of groups and keys, up to the points of `word`."""
    parent = word.rpartition(".")[0]
    if not parent:
        yield from (f"{CHOSEN_AS.get(group, group)}=" for group in GROUPS)
    node: Any = _config(confs, words)
    for part in parent.split(".") if parent else ():
        node = node.get(part) if isinstance(node, Mapping) else None
    for key, value in ((key, node[key]) for key in (node if isinstance(node, Mapping) else ()) if key != "_target_"):
        yield f"{parent}.{key}".strip(".") + ("." if isinstance(value, Mapping) and value else "=")


def _config(confs: tuple[Path, ...], words: Iterable[str]) -> dict[str, Any]:
    """The keys of the config that `words` choose. Values are as they are written."""
    overrides = dict(word.split("=", 1) for word in words if "=" in word)
    config: dict[str, Any] = loaded(confs[0] / "config.yaml")
    defaults = config.pop("defaults")
    for path, at, place in (entry.partition("@") for entry in defaults if isinstance(entry, str)):
        config |= {place: loaded(confs[0] / f"{path}.yaml")} if at else {}
    groups = [entry for entry in defaults if isinstance(entry, dict) and next(iter(entry)).partition("@")[0] in GROUPS]
    selection = {name: str(overrides.get(name, default)).split(",")[0] for entry in groups for name, default in entry.items()}
    for name, choice in list(selection.items()):
        selection |= {other: side_choice for other, side_choice in _side_choices(confs, name, choice).items() if other not in overrides}
    for name, choice in selection.items():
        group, _, place = name.partition("@")
        *outer, last = (place or group).split(".")
        parent = config
        for part in outer:
            parent = parent.setdefault(part, {})
        if group != "experiment":
            parent[last] = _merged(parent.get(last, {}), _choice(confs, group, choice, group))
    return {key: value for key, value in config.items() if key != "hydra"}


def _side_choices(confs: tuple[Path, ...], name: str, choice: str) -> dict[str, str]:
    """What a choice brings of other groups: `override /profile@_global_.simulate.profile: local` of its defaults."""
    group = name.partition("@")[0]
    path = _file(confs, group, choice)
    entries = _mapping(path)["defaults"]
    over = [(key, value) for entry in entries if isinstance(entry, dict) for key, value in entry.items() if key.startswith("override /")]
    by_group = {key.removeprefix("override /").partition("@")[0]: str(value) for key, value in over}
    return {CHOSEN_AS.get(other, other): value for other, value in by_group.items() if other in GROUPS}


def _file(confs: tuple[Path, ...], folder: str, choice: str) -> Path | None:
    return next((path for conf in reversed(confs) if (path := conf / folder / f"{choice}.yaml").is_file()), None)


def _mapping(path: Path | None) -> dict[str, Any]:
    """What a choice says, with a list of defaults. Empty where it is no file, or no mapping."""
    found = None if path is None else loaded(path)
    said = dict(found) if isinstance(found, dict) else {}
    return said | {"defaults": said["defaults"] if isinstance(said.get("defaults"), list) else []}


def _choice(confs: tuple[Path, ...], folder: str, choice: str, group: str, within: tuple[Path, ...] = ()) -> dict[str, Any]:
    """The keys of a choice with those that it takes from others. None where there is no such file. `within`: those that take it."""
    path = _file(confs, folder, choice)
    if path in within:
        return {}  # it takes itself
    own, within = _mapping(path), (*within, *([path] if path else []))
    found: dict[str, Any] = {}
    for entry in own.pop("defaults"):
        if isinstance(entry, str) and entry != "_self_":
            found = _merged(found, _choice(confs, folder, entry, group, within))
        for name, part in entry.items() if isinstance(entry, dict) else ():
            inner, at, place = name.partition("@")
            if at and " " not in inner and "_global_" not in place:
                found[place] = _merged(found.get(place, {}), _choice(confs, f"{folder}/{inner}", str(part), group, within))
    own = own.get(group, {}) if path and is_global(path) else own
    return _merged(found, own)


def _merged(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    def one(key: str) -> Any:
        old, new = lower.get(key), upper.get(key, lower.get(key))
        return _merged(old, new) if isinstance(old, Mapping) and isinstance(new, Mapping) else new

    return {key: one(key) for key in {**lower, **upper}}


def _values(confs: tuple[Path, ...], words: Iterable[str], key: str) -> list[str]:
    """Those that a key declares, or its comment lists. Else the one that it has."""
    for place, kind in TYPED.items():
        if key.startswith(f"{place}.".lstrip(".")) and (names := _declared(kind, key.removeprefix(place).strip(".").split("."))):
            return names
    value: Any = _config(confs, words)
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    if isinstance(value, bool):
        return ["false", "true"]
    group, _, inner = key.partition(".")
    files = [path for conf in confs for path in (conf / group).glob("*.yaml")]
    listed = next((match[0] for path in files if (match := _NAMES.match(comments(path).get(inner, "")))), None)
    if listed:
        return listed.split(" | ")
    return [str(value)] if isinstance(value, (int, float, str)) and "${" not in str(value) else []


def _declared(kind: Any, parts: list[str]) -> list[str]:
    """The names that a field of the dataclass `kind` can be. None where it declares none."""
    for depth, part in enumerate(parts):
        hint = hints_of(kind).get(part)
        inner = [each for each in typing.get_args(hint) if each is not types.NoneType]
        hint = inner[0] if typing.get_origin(hint) in (typing.Union, types.UnionType) else hint
        if depth + 1 < len(parts):
            if not dataclasses.is_dataclass(hint):
                return []
            kind = hint
        elif hint is bool:
            return ["false", "true"]
        else:
            return [str(name) for rule in typing.get_args(hint) if isinstance(rule, OneOf) for name in rule.choices]
    return []
