"""W&B offline: what the client wrote is read back from its own files."""

from __future__ import annotations

import json
import os
import shlex
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import wandb
from omegaconf import OmegaConf
from rich.console import Console

from recsys_lab.base.packages import is_there
from recsys_lab.base.schema import checked, schema_of
from recsys_lab.errors import UserError
from recsys_lab.plan.serialise import load_plan
from recsys_lab.record import loggers, wandb_run
from recsys_lab.record.baselines import Baselines
from recsys_lab.record.metrics_csv import read_metrics
from recsys_lab.record.run_folder import read_config
from recsys_lab.report import say
from recsys_lab.report.tracker import publish
from recsys_lab.simulate.simulated import Interval
from recsys_lab.sweeps.ablation import log_ablation, write_ablation
from tests.record.fake_run import make_result, write_run
from tests.record.offline_wandb import OfflineRun
from tests.sweeps.test_ablation import sweep

CONFIG = {"model": {"name": "dcn", "layers": 3}, "seed": 7}
RESULT = {
    "status": "completed",
    "quality": {"validation": {"auc": 0.75, "ne": 0.9}},
    "measured": {"examples_per_second": 1000.0, "iteration_ms": {"median": 8.0, "p95": 9.0}},
    "simulated": {"examples_per_second": 5e6, "iteration_ms": 3.0},
}


#: Where W&B's client writes the address of the service that it started.
SERVICE = "WANDB_SERVICE"


@pytest.fixture(autouse=True)
def not_logged_in(monkeypatch, tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    os.environ.pop(SERVICE, None)
    for key in [k for k in os.environ if k.startswith("WANDB_")]:
        monkeypatch.delenv(key)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("NETRC", raising=False)
    yield home
    os.environ.pop(SERVICE, None)  # a later test's process would ask this one's service, which may be gone


def run_job(folder: Path, seed: int = 7, group: str | None = None, finish: bool = True, wait_s: float = 0.0):
    folder.mkdir(parents=True, exist_ok=True)
    logger = wandb_run.start(folder, CONFIG | {"seed": seed}, f"dcn-seed{seed}", group, system_metrics_interval_s=0.2)
    for step in (10, 20, 30):
        logger.lightning.log_metrics({"train_loss": seed + 1 / step}, step=step)
        time.sleep(wait_s)
    if finish:
        for plan in ("plan.json", "plan_here.json"):
            (folder / plan).write_text('{"schema": 1}')
        (folder / "result.json").write_text(json.dumps(RESULT))
        loggers.finish(logger, "completed")
    return logger


def test_a_run_holds_config_metrics_by_step_system_metrics_artifacts_and_summary(tmp_path, not_logged_in):
    folder = tmp_path / "run"
    run_job(folder, wait_s=0.5)
    run = OfflineRun(folder)
    assert run.config["model"] == CONFIG["model"] and run.config["seed"] == 7
    logged = {int(row["trainer/global_step"]): row["train_loss"] for row in run.history}
    assert logged == {step: 7 + 1 / step for step in (10, 20, 30)}
    assert run.artifacts == {"plan": ["plan.json", "plan_here.json"], "result": ["result.json"]}
    assert run.summary["validation/auc"] == 0.75
    assert run.summary["measured/iteration_ms"] == 8.0 and run.summary["simulated/iteration_ms"] == 3.0
    assert any("cpu" in item.key for stats in run.of("stats") for item in stats.item), "no system metrics"
    assert run.run.project == "recsys_lab" and run.exit_code == 0


def test_a_finished_run_shows_what_its_report_shows(tmp_path):
    """Every table and the page, in numbers where they are numbers; the interval, cost, fit, phases and memory in the summary."""
    (sweep_folder := tmp_path / "sweep").mkdir()
    (sweep_folder / "sweep.json").touch()
    made = make_result()
    simulated = replace(made.simulated, interval_ms=Interval(2.0, 3.0), cost_per_billion_samples=1.5)
    regression = {"validation": {"auc": 0.7, "log_loss": 0.5}}
    baselines = Baselines({"validation": {"auc": 0.5, "log_loss": 0.6}}, regression, 1.0, 20_000, 20_000)
    folder = write_run(sweep_folder / "0", replace(made, simulated=simulated, baselines=baselines))
    record, config = json.loads((folder / "result.json").read_text()), read_config(folder)
    logger = wandb_run.start(folder, config, "one", sweep_folder.name, mode="offline", tags=["ads"])
    publish(logger, folder)
    run = OfflineRun(folder)
    assert run.run.run_group == "sweep" and set(run.run.tags) == {"ads", "dcn", "torchrec", "fp32", "h100x64", "synthetic"}
    logged = {key.removeprefix("report/"): value for row in run.history for key, value in row.items() if key.startswith("report/")}
    files = run.path.parent / "files"
    assert (files / logged["page.path"]).read_text() == (folder / "report.html").read_text()
    paths = {key.removesuffix(".path"): files / value for key, value in logged.items() if key.endswith(".path") and key != "page.path"}
    tables = {name: json.loads(path.read_text()) for name, path in paths.items()}
    assert {"headline", "quality", "learning_curve", "iteration", "collectives", "plan_by_rank", "plan_by_table"} <= set(tables)
    by_rank = tables["plan_by_rank"]
    assert len(by_rank["data"]) == 64 and [row[:2] for row in by_rank["data"]] == [[rank, rank // 8] for rank in range(64)]
    assert max(row[-1] for row in by_rank["data"]) == max(load_plan(folder / "plan.json").weight_bytes_of_ranks())
    sent = {(row[0], row[1], row[4]) for row in tables["collectives"]["data"]}
    assert sent == {(origin, c["name"], c["bytes"]) for origin in ("measured", "simulated") for c in record[origin]["collectives"]}
    curve = tables["learning_curve"]
    losses = {row[0]: row[curve["columns"].index("train_loss")] for row in curve["data"]}
    assert losses == {row["step"]: row["train_loss"] for row in read_metrics(folder)} and len(losses) == 20
    assert [row[:2] for row in tables["baselines"]["data"]] == [["validation, logistic regression", 0.7], ["validation, base rate", 0.5]]
    simulated, summary = record["simulated"], run.summary
    assert (summary["simulated/interval_ms/low"], summary["simulated/interval_ms/high"]) == (2.0, 3.0)
    assert summary["simulated/cost_per_billion_samples"] == 1.5 and summary["plan/fits"] is True
    assert summary["baselines/logistic_regression/validation/auc"] == 0.7
    assert summary["simulated/phases_ms/compute"] == simulated["phases_ms"]["compute"]
    assert summary["measured/peak_memory_bytes"] == record["measured"]["peak_memory_bytes"]


def test_the_terminal_says_how_offline_runs_are_sent(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(say, "CONSOLE", Console(highlight=False, soft_wrap=True))
    for place in ("my runs/wandb/offline-run-1", "sweep/wandb/offline-run-1", "sweep/0/wandb/offline-run-1", "online/wandb/run-1"):
        (tmp_path / place).mkdir(parents=True)
    for name in ("my runs", "sweep", "online"):
        say.offline(tmp_path / name)
    own = [shlex.split(line)[1:] for line in capsys.readouterr().out.splitlines() if "wandb sync" in line]
    assert own == [
        ["sync", f"{tmp_path}/my runs/wandb/offline-run-*"],
        ["sync", f"{tmp_path}/sweep/wandb/offline-run-*", f"{tmp_path}/sweep/*/wandb/offline-run-*"],
    ]


def test_nothing_is_written_outside_the_run_folder(tmp_path, not_logged_in, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    run_job(tmp_path / "run")
    assert not list(elsewhere.iterdir())
    ours = [p for p in not_logged_in.rglob("*") if p.is_file() and "matplotlib" not in str(p)]
    assert not ours, ours
    assert not [key for key in os.environ if key.startswith("WANDB_") and key.endswith("_DIR")]


def test_jobs_of_one_process_never_share_a_run(tmp_path):
    sweep = tmp_path / "sweep"
    open_before = run_job(sweep / "0", seed=1, group=sweep.name, finish=False)  # left open by a job that failed
    run_job(sweep / "1", seed=2, group=sweep.name)
    run_job(sweep / "2", seed=3, group=sweep.name)
    loggers.finish(open_before, "failed")
    runs = [OfflineRun(sweep / str(job)) for job in range(3)]
    assert len({run.run.run_id for run in runs}) == 3
    assert {run.run.run_group for run in runs} == {"sweep"}
    for seed, run in enumerate(runs, start=1):
        assert [row["train_loss"] for row in run.history] == [seed + 1 / step for step in (10, 20, 30)]
    assert [run.exit_code for run in runs] == [1, 0, 0]


def test_a_run_resumed_offline_is_linked_to_the_first(tmp_path):
    first = run_job(tmp_path / "run").experiment.id
    (offline,) = (tmp_path / "run/wandb").glob("offline-run-*")
    offline.rename(tmp_path / "first")
    second = run_job(tmp_path / "run").experiment.id
    assert OfflineRun(tmp_path / "run").config["resumed_from"] == first
    assert json.loads((tmp_path / "run/wandb/ids.json").read_text()) == [first, second] and first != second


def test_online_without_a_login_is_refused_and_writes_nothing(tmp_path):
    with pytest.raises(UserError, match=r"logger.mode: not logged in to W&B; given online; run `wandb login`"):
        wandb_run.start(tmp_path, CONFIG, "x", mode="online")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("WANDB_MODE", "nope"),
        ("WANDB_BASE_URL", "nope"),
        ("WANDB_SILENT", "nope"),
        (SERVICE, "nope"),
        (SERVICE, "3-1-unix-/tmp/no_such_socket"),  # of a process that has ended
    ],
)
def test_a_variable_that_wandb_refuses_is_one_line(tmp_path, monkeypatch, name, value):
    wandb.teardown()  # a process reads its variables once
    monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match=r"logger: W&B refuses: .*; mend or unset its variable WANDB_"):
        wandb_run.start(tmp_path, CONFIG, "x")


def test_an_unknown_mode_is_refused():
    with pytest.raises(UserError, match="logger.mode: .*given on; allowed: auto, online, offline"):
        checked({"mode": "on"}, schema_of(wandb_run.start), "logger")


def test_a_login_is_found_in_the_environment_and_in_netrc(not_logged_in, monkeypatch):
    assert not wandb_run.logged_in()
    file = not_logged_in / ".netrc"
    file.write_text(f"machine api.wandb.ai login user password {'0' * 40}\n")
    file.chmod(0o600)
    assert wandb_run.logged_in()
    file.unlink()
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    assert wandb_run.logged_in()


def test_a_sweep_has_a_run_of_its_own_with_its_tables_and_its_page(tmp_path, not_logged_in):
    folder = sweep(tmp_path / "s")
    made = write_ablation(folder)
    log_ablation(made, OmegaConf.create({"_target_": "recsys_lab.record.wandb_run.start", "mode": "offline", "project": "recsys_lab"}))
    run = OfflineRun(folder)
    logged = {key.removeprefix("ablation/"): value for row in run.history for key, value in row.items() if key.startswith("ablation/")}
    tables = {"quality_validation_measured", "speed_measured", "speed_simulated"}
    changes = {f"change_from_the_baseline_{name}" for name in tables}  # three seeds carry no test
    kinds = {key.removesuffix("._type"): value for key, value in logged.items() if key.endswith("._type")}
    assert kinds == {"page": "html-file"} | dict.fromkeys(tables | changes, "table-file")
    files = run.path.parent / "files"
    table = json.loads((files / logged["quality_validation_measured.path"]).read_text())
    assert [row[0] for row in table["data"]] == ["dlrm", "dcn"] and table["columns"][0] == "model"
    assert (files / logged["page.path"]).read_text() == (folder / "ablation.html").read_text()
    assert run.run.run_group == "s" and run.exit_code == 0


def test_another_logger_leaves_no_wandb_run_of_the_sweep(tmp_path):
    folder = sweep(tmp_path / "s")
    log_ablation(write_ablation(folder), OmegaConf.create({"_target_": "recsys_lab.record.loggers.none"}))
    assert not (folder / "wandb").exists()


def test_the_agent_of_ranks_is_named_what_a_training_with_wandb_imports():
    named = loggers.libraries(partial(wandb_run.start, project="p"))
    assert named == wandb_run.LIBRARIES and all(map(is_there, named)) and named[0] == "wandb"
    assert loggers.libraries(partial(loggers.csv)) == ()
