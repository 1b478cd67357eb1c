"""The JSON Schema of the config groups: valid, true of every YAML of conf/, and as strict as what a run checks."""

from __future__ import annotations

import fnmatch
import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from omegaconf import OmegaConf

from recsys_lab.base.paths import CONF
from recsys_lab.commands import schema as command
from recsys_lab.config.command_line import read as line
from recsys_lab.config.json_schema import documents, name_of, vscode_settings
from recsys_lab.config.yaml_comments import GROUPS
from recsys_lab.errors import UserError

YAMLS = [path.relative_to(CONF).as_posix() for path in sorted(CONF.rglob("*.yaml")) if "hydra" not in path.relative_to(CONF).parts]


@pytest.fixture(scope="module")
def schemas() -> dict[str, dict[str, Any]]:
    return documents(CONF)


@pytest.fixture(scope="module")
def validators(schemas: dict[str, dict[str, Any]]) -> dict[str, Draft202012Validator]:
    return {files: Draft202012Validator(schema) for files, schema in schemas.items()}


def pattern_of(path: str, patterns: list[str]) -> str:
    """The one pattern that is for this file; `*` ends at a slash, as an editor's does."""
    parts = path.split("/")
    fits = [p for p in patterns if "**" in p or len(p.split("/")) == len(parts)]
    (pattern,) = [p for p in fits if fnmatch.fnmatch(path, p.replace("/**/*", "/*"))]
    return pattern


def read(path: str) -> Any:
    return OmegaConf.to_container(OmegaConf.load(CONF / path), resolve=False)


def test_there_is_one_for_each_group_and_each_is_valid(schemas: dict[str, dict[str, Any]]) -> None:
    assert {files.split("/")[0] for files in schemas} == {*GROUPS, "config.yaml"}
    assert schemas["experiment/**/*.yaml"]["properties"] == schemas["config.yaml"]["properties"]
    for files, schema in schemas.items():
        if files != "experiment/**/*.yaml":
            Draft202012Validator.check_schema(schema)
        assert json.loads(json.dumps(schema)) == schema and schema["$schema"] == Draft202012Validator.META_SCHEMA["$id"]


def test_every_yaml_of_conf_is_accepted(validators: dict[str, Draft202012Validator]) -> None:
    assert len(YAMLS) > 120
    used = {path: pattern_of(path, list(validators)) for path in YAMLS}
    assert set(used.values()) == set(validators)
    wrong = {path: [error.message[:200] for error in validators[files].iter_errors(read(path))] for path, files in used.items()}
    assert {path: errors for path, errors in wrong.items() if errors} == {}


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_whole_config_that_runs_is_accepted(validators: dict[str, Draft202012Validator]) -> None:
    for group in ("model", "sharder", "precision", "cluster", "data", "logger"):
        for path in sorted((CONF / group).glob("*.yaml")):
            if not path.stem.startswith("tables"):
                plain: Any = OmegaConf.to_container(line([f"{group}={path.stem}"]).config)
                assert plain.pop("choices")
                assert [error.message[:200] for error in validators["config.yaml"].iter_errors(plain)] == [], path


@pytest.mark.parametrize(
    ("files", "config", "accepted"),
    [
        ("model/*.yaml", {"defaults": ["dcn"], "dropout": 0.2}, True),
        ("model/*.yaml", {"defaults": ["dcn"], "dropout": "${data.validation_share}"}, True),
        ("model/*.yaml", {"defaults": ["dcn"], "drop_out": 0.2}, False),
        ("model/*.yaml", {"_target_": "recsys_lab.models.dcm.DCN"}, False),
        ("model/*.yaml", {"_target_": "recsys_lab.models.dlrm.DLRM", "defaults": ["dlrm"], "cross_rank": 4}, False),
        ("model/*.yaml", {"_target_": "recsys_lab.models.dlrm.DLRM"}, False),
        ("model/*.yaml", {"_target_": "my_package.Model", "anything": [1]}, True),
        ("sharder/*.yaml", {"planner": {"_target_": "recsys_lab.sharders.flexshard.FlexShard", "goal": "least"}}, False),
        ("cluster/*.yaml", {"defaults": ["h100"], "hosts": 0}, False),
        ("cluster/*.yaml", {"defaults": ["h100"], "device": {"memory_gb": 141}}, True),
        ("cluster/*.yaml", {"defaults": ["h100"], "device": {"memory": 141}}, False),
        ("experiment/**/*.yaml", {"data": {"batch_size": 4096}, "trainer": {"max_epochs": 12}, "seed": 3}, True),
        ("experiment/**/*.yaml", {"data": {"batch_sise": 4096}}, False),
        ("experiment/**/*.yaml", {"trainer": {"early_stopping": {"metric": "accuracy"}}}, False),
        ("launcher/*.yaml", {"launcher": {"_target_": "launchers.slurm.join", "hosts": 0}}, False),
    ],
)
def test_what_an_editor_would_mark(validators: dict[str, Draft202012Validator], files: str, config: Any, accepted: bool) -> None:
    assert validators[files].is_valid(config) == accepted


def test_descriptions_ranges_choices_and_defaults_are_there(schemas: dict[str, dict[str, Any]]) -> None:
    trainer = schemas["trainer/*.yaml"]["properties"]
    assert trainer["measure_steps"]["anyOf"][0] == {"type": "integer", "minimum": 1, "maximum": 10**5}
    assert trainer["early_stopping"]["anyOf"][0]["properties"]["metric"]["anyOf"][0]["enum"][0] == "auc"
    sharder = schemas["sharder/*.yaml"]["properties"]
    assert sharder["tower_modules"]["default"] is False
    optimizer = schemas["optimizer/*.yaml"]["properties"]["schedule"]["anyOf"][0]["properties"]
    assert optimizer["gamma"]["description"] == "step: what a fall multiplies by"


def test_a_key_is_described_by_what_its_own_choices_say(schemas: dict[str, dict[str, Any]]) -> None:
    """And by another's only where nobody says otherwise."""
    described: dict[str, dict[str, str | None]] = {}
    for rule in schemas["model/*.yaml"]["allOf"]:
        if "then" in rule and "propertyNames" in rule["then"] and "required" in rule["if"]:
            name = rule["if"]["properties"]["_target_"]["const"].rpartition(".")[2]
            described[name] = {key: value.get("description") for key, value in rule["then"]["properties"].items()}
    assert "first-order" in (described["DeepFM"]["embedding_dim"] or "")
    assert described["DCN"]["embedding_dim"] is None
    assert described["HSTU"]["max_length"] != described["Sequence"]["max_length"]


def test_the_command_writes_them_and_the_editors_setting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "a" / "schemas"
    assert command.main(["--out", str(folder)]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record == json.loads((folder / command.SETTINGS).read_text())
    assert {Path(file) for file in record["yaml.schemas"]} == {path for path in folder.iterdir() if path.name != command.SETTINGS}
    assert record["yaml.schemas"][f"{folder}/model.schema.json"] == "**/conf/model/*.yaml"
    with pytest.raises(UserError, match="--out"):
        command.main([])
    assert name_of("experiment/**/*.yaml") == "experiment.schema.json" and vscode_settings("x", []) == {"yaml.schemas": {}}
