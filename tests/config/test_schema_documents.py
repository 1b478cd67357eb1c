"""The schemas of a small conf folder: which files each is for, and what a file may say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from recsys_lab.config.json_schema import CLUSTER_PARTS, documents
from recsys_lab.config.yaml_comments import GROUPS


def data(options: Any, *, size: int, kind: str = "x") -> None: ...


def launcher(a: Any, b: Any, c: Any, *, hosts: int, ranks_per_host: int, threads_per_rank: int, wait: int = 1) -> None: ...


def logger(a: Any, b: Any, c: Any, d: Any, *, name: str = "x") -> None: ...


def executor(
    a: Any, b: Any, *, device: Any, optimizer: Any, precision: Any, seed: Any, hot_rows: Any, scratch: Any, pipeline: bool = False
) -> None: ...


def study(a: Any, *, rounds: int = 3) -> None: ...


HERE = __name__
FILES = {
    "config.yaml": "seed: 1 # first number\nsimulate:\n  batch_size: 4 # of a rank\nablation:\n  level: 0.5 # of doubt\n",
    "model/a.yaml": "_target_: recsys_lab.models.click_model.ClickModel\n",
    "sharder/a.yaml": f"planner:\n  _target_: recsys_lab.sharders.dmt.DMT\n  scheme: auto # of a tower\ntowers:\n"
    f"  _target_: recsys_lab.sharders.dmt.TowerOptions\nexecutor:\n  _target_: {HERE}.executor\n  pipeline: true # ahead\n",
    "sharder/common/all.yaml": "store: auto # of rows\n",
    "precision/a.yaml": "_target_: recsys_lab.precision.Precision\n",
    "cluster/a.yaml": "_target_: recsys_lab.cluster.Cluster\n",
    "cluster/device/a.yaml": "memory_gb: 80 # of a device\n",
    "data/a.yaml": f"_target_: {HERE}.data\nsize: 1 # of the data\nbatch_size: 1 # of a step\n",
    "optimizer/a.yaml": "schedule: # of both rates\n  gamma: 0.1 # of a fall\n",
    "trainer/a.yaml": "max_epochs: 1\n",
    "launcher/a.yaml": f"_target_: {HERE}.launcher\n",
    "launcher/b.yaml": f"# @package _global_\nlauncher:\n  _target_: {HERE}.launcher\n  wait: 1 # for others\n",
    "logger/a.yaml": f"_target_: {HERE}.logger\n",
    "profile/a.yaml": "_target_: recsys_lab.simulate.profile.Profile\n",
    "experiment/paper/a.yaml": f"study:\n  _target_: {HERE}.study\n",
}


@pytest.fixture
def schemas(tmp_path: Path) -> dict[str, dict[str, Any]]:
    conf = tmp_path / "conf"
    for name, text in FILES.items():
        (conf / name).parent.mkdir(parents=True, exist_ok=True)
        (conf / name).write_text(text)
    return documents(conf)


def test_which_files_each_is_for(schemas: dict[str, dict[str, Any]]) -> None:
    groups = {f"{group}/*.yaml" for group in GROUPS if group != "experiment"}
    parts = {f"cluster/{part}/*.yaml" for part in CLUSTER_PARTS}
    parts |= {"sharder/common/*.yaml", "sharder/by_hand/*.yaml"}
    assert set(schemas) == groups | parts | {"experiment/**/*.yaml", "config.yaml"}
    for files, schema in schemas.items():
        assert schema["title"] == f"recsys_lab: conf/{files}" and "interpolation" in schema["$defs"]


SAID: list[tuple[str, Any, bool]] = [
    ("data", {"_target_": f"{HERE}.data", "size": 1, "batch_size": 4, "prefetch_batches": 1, "frequencies": None}, True),
    ("data", {"_target_": f"{HERE}.data", "size": 1, "batch_size": 0, "prefetch_batches": 1, "frequencies": None}, False),
    ("data", {"_target_": f"{HERE}.data", "batch_size": 4, "prefetch_batches": 1, "frequencies": None}, False),
    ("data", {"_target_": f"{HERE}.data", "size": 1}, False),
    ("data", {"size": 1}, True),
    ("data", {"simulate": {}}, False),
    ("logger", {"_target_": f"{HERE}.logger"}, True),
    ("logger", {"_target_": f"{HERE}.logger", "batch_size": 1}, False),
    ("trainer", {"max_epochs": 3, "defaults": ["a"]}, True),
    ("trainer", {"max_epochs": 0}, False),
    ("trainer", {"max_epoch": 3}, False),
    ("launcher", {"_target_": f"{HERE}.launcher", "hosts": 1, "ranks_per_host": 1, "threads_per_rank": 1}, True),
    ("launcher", {"_target_": f"{HERE}.launcher", "hosts": 1}, False),
    ("launcher", {"launcher": {"_target_": f"{HERE}.launcher", "hosts": 1}, "hydra": {}, "seed": 1}, True),
    ("launcher", {"launcher": {"host": 1}}, False),
    ("launcher", {"launcher": {}, "seeds": 1}, False),
    ("sharder", {"planner": {"_target_": "recsys_lab.sharders.dmt.DMT"}, "store": "host", "towers": None, "executor": "${x}"}, True),
    ("sharder", {"planner": {"_target_": "recsys_lab.sharders.dmt.DMT", "schema": "auto"}}, False),
    ("sharder", {"executor": {"pipeline": 3}}, False),
    ("sharder", {"stores": "host"}, False),
    ("sharder", {"defaults": ["a"]}, True),
    ("sharder/common", {"store": "host"}, True),
    ("sharder/common", {"planner": {}}, False),
    (
        "config",
        {"seed": 1, "simulate": {"batch_size": 4, "profile": {}}, "ablation": {"level": 0.5}, "hydra": {}, "defaults": []},
        True,
    ),
    ("config", {"seed": -1}, False),
    ("config", {"simulate": {"batch_sise": 4}}, False),
    ("config", {"ablation": {"level": 1}}, False),
    ("config", {"profile": {}}, False),
    ("config", {"study": None}, True),
    ("config", {"study": {"_target_": f"{HERE}.study", "rounds": 2}}, True),
    ("config", {"study": {"_target_": f"{HERE}.study", "round": 2}}, False),
    ("config", {"study": {"budget": "endless"}}, False),
    ("config", {"data": {"_target_": f"{HERE}.data", "kind": "y"}}, True),
    ("config", {"hydra": 5}, False),
    ("config", {"other": 5}, False),
]


def test_what_a_file_may_say(schemas: dict[str, dict[str, Any]]) -> None:
    for files, config, accepted in SAID:
        schema = schemas["config.yaml" if files == "config" else f"{files}/*.yaml"]
        assert Draft202012Validator(schema).is_valid(config) == accepted, (files, config)


def test_what_groups_and_keys_mean(schemas: dict[str, dict[str, Any]]) -> None:
    config = schemas["config.yaml"]["properties"]
    assert schemas["experiment/**/*.yaml"]["properties"] == config
    assert (config["seed"]["description"], config["simulate"]["properties"]["batch_size"]["description"]) == ("first number", "of a rank")
    assert config["ablation"]["properties"]["level"]["description"] == "of doubt"
    assert config["optimizer"]["properties"]["schedule"]["description"] == "of both rates"
    for group in ("data", "trainer", "sharder"):
        assert schemas[f"{group}/*.yaml"]["description"] == GROUPS[group] == config[group]["description"]
    for group in ("simulate", "ablation"):
        assert "required" not in config[group]
    sharder = schemas["sharder/*.yaml"]["properties"]
    planner, null, interpolation = sharder["planner"]["anyOf"]
    keys = planner["allOf"][0]["then"]["properties"]
    assert keys["scheme"]["description"] == "of a tower" and null == {"type": "null"} and interpolation == {"$ref": "#/$defs/interpolation"}
    assert schemas["sharder/common/*.yaml"]["properties"]["store"]["description"] == "of rows"
    assert schemas["cluster/device/*.yaml"]["properties"]["memory_gb"]["description"] == "of a device"
