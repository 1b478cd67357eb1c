"""What of a config is a run's identity, what a target must be, and what a group's schema takes, by hand."""

from __future__ import annotations

import shutil
from fractions import Fraction
from typing import Any

import pytest
from omegaconf import OmegaConf

from recsys_lab.config.frozen import _unresolved, differences, fingerprint, identity, register_resolvers
from recsys_lab.config.kinds import check_kind
from recsys_lab.config.schema import schema_of
from recsys_lab.errors import UserError

BASE: dict[str, Any] = {
    "seed": 1,
    "cluster": {"hosts": 2, "list_price": {"x": 1}},
    "sharder": {"scratch": "a", "store": "b"},
    "launcher": {"hosts": 1},
    "trainer": {"device": "auto", "max_steps": 5},
}


@pytest.mark.parametrize(
    ("change", "same_fingerprint", "same_identity"),
    [
        ({"seed": 2}, False, False),
        ({"launcher": {"hosts": 2}}, False, True),
        ({"trainer": {"device": "cuda", "max_steps": 5}}, False, True),
        ({"trainer": {"max_steps": 5}}, False, True),  # of a run from before that key was there
        ({"trainer": {"device": "auto", "max_steps": 6}}, False, True),  # the same run, for longer
        ({"optimizer": {"lr": 6}}, False, False),
        ({"cluster": {"hosts": 2, "list_price": {"x": 2}}}, True, True),
        ({"cluster": {"hosts": 2}}, True, True),
        ({"cluster": {"hosts": 3, "list_price": {"x": 1}}}, False, True),
        ({"sharder": {"scratch": "z", "store": "b"}}, True, True),
        ({"sharder": {"scratch": "a", "store": "z"}}, False, True),
        ({"sharder": {"scratch": "a", "store": "b", "tower_modules": True}}, False, False),  # another model
        ({"scratch": "z"}, False, False),
        ({"sharder": None}, False, True),
        *(({key: {"a": 5}}, True, True) for key in ("resume", "overwrite", "logger", "ablation", "choices")),
    ],
)
def test_what_makes_a_run_another(change: dict[str, Any], same_fingerprint: bool, same_identity: bool) -> None:
    before, after = OmegaConf.create(BASE), OmegaConf.create(BASE | change)
    assert (fingerprint(before) == fingerprint(after)) == same_fingerprint == (differences(after, before) == [])
    assert (identity(BASE) == identity(BASE | change)) == same_identity
    assert len(identity(BASE)) == len(fingerprint(before)) == 16


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${host_link_gb_s:3,0.1}", 0.3),
        ("${of_ranks:3,0.1}", 0.3),
        ("${of_host:3,10}", 3.33333),
        ("${of_host:0,10}", 10.0),
        ("${of_host:1,null}", None),
        ("${core_share:1,1,3}", 0.667),
        ("${core_time:1,1,3}", 1.5),
        ("${core_time:1,3,1}", 1.5),
        ("${core_time:2,1,1}", 2.0),
    ],
)
def test_what_a_yaml_asks(monkeypatch: pytest.MonkeyPatch, text: str, value: Any) -> None:
    monkeypatch.setattr("recsys_lab.config.calibrated.os.sched_getaffinity", lambda _: {0, 1})
    register_resolvers()
    assert OmegaConf.create({"x": text}).x == value


def test_names_of_folders_are_drawn() -> None:
    register_resolvers()
    drawn = {OmegaConf.create({"x": "${unique:}"}).x for _ in range(20)}
    assert len(drawn) > 15 and {len(name) for name in drawn} == {6}


@pytest.mark.parametrize(
    ("config", "key", "parts"),
    [
        ({"a": 1, "b": {"c": "${nope}"}}, "b.c", ["cannot be resolved (Interpolation key 'nope' not found)", "given ${nope}"]),
        ({"a": "${a}"}, "a", ["it leads back to itself"]),
        ({"cluster": {"x": "${cluster.x}"}}, "cluster.x", ["it leads back to itself", "name another cluster"]),
        ({"launcher": {"x": "${launcher.x}"}}, "launcher.x", ["name another cluster"]),
        ({"cluster": {"x": "${nope}"}}, "cluster.x", ["not found"]),
        ({"a": 1}, "config", ["cannot be resolved"]),
    ],
)
def test_which_value_cannot_be_resolved(config: dict[str, Any], key: str, parts: list[str]) -> None:
    error = _unresolved(OmegaConf.create(config))
    assert error.parts["where"] == key and all(part in str(error) for part in parts), str(error)
    assert ("name another cluster" in str(error)) == ("name another cluster" in parts)


def three(a: Any, b: Any, c: Any, *, hosts: int, ranks_per_host: int, threads_per_rank: int, own: int) -> None: ...


def four(a: Any, b: Any, c: Any, d: Any = 1, *, own: int = 1) -> None: ...


def any_number(*arguments: Any, **keys: Any) -> None: ...


@pytest.mark.parametrize(
    ("target", "kinds"),
    [
        (three, {"launcher"}),
        (four, {"logger"}),  # a fourth argument is needed by none
        (lambda a, b, c, d, e: None, set()),
        (lambda a, *, own: None, {"data", "study"}),
        (lambda a, b=1: None, {"data", "study"}),
        (any_number, set()),
        (shutil.rmtree, set()),
        (len, set()),
        (Fraction, set()),
        (5, set()),
    ],
)
def test_which_groups_build_from_a_function(target: Any, kinds: set[str]) -> None:
    taken = set()
    for where in ("data", "study", "launcher", "logger", "sharder.executor", "model", "cluster", "precision", "sharder.planner"):
        try:
            check_kind(target, where, "x.y")
        except UserError as error:
            assert error.parts["where"] == f"{where}._target_" and error.parts["given"] == "x.y"
        else:
            taken.add(where)
    assert taken == kinds
    check_kind(target, "elsewhere", "x.y")


def test_a_schema_is_made_once() -> None:
    assert schema_of(three) is schema_of(three) and schema_of(three).__name__ == "threeKeys"
