"""Every option of the configs, with values that its JSON Schema refuses, and with the ends of its range."""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml
from hydra import compose, initialize_config_dir
from jsonschema import Draft202012Validator
from omegaconf import OmegaConf

from experiments.reliability.hostile import DOCUMENTED, Case
from recsys_lab.base.paths import CONF
from recsys_lab.config.json_schema import documents

#: Nothing is trained, and nothing is logged.
QUICK = ("mode=plan", "logger=none")
#: What a choice needs beside it: Kubernetes starts as many pods as the cluster has hosts.
NEEDS = {("launcher", launcher): ("cluster=h100x8",) for launcher in ("kubernetes", "skypilot")}
#: Options that a plan depends on: the ends of their ranges are tried too.
PLANNED = re.compile(r"(seed|model|cluster|data|sharder|simulate|launcher)\b")
#: Values that hardly any option has.
NUMBERS = (math.nan, math.inf, -math.inf, -1, 0, -0.5, 0.5, 1e30, -1e30, 10**20, 10**400, "nope")
WORDS = ("", "nope", "../../x", "x" * 400, " ", "a\nb", "=1+1", "é", "null!")
#: What no group is.
SHAPES = ["null", "[a]", "[]", "{a:1}", "''", "5", "1.5", "true", "${nope}", "${seed}", "[[", "'x", "é", "nope", "a,b", "../../x"]
#: What no group is built from.
TARGETS = [
    "abc",
    "''",
    "5",
    "[a]",
    "null",
    "os.system",
    "os",
    "os.path",
    "math.pi",
    "builtins.dict",
    "no.such.module",
    "recsys_lab.models.dlrm",
    "a..b",
    ".",
]
Json = dict[str, Any]


@dataclass(frozen=True)
class Option:
    """A key as a command line names it. `line`: words whose config has it. `schemas`: what is declared of it. `listed`: in a list."""

    name: str
    line: tuple[str, ...]
    schemas: tuple[Json, ...]
    definitions: Json
    listed: bool = False

    def takes(self, value: Any) -> bool:
        """Whether any of the schemas takes it. JSON has neither nan nor an infinity."""
        if isinstance(value, float) and not math.isfinite(value):
            return not self.numeric
        return any(Draft202012Validator({**self.definitions, **schema}).is_valid(value) for schema in self.schemas)

    @property
    def numeric(self) -> bool:
        return not self.takes("nope") and not self.takes(True) and any(map(self.takes, (0, 1, 0.5, *self.ends())))

    @property
    def chosen(self) -> bool:
        """Whether it is text of a few kinds."""
        return not self.takes("nope") and any("enum" in part or "pattern" in part for part in self.parts())

    def parts(self) -> Iterator[Json]:
        for schema in self.schemas:
            yield from _parts(schema, self.definitions)

    def ends(self) -> list[float]:
        """Of its ranges, those that belong to them."""
        return list(dict.fromkeys(part[key] for part in self.parts() for key in ("minimum", "maximum") if key in part))

    def bad_values(self, draw: random.Random) -> Iterator[Any]:
        """In an order that is drawn."""
        beyond = [end + step for end in self.ends() for step in (-1, 1, abs(end) / 1e6, -abs(end) / 1e6)]
        whole = [int(value) if value == round(value) else value for value in beyond]
        candidates = list(dict.fromkeys((*NUMBERS, *whole, None) if self.numeric else (*WORDS, None)))
        draw.shuffle(candidates)
        return (value for value in candidates if not self.takes(value))

    def word(self, value: Any) -> str:
        """The override that gives it `value`."""
        text = "null" if value is None else f"'{value}'" if isinstance(value, str) else str(value)
        return f"{self.name}=[{text}]" if self.listed else f"{self.name}={text}"


def options() -> list[Option]:
    """Each once, with the first line that has it."""
    whole = documents(CONF)["config.yaml"]
    definitions = {"$defs": whole.get("$defs", {})}
    by_schema: dict[tuple[str, str], Option] = {}
    for line, config in configs().items():
        for option in _leaves(config, (whole,), line, definitions):
            by_schema.setdefault((option.name, json.dumps(option.schemas)), option)
    return list(by_schema.values())


def configs() -> dict[tuple[str, ...], Json]:
    """Configs that together have every group and every `_target_`, by the words that choose them."""
    composed: dict[tuple[str, ...], Json] = {}
    seen: set[str] = set()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        for path in sorted(CONF.glob("*/*.yaml")):
            group = path.parent.name
            targets = {group, *re.findall(r"_target_: (\S+)", path.read_text(encoding="utf-8"))}
            if group != "hydra" and not targets <= seen:
                key = "profile@simulate.profile" if group == "profile" else group
                line = (f"{key}={path.stem}", *NEEDS.get((group, path.stem), ()))
                composed[line] = _plain(OmegaConf.to_container(compose("config", [*line, "mode=simulate"])))
                seen |= targets
    for path in sorted(CONF.glob("experiment/*/*.yaml")):
        study = yaml.safe_load(path.read_text(encoding="utf-8")).get("study")
        if study is not None and study["_target_"] not in seen:  # others are sweeps
            composed[f"experiment={path.parent.name}/{path.stem}",] = {"study": study}
            seen.add(study["_target_"])
    return composed


def _plain(config: Any) -> Json:
    return {key: value for key, value in config.items() if key not in ("choices", "study", "resume")}


def _leaves(node: Any, schemas: tuple[Json, ...], line: tuple[str, ...], definitions: Json, name: str = "") -> Iterator[Option]:
    if isinstance(node, dict):
        for key, value in node.items():
            below = tuple(_below(schemas, key, definitions))
            if re.fullmatch(r"\w+", key) and key != "_target_" and below:
                yield from _leaves(value, below, line, definitions, f"{name}.{key}".strip("."))
        return
    items = [part["items"] for schema in schemas for part in _parts(schema, definitions) if isinstance(part.get("items"), dict)]
    yield Option(name, line, tuple(items) or schemas, definitions, listed=bool(items))


def _below(schemas: tuple[Json, ...], key: str, definitions: Json) -> Iterator[Json]:
    """What is declared of `key` in any of them."""
    for schema in schemas:
        for part in _parts(schema, definitions):
            inner = part.get("properties", {}).get(key, part.get("additionalProperties"))
            if isinstance(inner, dict):
                yield inner


def _parts(schema: Json, definitions: Json) -> Iterator[Json]:
    """A schema, and those that it is put together from."""
    if "$ref" in schema:
        schema = {**definitions["$defs"][schema["$ref"].rpartition("/")[2]], **{key: schema[key] for key in schema if key != "$ref"}}
    yield schema
    for key in ("anyOf", "oneOf", "allOf", "then", "else"):
        for part in [schema[key]] if isinstance(schema.get(key), dict) else schema.get(key, ()):
            yield from _parts(part, definitions)


def cases(draw: random.Random) -> Iterator[Case]:
    """One bad value of each option, the ends of ranges, no group and no target; then the other bad values."""
    every = [option for option in options() if option.numeric or option.chosen]
    bad = [option.bad_values(draw) for option in every]
    yield from (_refused(option, next(values)) for option, values in zip(every, bad))
    for option in every:
        if option.numeric and not option.listed and PLANNED.match(option.name):
            ends = [end for end in option.ends() if option.takes(end)]
            for end in ends[:1] if option.name.startswith("model.") else ends:  # the largest models take minutes to count
                words = (*option.line, "mode=simulate", "logger=none", option.word(end))
                yield Case("options", f"{option.name} at an end of its range", words, DOCUMENTED)
    yield from _groups()
    later = [(option, value) for option, values in zip(every, bad) for value in values]
    draw.shuffle(later)
    yield from (_refused(option, value) for option, value in later)


def _refused(option: Option, value: object) -> Case:
    plain = not isinstance(value, str) or re.fullmatch(r"[\w./=+! -]*", value)
    named = option.name if plain else option.name.split(".")[0]
    return Case("options", f"{option.name} is not {str(value)[:40]!r}", (*option.line, *QUICK, option.word(value)), named=named)


def _groups() -> Iterator[Case]:
    for group in sorted(path.name for path in CONF.iterdir() if path.is_dir() and path.name not in ("hydra", "profile", "experiment")):
        quick = [word for word in QUICK if not word.startswith(group)]
        for shape in SHAPES:
            yield Case("options", f"{group} is no choice", (*quick, f"{group}={shape}"))
        yield Case("options", f"{group} left out", (*quick, f"~{group}"), named=group)
    for where in ("model", "sharder.planner", "sharder.executor", "sharder.towers", "cluster", "data", "launcher", "simulate.profile"):
        for target in TARGETS:
            words = (*QUICK, *(("sharder=dmt",) if where == "sharder.towers" else ()), f"{where}._target_={target}")
            yield Case("options", f"{where} has no such target", words, named=where)
