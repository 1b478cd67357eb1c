"""logger=mlflow with a real MLflow server: what a run left there is read back through MLflow's own client."""

from __future__ import annotations

import csv
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recsys_lab.record import loggers, mlflow_run
from tests.ecosystem.mlflow_server import Server, a_port
from tests.ecosystem.packages import wants
from tests.end_to_end.lines import SMALL, line, result

pytestmark = [wants("mlflow"), pytest.mark.timeout(600)]
CONFIG = {"model": {"name": "dcn", "layers": [3, 4]}, "seed": 7}
RESULT = {"status": "completed", "quality": {"validation": {"auc": 0.75}}, "measured": {"iteration_ms": {"median": 8.0, "p95": 9.0}}}
TRAIN = ("model=dcn", "mode=train", "launcher.hosts=1", "launcher.ranks_per_host=2", *(word for word in SMALL if word != "logger=none"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server"), a_port())
    server.start()
    yield server
    server.stop()


@pytest.fixture
def client(server: Server) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(server.uri)


def figures(client: Any, run_id: str, key: str) -> dict[int, float]:
    """By step. Each step once."""
    history = client.get_metric_history(run_id, key)
    assert len({one.step for one in history}) == len(history)
    return {one.step: one.value for one in history}


def run_named(client: Any, name: str) -> Any:
    (run,) = client.search_runs([client.get_experiment_by_name("tests").experiment_id], f"tags.mlflow.runName = '{name}'")
    return run


def test_a_run_has_its_figures_config_and_artifacts_on_the_server(server: Server, client: Any, tmp_path: Path) -> None:
    where = ("logger=mlflow", f"logger.tracking_uri={server.uri}", "logger.experiment=tests", "logger.run_name=one")
    where = (*where, "logger.tags={team: ads}")
    done = line(*TRAIN, *where, "logger.system_metrics_interval_s=0.2", f"hydra.run.dir={tmp_path / 'run'}", cache=tmp_path / "cache")
    assert done.code == 0, done.err
    run = run_named(client, "one")
    assert run.info.status == "FINISHED" and run.data.tags["team"] == "ads" and run.data.tags["status"] == "completed"
    assert run.data.params["model.dropout"] == "0.1" and run.data.params["seed"] == "1"
    with open(tmp_path / "run" / "metrics.csv") as file:
        rows = list(csv.DictReader(file))
    losses = {int(row["step"]): float(row["train_loss"]) for row in rows if row["train_loss"]}
    assert losses and figures(client, run.info.run_id, "train_loss") == losses
    judged = [float(row["validation_auc"]) for row in rows if row["validation_auc"]]
    assert len(judged) == 2 and list(figures(client, run.info.run_id, "validation_auc").values()) == judged
    assert run.data.metrics["validation/auc"] == result(tmp_path / "run")["quality"]["validation"]["auc"]
    assert run.data.metrics["measured/examples_per_second"] == result(tmp_path / "run")["measured"]["examples_per_second"]
    assert "system/cpu_utilization_percentage" in run.data.metrics
    assert {one.path for one in client.list_artifacts(run.info.run_id)} == {"config.json", "plan.json", "report", "result.json"}
    kept = {one.path for one in client.list_artifacts(run.info.run_id, "report")}
    assert {f"report/{name}" for name in ("page.html", "plan_by_rank.json", "collectives.json", "learning_curve.json")} <= kept
    page = Path(client.download_artifacts(run.info.run_id, "report/page.html", str(tmp_path)))
    assert page.read_text() == (tmp_path / "run" / "report.html").read_text()
    assert (run.data.tags["model"], run.data.tags["sharder"]) == ("dcn", "torchrec")
    assert run.data.metrics["plan/fullest_bytes"] == result(tmp_path / "run")["plan"]["fullest_bytes"]
    for name in ("plan.json", "result.json"):
        got = Path(client.download_artifacts(run.info.run_id, name, str(tmp_path)))
        assert got.read_bytes() == (tmp_path / "run" / name).read_bytes()
    kept = json.loads(Path(client.download_artifacts(run.info.run_id, "config.json", str(tmp_path))).read_text())
    assert kept["model"]["dropout"] == 0.1 and kept["logger"]["experiment"] == "tests"


def test_what_a_server_did_not_take_comes_when_it_is_back(server: Server, client: Any, tmp_path: Path, capsys: Any) -> None:
    logger = mlflow_run.start(tmp_path, CONFIG, "away", "sweep-1", tracking_uri=server.uri, experiment="tests")
    logger.log_metrics({"train_loss": 0.5}, step=10)
    server.stop()
    for step in (20, 30):
        logger.log_metrics({"train_loss": 1 / step}, step=step)
    assert capsys.readouterr().err.splitlines() == [f"mlflow: no MLflow server answers at {server.uri}; it is called again later"]
    server.start()
    (tmp_path / "result.json").write_text(json.dumps(RESULT))
    loggers.finish(logger, "completed")
    run = client.get_run(logger.run_id)
    assert figures(client, logger.run_id, "train_loss") == {10: 0.5, 20: 1 / 20, 30: 1 / 30}
    assert run.data.metrics["measured/iteration_ms"] == 8.0 and run.data.tags["sweep"] == "sweep-1" and run.info.status == "FINISHED"


def test_a_resumed_run_goes_on_in_the_same_run(server: Server, client: Any, tmp_path: Path) -> None:
    first = mlflow_run.start(tmp_path, CONFIG, "resumed", tracking_uri=server.uri, experiment="tests")
    for step in (10, 20):
        first.log_metrics({"train_loss": 1 / step}, step=step)
    first.finalize("failed")
    assert client.get_run(first.run_id).info.status == "FAILED"
    second = mlflow_run.start(tmp_path, CONFIG | {"resume": "run"}, "resumed", tracking_uri=server.uri, experiment="tests")
    assert second.run_id == first.run_id and client.get_run(first.run_id).info.status == "RUNNING"
    for step in (20, 30):
        second.log_metrics({"train_loss": 1 / step}, step=step)
    second.log_tables("study", {"lines": (("what", "ours"), [("rows", 3), ("bytes", None)])}, "<p>page</p>")
    loggers.finish(second, "completed")
    assert figures(client, first.run_id, "train_loss") == {10: 0.1, 20: 1 / 20, 30: 1 / 30}
    assert {one.path for one in client.list_artifacts(first.run_id, "study")} == {"study/lines.json", "study/page.html"}
    assert client.get_run(first.run_id).info.status == "FINISHED"


def test_a_training_outlives_its_server(tmp_path: Path) -> None:
    (tmp_path / "server").mkdir()
    server = Server(tmp_path / "server", a_port())
    server.start()

    def stop() -> None:
        until = time.monotonic() + 200
        while not list((tmp_path / "run" / "checkpoints").glob("step=*")) and time.monotonic() < until:
            time.sleep(0.02)
        server.stop()

    thread = threading.Thread(target=stop)
    thread.start()
    where = ("logger=mlflow", f"logger.tracking_uri={server.uri}")
    done = line(*TRAIN, *where, f"hydra.run.dir={tmp_path / 'run'}", cache=tmp_path / "cache", timeout_s=400)
    thread.join()
    assert done.code == 0 and result(tmp_path / "run")["status"] == "completed", done.err
    last = f"mlflow: no MLflow server answers at {server.uri}; the run there is not whole, its figures are in {tmp_path / 'run'}"
    assert done.err.splitlines()[-1] == last and "Traceback" not in done.err


def test_a_server_that_is_not_there_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    uri = f"http://127.0.0.1:{a_port()}"
    words = ("mode=plan", "logger=mlflow", f"logger.tracking_uri={uri}", f"hydra.run.dir={tmp_path / 'run'}")
    done = line(*words, cache=tmp_path / "cache")
    told = f"error: logger.tracking_uri: no MLflow server answers at {uri}; given {uri}; "
    told += "start the server, or use another logger: logger=csv"
    assert (done.code, done.err.splitlines()) == (2, [told])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("named", [None, "shared/runs.db"])
def test_without_a_server_the_run_is_in_its_folder_or_beside_the_database(named: str | None, tmp_path: Path, monkeypatch: Any) -> None:
    from mlflow import MlflowClient

    monkeypatch.delenv(mlflow_run.VARIABLE, raising=False)
    (elsewhere := tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(elsewhere)
    (run := tmp_path / "run").mkdir()
    (run / "plan.json").write_text('{"schema": 1}')
    logger = mlflow_run.start(run, CONFIG, "own", tracking_uri=named and f"sqlite:///{tmp_path / named}")
    logger.log_metrics({"train_loss": 0.5}, step=10)
    loggers.finish(logger, "completed")
    database = tmp_path / (named or "run/mlflow/mlflow.db")
    client = MlflowClient(f"sqlite:///{database}")
    assert figures(client, logger.run_id, "train_loss") == {10: 0.5}
    assert list(database.parent.rglob("plan.json")) and not list(elsewhere.iterdir())
