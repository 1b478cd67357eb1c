"""What holds of logger=mlflow where MLflow is not installed. tests/ecosystem has the rest, with a real server."""

from __future__ import annotations

import sys

import pytest

from recsys_lab.base.schema import check_fields
from recsys_lab.errors import UserError
from recsys_lab.record import mlflow_run


def test_without_mlflow_one_line_says_what_to_install_and_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(UserError, match=r"^logger: mlflow is not installed; given mlflow; pip install .*\[mlflow\]', or use logger=csv$"):
        mlflow_run.start(tmp_path, {}, "x")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tracking_uri", "https://me:secret@host/"),  # config.yaml and the run itself would keep it
        ("tracking_uri", ""),
        ("experiment", " "),
        ("tags", {"mlflow.user": "you"}),
        ("system_metrics_interval_s", 0),
    ],
)
def test_what_mlflow_would_not_take_is_refused(key, value):
    with pytest.raises(UserError, match=f"logger.{key}"):
        check_fields({key: value}, "logger", mlflow_run.start)


def test_parameters_have_the_path_of_their_key_in_characters_that_mlflow_takes():
    config = {"model": {"dropout": 0.1, "layers": [64, 1]}, "tags": {}, "data": {"columns": {"price (EUR)": "dense"}}}
    found = {mlflow_run._key(key): value for key, value in mlflow_run._flat(config)}
    assert found == {"model.dropout": 0.1, "model.layers": [64, 1], "tags": {}, "data.columns.price _EUR_": "dense"}


def test_a_password_is_in_no_message():
    assert mlflow_run._without_password("postgresql://me:secret@host:5432/runs") == "postgresql://host:5432/runs"
