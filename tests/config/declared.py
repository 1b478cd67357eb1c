"""Every option that a config declares, found from its schemas, and values that none of them can have."""

from __future__ import annotations

import dataclasses
import math
import re
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from omegaconf import DictConfig, OmegaConf

from recsys_lab.base.ranges import OneOf, Range, Rule, Text
from recsys_lab.base.schema import hints_of
from recsys_lab.config.command_line import CONF, read
from recsys_lab.config.schema import BESIDE_TARGET, schema_of, schemas_of, target_of

#: What a choice needs beside it: Kubernetes starts as many pods as the cluster has hosts, cluster=local as many as the launcher.
NEEDS = {("launcher", launcher): ("cluster=h100x8",) for launcher in ("kubernetes", "skypilot")}
#: Groups whose choices are put elsewhere, and those that are no part of a run of their own.
CHOSEN_AS, OTHERS = {"profile": "profile@simulate.profile"}, ("hydra",)
#: Values that hardly any option has.
NUMBERS = (math.nan, math.inf, -math.inf, -1, 0, -0.5, 0.5, 1e30, -1e30, 10**20, 10**400)
WORDS = ("", "nope", "../../x", "x" * 400, " ", "a\nb", "=1+1", "é", "null!")


@dataclasses.dataclass(frozen=True)
class Option:
    """A key as a command line names it. `inner`: the keys of its group that lead to it, 0 for the first item of a list.

    `base`: its type, `rule`: what it declares, None where it declares nothing. `null`: whether it can be null.
    """

    where: str
    inner: tuple[str | int, ...]
    schema: type
    base: Any
    rule: Rule | None
    null: bool
    line: tuple[str, ...]

    @property
    def name(self) -> str:
        return ".".join([self.where, *(str(part) for part in self.inner if isinstance(part, str))]).strip(".")

    @property
    def numeric(self) -> bool:
        return self.base in (int, float)

    def takes(self, value: Any) -> bool:
        """Whether `value` is declared. A number where text is asked for becomes text."""
        if value is None:
            return self.null
        if self.base is int and (isinstance(value, float | bool)):
            return False
        if self.base is float and isinstance(value, int) and abs(value) > 1e300:
            return False
        if self.base in (int, float) and isinstance(value, str):
            return False
        return self.rule is None or self.rule.has(value)

    def bad_values(self) -> list[Any]:
        """Out of its range, each end of it included, and of a wrong kind."""
        candidates: list[Any] = [*NUMBERS, *_beyond(self.rule), "nope"] if self.numeric else list(WORDS) if self.base is str else []
        return [value for value in dict.fromkeys(candidates) if not self.takes(value)] + ([] if self.null else [None])

    def word(self, value: Any) -> str:
        """The override that gives it `value`."""
        said = "null" if value is None else f"'{value}'" if isinstance(value, str) else str(value)
        return f"{self.name}={'[' if 0 in self.inner else ''}{said}{']' if 0 in self.inner else ''}"

    def in_group(self, value: Any) -> DictConfig:
        """A group that holds nothing but this option."""
        made = value
        for part in reversed(self.inner):
            made = [made] if part == 0 else {part: made}
        return OmegaConf.create(made)


def _beyond(rule: Rule | None) -> list[float]:
    if not isinstance(rule, Range):
        return []
    ends = [rule.above, rule.below, rule.least - 1, rule.most + 1, rule.least - abs(rule.least) / 1e6, rule.most + abs(rule.most) / 1e6]
    return [int(end) if end == round(end) else end for end in ends if abs(end) != math.inf]


def lines() -> list[tuple[str, ...]]:
    """Command lines that together have every group of conf/ and every `_target_`, but those of studies."""
    made, seen = [], set()
    for path in sorted(CONF.glob("*/*.yaml")):
        group, choice = path.parent.name, path.stem
        targets = {group, *re.findall(r"_target_: (\S+)", path.read_text(encoding="utf-8"))}
        if group not in OTHERS and not targets <= seen:
            made.append((f"{CHOSEN_AS.get(group, group)}={choice}", *NEEDS.get((group, choice), ())))
            seen |= targets
    return made


def studies() -> dict[str, DictConfig]:
    """The study of each experiment that has one, by its name, once for each function."""
    found: dict[str, tuple[str, DictConfig]] = {}
    for path in sorted(CONF.glob("experiment/*/*.yaml")):
        study = OmegaConf.load(path).study
        found.setdefault(study._target_, (f"{path.parent.name}/{path.stem}", study))
    return dict(found.values())


def configs() -> dict[tuple[str, ...], DictConfig]:
    """What each of `lines()` means."""
    return {line: typing.cast(DictConfig, read(["mode=simulate", *line]).config) for line in lines()}


def options(of: Mapping[tuple[str, ...], DictConfig]) -> list[Option]:
    """Every option of the configs `of` command lines and of `studies()`, once for each schema that declares it."""
    found: dict[tuple[type, str, tuple[str | int, ...]], Option] = {}
    for line, config in of.items():
        for option in options_of(config, line):
            found.setdefault((option.schema, option.where, option.inner), option)
    for name, study in studies().items():
        schema = schema_of(target_of(study._target_, "study"), BESIDE_TARGET["study"])
        for option in of_group("study", schema, OmegaConf.to_container(study), (f"experiment={name}",)):
            found[option.schema, option.where, option.inner] = option
    return list(found.values())


def options_of(config: DictConfig, line: tuple[str, ...] = ()) -> Iterator[Option]:
    for where, schema in schemas_of(config):
        yield from of_group(where, schema, OmegaConf.to_container(OmegaConf.select(config, where) if where else config), line)


def of_group(where: str, schema: type, group: Any, line: tuple[str, ...] = ()) -> Iterator[Option]:
    """Of one schema. `group`: a value of it, which says what keys its free mappings have."""
    for inner, hint in _leaves(schema, group):
        yield _option(where, inner, schema, hint, line)


def _leaves(hint: Any, value: Any, inner: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """The declared leaves, of mappings those of the keys that `value` has."""
    kinds = [kind for kind in typing.get_args(hint) if kind is not types.NoneType]
    null = types.NoneType in typing.get_args(hint)
    if null and typing.get_origin(hint) is not Annotated and not _is_leaf(kinds[0]):
        yield from _leaves(kinds[0], value, inner)
    elif dataclasses.is_dataclass(hint):
        for name, own in hints_of(typing.cast(type, hint)).items():
            yield from _leaves(own, (value or {}).get(name), (*inner, name))
    elif typing.get_origin(hint) is list:
        yield from _leaves(kinds[0], value[0] if value else None, (*inner, 0))
    elif typing.get_origin(hint) is dict:
        for key, item in (value or {}).items():
            yield from _leaves(kinds[1], item, (*inner, key))
    else:
        yield inner, hint


def _is_leaf(hint: Any) -> bool:
    return not dataclasses.is_dataclass(hint) and typing.get_origin(hint) not in (list, dict)


def _option(where: str, inner: tuple[str | int, ...], schema: type, hint: Any, line: tuple[str, ...]) -> Option:
    null = hint is not Any and types.NoneType in typing.get_args(hint)
    kind = next(kind for kind in typing.get_args(hint) if kind is not types.NoneType) if null else hint
    base, *declared = typing.get_args(kind) if typing.get_origin(kind) is Annotated else (kind,)
    rule = next((part for part in declared if isinstance(part, Range | OneOf | Text)), None)
    return Option(where, inner, schema, base, rule, null, line)
