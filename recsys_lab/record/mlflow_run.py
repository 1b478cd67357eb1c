"""One MLflow run per job, through MLflow's own client. The only file that imports mlflow.

Without a server the run goes to a database in the run folder. A server that goes away does not end a training. What it did not take is kept
and sent again later, at the latest when the run ends.

Rank 0 calls `start` before training and `finish` after the record is written, in the same process. A resumed run continues the same MLflow
run where the server still has it. Its id is kept in `mlflow/runs.json`.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit, urlunsplit

from recsys_lab.base.files import plain, read_json, write_json
from recsys_lab.base.packages import Package, needs
from recsys_lab.base.ranges import Range, Text
from recsys_lab.errors import UserError
from recsys_lab.record.headline import ARTIFACTS, headline
from recsys_lab.record.loggers import LIGHTNING

MLFLOW = Package("mlflow", "mlflow", "logger=csv")
FOLDER, RUNS_FILE, SQLITE = "mlflow", "runs.json", "sqlite:///"
VARIABLE = "MLFLOW_TRACKING_URI"
#: A rank waits 10 seconds for a server, and asks once more. Nobody else hears of the run, and the terminal is the launcher's.
#: The user's own variables win.
SETTINGS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
#: Until a server that did not answer is asked again; twice as long each time.
PAUSE_S = 30.0
#: What MLflow takes: parameters and metrics in a request, characters of a parameter's name and value.
MOST_PARAMS, MOST_METRICS, LONGEST_KEY, LONGEST_VALUE = 100, 1000, 250, 6000
NAME = Text(r"(?=.*\S)[^\x00-\x1f]+", 250, "some text")
TAG = Text(r"(?!mlflow\.)[A-Za-z0-9_./ -]+", 250, "letters, digits, _ . / - and spaces, not MLflow's own (mlflow.)")
#: Passwords would be kept in config.yaml: MLflow reads them from its own variables.
URI = Text(
    r"(?!https?://[^/]*@)[A-Za-z0-9+-]+(:.*)?",
    2000,
    "an address such as http://host:5000 or sqlite:///runs.db; user and password are MLFLOW_TRACKING_USERNAME and _PASSWORD",
)


class RunLogger:
    """Lightning's logger (record/lightning_loggers.py) over the MLflow run `run_id` of one run folder.

    `known`: by metric, the last step that the run has already.
    """

    def __init__(self, client: Any, run_id: str, folder: Path, server: str, known: Mapping[str, int]):
        super().__init__()
        self.experiment, self.run_id, self.folder, self.server = client, run_id, folder, server
        self.monitor: Any = None
        self._known, self._unsent, self._last_step = dict(known), list[Any](), 0
        self._pause_s, self._not_before = PAUSE_S, 0.0

    @property
    def name(self) -> str:
        return FOLDER

    @property
    def version(self) -> str:
        return self.run_id

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """`start` logs the whole config."""

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Figures of `step`. Those of a step that the run has already are the same and left out. Never fails."""
        self._keep(metrics, step or 0)
        if time.monotonic() >= self._not_before:
            self._try(self._send, "it is asked again later")

    def log_tables(self, kind: str, tables: Mapping[str, tuple[Sequence[str], Sequence[Sequence[Any]]]], page: str) -> None:
        """Puts `tables` (name: columns, rows) into the run as artifacts `kind`/name.json. An HTML `page` becomes `kind`/page.html."""

        def put() -> None:
            for name, (columns, rows) in tables.items():
                data = plain({column: [row[at] for row in rows] for at, column in enumerate(columns)})
                self.experiment.log_table(self.run_id, data, f"{kind}/{name}.json")
            self.experiment.log_text(self.run_id, page, f"{kind}/page.html")

        self._try(put, f"its tables are in {self.folder}")

    def finalize(self, status: str) -> None:
        """What Lightning says when training ends. Well: evaluation and record follow. Else nothing does."""
        if status != "success":
            self.finish("failed")

    def finish(self, status: str) -> None:
        """Put plan and record into the run as artifacts, the record's figures too, and close it. Never fails."""
        if self.monitor is not None:
            self.monitor.finish()
            self.monitor = None
        self._try(lambda: self._end(status), f"the run there is not whole, its figures are in {self.folder}")

    def _end(self, status: str) -> None:
        figures = headline(read_json(path)) if (path := self.folder / "result.json").exists() else {}
        words = {key: value for key, value in figures.items() if isinstance(value, str)}
        self._keep({key: value for key, value in figures.items() if key not in words}, self._last_step)
        self._send()
        for key, value in words.items():
            self.experiment.set_tag(self.run_id, key, value)
        for file in ARTIFACTS:
            if (self.folder / file).exists():
                self.experiment.log_artifact(self.run_id, str(self.folder / file))
        self.experiment.set_terminated(self.run_id, "FINISHED" if status == "completed" else "FAILED")

    def _keep(self, metrics: Mapping[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now, self._last_step = int(time.time() * 1000), max(self._last_step, step)
        new = {_key(key): float(value) for key, value in metrics.items() if step > self._known.get(_key(key), -1)}
        self._unsent += [Metric(key, value, now, step) for key, value in new.items()]

    def _send(self) -> None:
        while self._unsent:
            self.experiment.log_batch(self.run_id, metrics=self._unsent[:MOST_METRICS])
            del self._unsent[:MOST_METRICS]

    def _try(self, call: Callable[[], None], then: str) -> None:
        """Does `call`. Where it fails, one line says so and what `then`, and the server is left alone for a while."""
        from mlflow.exceptions import MlflowException

        try:
            call()
        except (MlflowException, OSError) as error:
            self._not_before = time.monotonic() + self._pause_s
            self._pause_s *= 2
            print(f"mlflow: {_why(error, self.server)}; {then}", file=sys.stderr, flush=True)


@needs(MLFLOW, LIGHTNING)
def start(
    folder: Path,
    config: Mapping[str, Any],
    name: str,
    group: str | None = None,
    *,
    tracking_uri: Annotated[str, URI] | None = None,
    experiment: Annotated[str, NAME] = "recsys_lab",
    run_name: Annotated[str, NAME] | None = None,
    tags: dict[Annotated[str, TAG], str] | None = None,
    system_metrics_interval_s: Annotated[float, Range(0.1, 86400)] = 5.0,
) -> RunLogger:
    """A Lightning logger on a new MLflow run, with `config` as it ran.

    Args:
        folder, config, name, group: those of `recsys_lab.record.loggers.tensorboard`; `group` becomes the tag `sweep`.
        tracking_uri: None: MLFLOW_TRACKING_URI, or a database in `folder`/mlflow.
        experiment: MLflow's, which is made if it is not there.
        run_name: None: `name`.
        tags: of the run.
        system_metrics_interval_s: between two samples of system metrics.

    Returns:
        The logger. A resumed run continues its MLflow run.

    Raises:
        UserError: where MLflow is not installed, or the server does not answer or refuses.
    """
    from recsys_lab.record.lightning_loggers import OfMLflow  # with torch, which nothing needs before a run

    folder = Path(folder).resolve()
    for variable, value in SETTINGS.items():
        os.environ.setdefault(variable, value)
    uri = tracking_uri or os.environ.get(VARIABLE) or f"{SQLITE}{folder / FOLDER / 'mlflow.db'}"
    client, failure = _client(uri)
    artifacts = None
    if uri.startswith(SQLITE):  # beside the database: MLflow would put them into the working folder
        place = Path(uri.removeprefix(SQLITE)).resolve().parent
        place.mkdir(parents=True, exist_ok=True)
        artifacts = (place / "artifacts").as_uri()
    all_tags = {**(tags or {}), **({"sweep": group} if group else {})}
    server = _without_password(uri)
    try:
        runs = _known_runs(folder)
        if (run := _run(client, runs.get(server))) is None:
            run = _begin(client, _experiment(client, experiment, artifacts), run_name or name, all_tags, plain(dict(config)))
            write_json(folder / FOLDER / RUNS_FILE, runs | {server: run.info.run_id})
        else:
            client.update_run(run.info.run_id, status="RUNNING")
    except failure as error:
        raise UserError(
            _why(error, server), where="logger.tracking_uri", given=server, remedy="start the server, or use another logger: logger=csv"
        ) from None
    steps = {metric.key: metric.step for metric in run.data._metric_objs}  # of each the last; `metrics` has no steps
    logger = OfMLflow(client, run.info.run_id, folder, server, {key: step for key, step in steps.items() if "/" not in key})
    logger.monitor = _monitor(run.info.run_id, uri, system_metrics_interval_s)
    return logger


def _client(uri: str) -> tuple[Any, tuple[type[Exception], ...]]:
    """MLflow's client of the server at `uri`, and what it raises where that fails."""
    try:
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException
    except ModuleNotFoundError:
        raise MLFLOW.refusal("logger", "mlflow") from None
    for library in ("mlflow", "alembic", "urllib3.connectionpool"):
        logging.getLogger(library).setLevel(logging.ERROR)  # how it makes its tables, and that it tries again
    try:
        return MlflowClient(uri), (MlflowException, OSError)
    except MlflowException as error:
        raise UserError(_why(error, uri), where="logger.tracking_uri", given=_without_password(uri)) from None


def _experiment(client: Any, name: str, artifacts: str | None) -> str:
    """The id of the experiment `name`, made where there is none."""
    from mlflow.exceptions import MlflowException

    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        try:
            return client.create_experiment(name, artifact_location=artifacts)
        except MlflowException:
            if (experiment := client.get_experiment_by_name(name)) is None:  # else another job of the sweep was faster
                raise
    if experiment.lifecycle_stage == "deleted":
        raise UserError("that experiment was deleted", where="logger.experiment", given=name, remedy="restore it, or name another")
    return experiment.experiment_id


def _begin(client: Any, experiment_id: str, name: str, tags: Mapping[str, str], config: dict[str, Any]) -> Any:
    """A run with the config. Each value is a parameter, cut where MLflow takes no more. All of it is in config.json."""
    from mlflow.entities import Param
    from mlflow.tracking.context.registry import resolve_tags

    run = client.create_run(experiment_id, run_name=name, tags=resolve_tags(dict(tags)))
    params = [Param(_key(key)[:LONGEST_KEY], str(value)[:LONGEST_VALUE]) for key, value in _flat(config)]
    for at in range(0, len(params), MOST_PARAMS):
        client.log_batch(run.info.run_id, params=params[at : at + MOST_PARAMS])
    client.log_dict(run.info.run_id, config, "config.json")
    return run


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


def _known_runs(folder: Path) -> dict[str, str]:
    """Runs that this run folder has, by server."""
    path = folder / FOLDER / RUNS_FILE
    return read_json(path) if path.exists() else {}


def _flat(config: Mapping[str, Any], above: str = "") -> list[tuple[str, Any]]:
    """Its values by their path, `model.dropout`."""
    pairs = []
    for key, value in config.items():
        pairs += _flat(value, f"{above}{key}.") if isinstance(value, Mapping) and value else [(f"{above}{key}", value)]
    return pairs


def _key(key: str) -> str:
    """`key` in the characters that MLflow takes."""
    return re.sub(r"[^A-Za-z0-9_./ -]", "_", key)


def _without_password(uri: str) -> str:
    parts = urlsplit(uri)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _why(error: Exception, server: str) -> str:
    """What the client said, in one line without the requests and retries behind it."""
    answered = getattr(error, "json", None) is not None or "response code" in str(error)
    message = str(error).split("\n")[0]
    if answered or not server.startswith("http"):
        return f"MLflow refuses: {message}"
    return f"no MLflow server answers at {server}"
