"""What holds of logger=mlflow where MLflow is not installed. tests/ecosystem has the rest, with a real server."""

from __future__ import annotations

import pytest

from recsys_lab.base.packages import missing
from recsys_lab.base.schema import checked, schema_of
from recsys_lab.errors import UserError
from recsys_lab.record import mlflow_run
from recsys_lab.record.run_folder import flat


def test_what_mlflow_needs_is_declared_and_so_refused_where_it_is_not_installed(monkeypatch):
    monkeypatch.setattr("recsys_lab.base.packages.is_there", lambda name: name != "mlflow")
    assert missing(mlflow_run.start) == mlflow_run.MLFLOW


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
        checked({key: value}, schema_of(mlflow_run.start), "logger")


def test_parameters_have_the_path_of_their_key_in_characters_that_mlflow_takes():
    config = {"model": {"dropout": 0.1, "layers": [64, 1]}, "tags": {}, "data": {"columns": {"price (EUR)": "dense"}}}
    params = {mlflow_run._key(key): value for key, value in flat(config).items()}
    assert params == {"model.dropout": 0.1, "model.layers": [64, 1], "tags": {}, "data.columns.price _EUR_": "dense"}


def test_a_password_is_in_no_message():
    assert mlflow_run._without_password("postgresql://me:secret@host:5432/runs") == "postgresql://host:5432/runs"
