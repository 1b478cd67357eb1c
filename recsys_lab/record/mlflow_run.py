"""One MLflow run per job, through Lightning's own logger.

Without a server the run goes to a database in the run folder. A server that goes away does not end a training. What it did not take is kept
and sent again later, at the latest when the run ends.

Rank 0 calls `start` before training and `finish` after the record is written, in the same process. A resumed run continues the same MLflow
run where the server still has it. Its id is kept in `mlflow/runs.json`.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit, urlunsplit

from annotated_types import Interval
from pydantic import Strict

from recsys_lab.base.files import plain, read_json, write_json
from recsys_lab.base.packages import Package, needs
from recsys_lab.base.ranges import text_like
from recsys_lab.errors import UserError
from recsys_lab.record.loggers import LIGHTNING, choices
from recsys_lab.record.run_folder import flat

MLFLOW = Package("mlflow", "mlflow", "logger=csv")
FOLDER, RUNS_FILE, SQLITE = "mlflow", "runs.json", "sqlite:///"
VARIABLE = "MLFLOW_TRACKING_URI"
#: A rank waits 10 seconds for a server, and calls once more. Nobody else hears of the run, and the terminal is the launcher's.
#: The user's own variables win.
SETTINGS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
#: Characters of a parameter's name that MLflow takes.
LONGEST_KEY = 250
NAME = text_like(r"(?=.*\S)[^\x00-\x1f]+", 250, "some text")
TAG = text_like(r"(?!mlflow\.)[A-Za-z0-9_./ -]+", 250, "letters, digits, _ . / - and spaces, not MLflow's own (mlflow.)")
#: Passwords would be kept in config.yaml: MLflow reads them from its own variables.
URI = text_like(
    r"(?!https?://[^/]*@)[A-Za-z0-9+-]+(:.*)?",
    2000,
    "an address such as http://host:5000 or sqlite:///runs.db; user and password are MLFLOW_TRACKING_USERNAME and _PASSWORD",
)


@needs(MLFLOW, LIGHTNING)
def start(
    folder: Path,
    config: Mapping[str, Any],
    name: str,
    sweep: str | None = None,
    *,
    tracking_uri: Annotated[str, URI] | None = None,
    experiment: Annotated[str, NAME] = "recsys_lab",
    run_name: Annotated[str, NAME] | None = None,
    tags: dict[Annotated[str, TAG], str] | None = None,
    system_metrics_interval_s: Annotated[float, Strict(), Interval(ge=0.1, le=86400)] = 5.0,
) -> Any:
    """A Lightning logger on a new MLflow run, with `config` as it ran.

    Args:
        folder, config, name, sweep: those of `recsys_lab.record.loggers.tensorboard`; `sweep` becomes a tag, as the run's choices do.
        tracking_uri: None: MLFLOW_TRACKING_URI, or a database in `folder`/mlflow.
        experiment: MLflow's, which is made if it is not there.
        run_name: None: `name`.
        tags: of the run.
        system_metrics_interval_s: between two samples of system metrics.

    Returns:
        The logger. A resumed run continues its MLflow run.

    Raises:
        UserError: where the server does not answer or refuses.
    """
    for variable, value in SETTINGS.items():
        os.environ.setdefault(variable, value)
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    from recsys_lab.record.mlflow_logger import MlflowRun  # with torch, which nothing needs before a run

    for library in ("mlflow", "alembic", "urllib3.connectionpool", "lightning.pytorch.loggers.mlflow"):
        logging.getLogger(library).setLevel(logging.ERROR)  # how it makes its tables, and that it tries again
    folder = Path(folder).resolve()
    uri = tracking_uri or os.environ.get(VARIABLE) or f"{SQLITE}{folder / FOLDER / 'mlflow.db'}"
    server, runs_file = _without_password(uri), folder / FOLDER / RUNS_FILE
    runs = read_json(runs_file) if runs_file.exists() else {}
    why = partial(_why, server=server)
    all_tags = {**choices(config), **(tags or {}), **({"sweep": sweep} if sweep else {})}
    try:
        client = MlflowClient(uri)
        _make_experiment(client, experiment, _artifacts(uri))
        run = _run(client, runs.get(server))
        options = {"experiment_name": experiment, "run_name": run_name or name, "tracking_uri": uri, "tags": all_tags}
        logger = MlflowRun(folder, why, run_id=run and run.info.run_id, **options)
        if run is None:
            logger.log_hyperparams({_key(key)[:LONGEST_KEY]: value for key, value in flat(plain(dict(config))).items()})
            client.log_dict(logger.run_id, plain(dict(config)), "config.json")
            write_json(runs_file, runs | {server: logger.run_id})
        else:
            client.update_run(run.info.run_id, status="RUNNING")
            steps = {key: client.get_metric_history(run.info.run_id, key) for key in run.data.metrics if "/" not in key}
            logger.last_steps = {key: max(figure.step for figure in figures) for key, figures in steps.items()}
    except (MlflowException, OSError) as error:
        raise UserError(
            why(error), where="logger.tracking_uri", given=server, remedy="start the server, or use another logger: logger=csv"
        ) from None
    logger.monitor = _monitor(str(logger.run_id), uri, system_metrics_interval_s)
    return logger


def _artifacts(uri: str) -> str | None:
    """Where the artifacts of a database lie: beside it. MLflow would put them into the working folder. None of a server."""
    if not uri.startswith(SQLITE):
        return None
    place = Path(uri.removeprefix(SQLITE)).resolve().parent
    place.mkdir(parents=True, exist_ok=True)
    return (place / "artifacts").as_uri()


def _make_experiment(client: Any, name: str, artifacts: str | None) -> None:
    """Makes the experiment `name` where there is none. Jobs of a sweep may do so at once."""
    from mlflow.exceptions import MlflowException

    try:
        client.create_experiment(name, artifact_location=artifacts)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise


def _run(client: Any, run_id: str | None) -> Any:
    """The run `run_id` of an earlier part of this one; None where there is none, or the server has it no longer."""
    from mlflow.exceptions import MlflowException

    if run_id is None:
        return None
    try:
        run = client.get_run(run_id)
    except MlflowException as error:
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            return None
        raise
    return run if run.info.lifecycle_stage == "active" else None


def _monitor(run_id: str, uri: str, interval_s: float) -> Any:
    """MLflow's own thread that logs what this machine does, begun."""
    from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

    monitor = SystemMetricsMonitor(run_id, sampling_interval=interval_s, resume_logging=True, tracking_uri=uri)
    monitor.start()
    return monitor


def _key(key: str) -> str:
    """`key` in the characters that MLflow takes."""
    return re.sub(r"[^A-Za-z0-9_./ -]", "_", key)


def _without_password(uri: str) -> str:
    parts = urlsplit(uri)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _why(error: Exception, server: str) -> str:
    """What the client said, in one line without the requests and retries behind it."""
    answered = getattr(error, "json", None) is not None or "response code" in str(error)
    if answered or not server.startswith("http"):
        return f"MLflow refuses: {str(error).splitlines()[0]}"
    return f"no MLflow server answers at {server}"
