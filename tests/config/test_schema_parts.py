"""What JSON Schema says of a group, by hand, and what the YAML files say of themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from recsys_lab.base.ranges import Share
from recsys_lab.config import json_schema, yaml_comments
from recsys_lab.config.json_schema import INTERPOLATION, of_targets


def one(*, width: int, rate: Share = 0.1) -> None: ...


def two(*, width: float = 2.0, name: str = "x") -> None: ...


SHARE = {"type": "number", "minimum": 0, "maximum": 1}
ONE, TWO = f"{one.__module__}.one", f"{two.__module__}.two"


def test_keys_of_targets_are_those_of_the_one_that_is_named() -> None:
    schema = of_targets(iter([ONE, TWO]), "nowhere", None, lambda _: {"rate": "how fast"})
    inherits, of_one, of_two, required = schema["allOf"]
    assert schema["properties"]["_target_"]["anyOf"][0] == {"enum": [ONE, TWO]}
    assert inherits["then"]["propertyNames"] == {"enum": ["width", "rate", "name", "defaults"]}
    common = inherits["then"]["properties"]
    width = [{"anyOf": [{"type": "integer"}, INTERPOLATION]}, {"default": 2.0, "anyOf": [{"type": "number"}, INTERPOLATION]}]
    assert common["width"] == {"anyOf": width}  # of both
    assert common["rate"] == {"description": "how fast", "default": 0.1, "anyOf": [SHARE, INTERPOLATION]}  # of one
    assert of_one["then"] == {
        "propertyNames": {"enum": ["width", "rate", "_target_", "defaults"]},
        "properties": {"width": width[0], "rate": common["rate"]},
    }
    assert of_two["then"]["properties"] == {"width": width[1], "name": common["name"]}
    assert required["then"] == {"required": ["width"]}


@pytest.mark.parametrize(
    ("config", "accepted"),
    [
        ({"_target_": ONE, "width": 3}, True),
        ({"_target_": ONE, "width": 3, "rate": 0.5, "defaults": ["x"]}, True),
        ({"_target_": ONE, "width": 3.5}, False),
        ({"_target_": ONE, "rate": 0.5}, False),
        ({"_target_": ONE, "defaults": []}, True),
        ({"_target_": ONE, "width": 3, "name": "x"}, False),
        ({"_target_": TWO}, True),
        ({"_target_": TWO, "width": 3.5, "name": "x"}, True),
        ({"_target_": TWO, "rate": 0.5}, False),
        ({"width": 3.5, "rate": 0.5, "name": "x"}, True),
        ({"width": "x"}, False),
        ({"width": "${x}"}, True),
        ({"rate": 2}, False),
        ({"other": 2}, False),
        ({"_target_": "my.own", "other": 2}, True),
        ({"_target_": "recsys_lab.own"}, False),
        ({"_target_": "launchers.own"}, False),
        ({"_target_": "bare"}, False),
        ([], False),
    ],
)
def test_what_a_group_of_two_targets_takes(config: Any, accepted: bool) -> None:
    schema = of_targets([ONE, TWO], "nowhere", None, lambda _: {}) | {"$defs": json_schema.DEFINED}
    assert Draft202012Validator(schema).is_valid(config) == accepted


def test_a_single_target_has_no_alternatives() -> None:
    inherits, *_ = of_targets([ONE], "nowhere", None, lambda _: {})["allOf"]
    assert inherits["then"]["properties"]["width"] == {"anyOf": [{"type": "integer"}, INTERPOLATION]}


@pytest.mark.parametrize(
    ("files", "name"),
    [
        ("model/*.yaml", "model"),
        ("cluster/device/*.yaml", "cluster_device"),
        ("experiment/**/*.yaml", "experiment"),
        ("config.yaml", "config"),
    ],
)
def test_the_name_of_a_schema_s_file(files: str, name: str) -> None:
    assert json_schema.name_of(files) == f"{name}.schema.json"
    assert json_schema.vscode_settings("s", [files]) == {"yaml.schemas": {f"s/{name}.schema.json": f"**/conf/{files}"}}


A_YAML = """
# a: is no key # of anything
_target_: x.A
width: 3 # how wide
deep: # with parts
  rate: 1.5   #   how fast
  more:
    last: x # one
  next: 'a # b' # two
  other: "# a" # three
  bare: # four # five
  sign: a#b # six
list:
- item: 1 # of a list
plain: 1
no space: 2 # x
link: http://x#y
"""


def test_comments_and_targets_of_yaml_files(tmp_path: Path) -> None:
    (tmp_path / "model" / "inner").mkdir(parents=True)
    (tmp_path / "model" / "a.yaml").write_text(A_YAML)
    whole = "model:\n  _target_: x.B\n  width: 4 # not this one\n  own: 1 # its own\n  part: {_target_: x.P}\nseed: 1 # of all\n"
    (tmp_path / "model" / "b.yaml").write_text(f"# @package _global_\n{whole}")
    (tmp_path / "model" / "inner" / "c.yaml").write_text("_target_: x.C\nlist: [{_target_: x.L}]\n")
    comments = yaml_comments.comments(tmp_path / "model" / "a.yaml")
    assert comments == {
        "width": "how wide",
        "deep.rate": "how fast",
        "deep.more.last": "one",
        "deep.next": "two",
        "deep.other": "three",
        "deep.bare": "four # five",
        "deep.sign": "six",
        "deep": "with parts",
    }
    assert yaml_comments.meanings(tmp_path, "model") == comments | {"own": "its own", "seed": "of all"}
    assert yaml_comments.targets(tmp_path, "model") == {"": ("x.A", "x.B", "x.C"), "part": ("x.P",)}
    assert [yaml_comments.is_global(tmp_path / "model" / f"{name}.yaml") for name in "ab"] == [False, True]
