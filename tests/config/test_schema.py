"""What options declare, and how a value that is not so is refused. The cases are made from the declarations."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields
from functools import cache
from typing import Annotated, Any, Literal

import pytest
import yaml
from annotated_types import Interval
from omegaconf import DictConfig, OmegaConf
from pydantic import Strict, ValidationError

from recsys_lab.base.paths import CONF
from recsys_lab.base.ranges import Count, Positive
from recsys_lab.base.schema import adapter, alternatives, check_fields, checked, json_schema, schema_of
from recsys_lab.config.choices import composed as choice
from recsys_lab.config.command_line import read
from recsys_lab.config.kinds import BASES
from recsys_lab.config.options import ExecutorOptions, SharderCommon
from recsys_lab.config.schema import BESIDE_TARGET, PARTS, PLAIN, schemas_of, target_of
from recsys_lab.errors import UserError

GROUPS = ("model", "sharder", "precision", "cluster", "data", "launcher", "logger")


@dataclass(frozen=True)
class Part:
    needed: Count
    rate: Positive = 0.5
    name: Literal["a", "b"] = "a"

    def __post_init__(self) -> None:
        check_fields(self, "part")


@cache
def nodes() -> dict[tuple[str, type], dict[str, Any]]:
    """By place and schema, the plain keys of a group of every choice on file, resolved. A target is read once."""
    every: dict[tuple[str, type], dict[str, Any]] = {}
    seen: set[str] = set()
    for group in GROUPS:
        for path in sorted((CONF / group).glob("*.yaml")):
            if path.stem.startswith("tables") or (group == "launcher" and path.stem in ("slurm", "kubernetes", "skypilot")):
                continue  # these want a file, or a cluster beside them
            targets = set(re.findall(r"_target_: (.+)", path.read_text()))
            if targets <= seen:  # none of its own: it is made of another choice
                continue
            seen |= targets
            config = read([f"{group}={path.stem}"]).config
            for where, kind in schemas_of(config):
                node = OmegaConf.select(config, where) if where else config
                plain: Any = OmegaConf.to_container(node)
                every.setdefault((where, kind), {k: v for k, v in plain.items() if k != "_target_" and k not in PARTS.get(where, ())})
    return every


def numbers(node: Any, root: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """(path, what is declared) of each number that a mapping, or a list in it, may hold."""
    for one in alternatives(node, root):
        if one.get("type") in ("integer", "number"):
            yield path, dict(one)
        for name, inner in one.get("properties", {}).items():
            yield from numbers(inner, root, (*path, name))
        if isinstance(one.get("items"), dict):
            yield from numbers(one["items"], root, (*path, 0))


def every_number() -> list[tuple[str, type, dict[str, Any], tuple[Any, ...], dict[str, Any]]]:
    return [(*key, plain, path, node) for key, plain in nodes().items() for path, node in numbers(json_schema(key[1]), json_schema(key[1]))]


def test_every_number_declares_both_its_ends() -> None:
    """A value above the upper one is mistyped, or in a wrong unit."""
    cases = every_number()
    assert len(cases) > 250
    ends = ({"minimum", "exclusiveMinimum"}, {"maximum", "exclusiveMaximum"})
    open_ended = {f"{where}.{path}" for where, _, _, path, node in cases if "enum" not in node and not all(end & set(node) for end in ends)}
    assert open_ended == set()


def with_value(plain: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any] | None:
    """A copy of a group with another value at `path`; None where a mapping on the way is null or a list is empty."""
    group = copy.deepcopy(plain)
    node: Any = group
    for part in path[:-1]:
        if isinstance(node, dict) and part in node and node[part] or isinstance(node, list) and node and isinstance(part, int):
            node = node[part]
        else:
            return None
    if isinstance(path[-1], int) and not (isinstance(node, list) and node):
        return None
    node[path[-1]] = value
    return group


def test_values_beyond_a_range_are_refused_and_name_their_key() -> None:
    tried = 0
    for where, kind, plain, path, node in every_number():
        outside: list[Any] = [math.nan, math.inf, -math.inf, True, "x", [1]]
        if "minimum" in node:
            outside.append(node["minimum"] - (1 if node["type"] == "integer" else max(abs(node["minimum"]) * 1e-9, 1e-12)))
        if "maximum" in node:
            outside.append(node["maximum"] + (1 if node["type"] == "integer" else abs(node["maximum"]) * 1e-9))
        outside += [node[end] for end in ("exclusiveMinimum", "exclusiveMaximum") if end in node]
        outside += [1.5] if node["type"] == "integer" else []
        for value in outside:
            group = with_value(plain, path, value)
            if group is None or (value == [1] and _takes_list(kind, path)):
                continue
            tried += 1
            with pytest.raises(UserError) as caught:
                checked(group, kind, where)
            assert str(path[0]) in str(caught.value.parts["where"]), (where, path, value, str(caught.value))
    assert tried > 1500


def _takes_list(kind: type, path: tuple[Any, ...]) -> bool:
    node: Any = json_schema(kind)["properties"][path[0]]
    return len(path) == 1 and any(one.get("type") == "array" for one in alternatives(node, json_schema(kind)))


def test_the_ends_of_a_range_are_taken() -> None:
    for where, kind, plain, path, node in every_number():
        for end in ("minimum", "maximum"):
            group = with_value(plain, path, node.get(end)) if end in node else None
            if group is not None and where not in ("cluster", "simulate.profile"):  # whose values must also fit one another
                assert checked(group, kind, where) is not None


@pytest.mark.parametrize(
    ("hint", "value", "where"),
    [
        (Count, 0, "k"),
        (Count, 1.0, "k"),
        (Count, True, "k"),
        (Count, "1", "k"),
        (Positive | None, math.nan, "k"),
        (Positive, None, "k"),
        (list[Count], [1, 0], "k[1]"),
        (list[Count], 1, "k"),
        (dict[str, Positive], {"a": -1.0}, "k.a"),
        (Literal["fp32", "bf16"], "bf61", "k"),
        (Literal[2, 3], 4, "k"),
        (Annotated[float, Strict(), Interval(gt=0, lt=1)], 1, "k"),
        (Part, {"needed": 1, "rat": 2.0}, "k.rat"),
        (Part, {"rate": 2.0}, "k.needed"),
        (Part | None, {"needed": 1, "name": "c"}, "k.name"),
    ],
)
def test_a_refusal_names_the_key_and_what_is_allowed(hint: Any, value: object, where: str) -> None:
    with pytest.raises(UserError) as caught:
        checked(value, hint, "k")
    parts = caught.value.parts
    assert parts["where"] == where and parts["allowed"] and "\n" not in str(caught.value)


def test_what_is_allowed_is_said_in_words() -> None:
    lines = {}
    for name, hint, value in (("count", Count, 0), ("some", Positive | None, "x"), ("names", list[Literal["a", "b"]], ["c"])):
        with pytest.raises(UserError) as caught:
            checked(value, hint, name)
        lines[name] = caught.value.parts["allowed"]
    assert lines["count"] == "a whole number, 1 or more, at most 1,000,000,000"
    assert lines["some"] == "a number, 1e-09 or more, at most 1,000,000,000 or null"
    assert lines["names"] == "a, b"


@pytest.mark.parametrize(
    ("hint", "value", "typed"),
    [
        (Positive | None, None, None),
        (list[Count], [], []),
        (Positive, 1, 1.0),
        (list[Count] | None, [3], [3]),
        (Part, {"needed": 1}, Part(1)),
        (Part, {"needed": 1, "rate": 2}, Part(1, 2.0)),
    ],
)
def test_what_is_declared_is_taken(hint: Any, value: object, typed: object) -> None:
    assert checked(value, hint, "k") == typed


def test_a_number_stands_for_text_in_a_group() -> None:
    """A project called 2026 needs no quotes."""
    config: Any = read(["logger=wandb", "logger.project=2026"])
    assert config.config.logger.project == "2026"


def test_a_value_that_python_builds_is_held_to_the_same() -> None:
    with pytest.raises(UserError, match=r"part\.needed"):
        Part(0)
    with pytest.raises(UserError, match=r"part\.name"):
        Part(1, name="c")  # type: ignore[arg-type]


def function(inputs: object, *, width: Count, rate: Positive = 0.5, layers: list[int] = [1]) -> None: ...  # noqa: B006


def test_keyword_only_parameters_are_keys_with_their_defaults() -> None:
    kind = schema_of(function)
    assert [field.name for field in fields(kind)] == ["width", "rate", "layers"]
    first, second = checked({"width": 2}, kind, "k"), checked({"width": 2}, kind, "k")
    assert (first.width, first.rate, first.layers) == (2, 0.5, [1]) and first.layers is not second.layers
    with pytest.raises(UserError, match=r"k\.inputs: no such key"):
        checked({"width": 2, "inputs": 1}, kind, "k")
    assert schema_of(Part) is Part
    with pytest.raises(ValidationError):
        adapter(kind).validate_python({})


def test_every_kind_of_target_is_there() -> None:
    for name in BASES.values():
        assert target_of(name, "nowhere").__qualname__ == name.rpartition(".")[2]


def test_defaults_are_those_of_the_files() -> None:
    """An experiment that Python makes has the options of a command line that says nothing."""

    def defaults(kind: Any) -> dict[str, Any]:
        return {field.name: field.default for field in fields(kind) if field.default is not MISSING}

    keys = ("overwrite", "baselines", "start_from", "predictions")
    config = yaml.safe_load((CONF / "config.yaml").read_text())
    common = yaml.safe_load((CONF / "sharder" / "common" / "stores.yaml").read_text())
    assert defaults(PLAIN[""]) == {key: config[key] for key in keys} == {"overwrite": False, "baselines": True} | dict.fromkeys(keys[2:])
    assert defaults(SharderCommon) == common | {"tower_modules": False}
    executor = choice("sharder", "torchrec").executor
    given = {key: value for key, value in executor.items() if key in defaults(ExecutorOptions)}
    assert given == {key: defaults(ExecutorOptions)[key] for key in given}
    assert set(BESIDE_TARGET) == {"data", "study"} and isinstance(executor, DictConfig)


def test_a_package_that_is_not_installed_is_named_with_what_to_do(tmp_path, monkeypatch) -> None:
    (tmp_path / "needs_a_package.py").write_text("import no_such_package\n\n\ndef start():\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError) as caught:
        target_of("needs_a_package.start", "logger")
    assert "no_such_package" in str(caught.value.parts["remedy"])
    with pytest.raises(UserError, match=r"logger\._target_"):
        target_of("no_such_package.start", "logger")


def test_a_module_that_only_lies_in_this_folder_has_its_remedy(tmp_path, monkeypatch) -> None:
    (tmp_path / "my_own_model.py").write_text("class Mine: ...")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="PYTHONPATH=."):
        target_of("my_own_model.Mine", "model")
