"""A search: what it may vary, how trials are judged and cut, and that the same command does the same again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recsys_lab.config.search_space import Axis, read_space
from recsys_lab.errors import UserError
from recsys_lab.record.metrics_csv import MetricsCsv
from recsys_lab.sweeps.search import SearchOptions, best, search
from recsys_lab.sweeps.table import read_ablation
from tests.end_to_end.lines import SMALL, line, result
from tests.record.fake_run import make_result

RATE = "optimizer.sparse.lr=tag(log,interval(1e-4,1e-1))"
OPTIONS = SearchOptions("auc", n_trials=12, startup_trials=4, sampler="tpe", seed=1, prune=True)


class Runs:
    """In place of training: the quality of a run is a function of its rate and seed; a bound in its overrides cuts it after an epoch."""

    def __init__(self, folder: Path):
        self.folder, self.jobs = folder, []

    def __call__(self, overrides: tuple[str, ...]) -> Path:
        self.jobs.append(overrides)
        folder = self.folder / str(len(self.jobs))
        folder.mkdir(parents=True)
        words = dict(word.split("=", 1) for word in overrides)
        rate, seed = float(words["optimizer.sparse.lr"]), int(words.get("seed", 1))
        auc = 0.8 - 0.05 * abs(rate - 0.01) / 0.01 + 0.001 * seed
        MetricsCsv(folder).append({"step": 10, "epoch": 0, "validation_auc": auc - 0.1})
        bounds = json.loads(words["+ablation.prune"].split("bounds:")[1][:-1]) if "+ablation.prune" in words else []
        record = make_result().to_json()
        if bounds and auc - 0.1 < bounds[0]:
            record |= {"status": "pruned", "pruned": {"metric": "auc", "epoch": 1, "value": auc - 0.1, "bound": bounds[0]}}
        else:
            MetricsCsv(folder).append({"step": 20, "epoch": 1, "validation_auc": auc})
            record["quality"]["validation"]["auc"] = auc
        (folder / "result.json").write_text(json.dumps(record))
        return folder


def test_what_may_vary_is_read_from_overrides() -> None:
    space = read_space(["data=synthetic", RATE, "model=dlrm,dcn", "a.b=range(1,8,2)", "c=int(interval(0,5))", "seed=3,4"])
    assert space.fixed == ("data=synthetic",) and space.seeds == ("3", "4")
    assert space.axes == (
        Axis("optimizer.sparse.lr", (), 1e-4, 1e-1, None, False, True),
        Axis("model", ("dlrm", "dcn")),
        Axis("a.b", (), 1, 7, 2, True),
        Axis("c", (), 0, 5, None, True),
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["model=dcn"], "a search needs something to vary"),
        (["seed=1,2"], "a search needs something to vary"),
        (["x=interval(2,1)"], "x: not an interval"),
        (["x=tag(log,interval(0,1))"], "above 0 with tag"),
        (["x=1,2", "seed=interval(1,2)"], "seeds are an axis of their own"),
    ],
)
def test_what_cannot_be_searched_is_one_line(words: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_space(words)


@pytest.mark.parametrize(
    ("changed", "message"),
    [({"metric": "au"}, "did you mean 'auc'"), ({"sampler": "grid"}, "no such choice"), ({"n_trials": 0}, "out of range")],
)
def test_options_that_cannot_be_are_one_line(changed: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        SearchOptions(**{**vars(OPTIONS), **changed})


def test_bad_trials_are_cut_and_the_best_comes_near_the_optimum(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    trials = search(read_space([RATE, "seed=1,2"]), OPTIONS, tmp_path, runs)
    assert len(trials) == 12 and [t.state for t in trials[:4]] == ["completed"] * 4
    pruned = [t for t in trials if t.state == "pruned"]
    assert pruned and len(runs.jobs) < 24
    winner = best(trials, OPTIONS)
    assert winner is not None and winner.value == max(t.value for t in trials if t.state == "completed")
    assert 0.003 < float(winner.overrides[0].split("=")[1]) < 0.03
    record = json.loads((tmp_path / "search.json").read_text())
    assert record["best"]["value"] == winner.value and [t["state"] for t in record["trials"]] == [t.state for t in trials]


def test_a_bound_is_the_median_of_earlier_trials_after_that_epoch(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    trials = search(read_space([RATE]), OPTIONS, tmp_path, runs)
    for number in range(4, 12):
        earlier = sorted(t.after_epoch(0) for t in trials[:number])
        middle = (earlier[(number - 1) // 2] + earlier[number // 2]) / 2
        bound = dict(word.split("=", 1) for word in runs.jobs[number])["+ablation.prune"]
        assert json.loads(bound.split("bounds:")[1][:-1]) == [pytest.approx(middle)]
        assert (trials[number].state == "pruned") == (trials[number].after_epoch(0) < middle)


def test_the_same_command_proposes_the_same(tmp_path: Path) -> None:
    jobs = []
    for name in ("a", "b"):
        runs = Runs(tmp_path / name)
        search(read_space([RATE, "seed=1,2"]), OPTIONS, tmp_path / name, runs)
        jobs.append(runs.jobs)
    assert jobs[0] == jobs[1]


def test_a_failed_run_is_a_failed_trial_and_the_search_goes_on(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    trials = search(read_space([RATE, "seed=1,2"]), OPTIONS, tmp_path, lambda words: None if len(runs.jobs) == 2 else runs(words))
    assert {t.state for t in trials} == {"completed", "failed"} and best(trials, OPTIONS) is not None


def test_without_pruning_every_seed_runs_to_its_end(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    search(read_space([RATE, "seed=1,2"]), SearchOptions(**{**vars(OPTIONS), "prune": False, "n_trials": 6}), tmp_path, runs)
    assert len(runs.jobs) == 12 and not any("ablation" in " ".join(words) for words in runs.jobs)


@pytest.mark.long
def test_a_search_of_real_runs_and_again(tmp_path: Path) -> None:
    words = ("-m", "hydra/sweeper=optuna", "optimizer.sparse.lr=tag(log,interval(1e-5,1e-1))", "seed=1,2", *SMALL, "mode=train")
    words += ("hydra.sweeper.n_trials=4", "hydra.sweeper.startup_trials=1", "hydra.sweeper.seed=3", f"hydra.sweep.dir={tmp_path / 'sweep'}")
    words += ("launcher.hosts=1", "launcher.ranks_per_host=1", "ablation.baseline=none")
    process = line(*words, cache=tmp_path / "cache", timeout_s=280)
    assert process.code == 0, process.err
    trials = json.loads((tmp_path / "sweep" / "search.json").read_text())["trials"]
    assert "best" in process.out and {t["state"] for t in trials} == {"completed", "pruned"}
    table = read_ablation(tmp_path / "sweep")
    assert any(row.status.startswith("pruned") for row in table.rows) and not any(job.failed for row in table.rows for job in row.jobs)
    assert "pruned" in (tmp_path / "sweep" / "ablation.md").read_text()
    again = line(*words, cache=tmp_path / "cache", timeout_s=280)
    assert again.code == 0 and again.out.count("not repeated") == len(list((tmp_path / "sweep").glob("*/result.json")))
    assert json.loads((tmp_path / "sweep" / "search.json").read_text())["trials"] == trials


@pytest.mark.long
def test_a_run_that_is_cut_says_where(tmp_path: Path) -> None:
    cut = "+ablation.prune={metric:auc,bounds:[0.99]}"
    words = (*SMALL, "launcher.hosts=1", "launcher.ranks_per_host=2", "mode=train", f"hydra.run.dir={tmp_path / 'run'}")
    assert line(*words, cut, cache=tmp_path / "cache").code == 0
    record = result(tmp_path / "run")
    assert record["status"] == "pruned" and record["pruned"]["epoch"] == 1 and record["pruned"]["bound"] == 0.99
    assert "Cut short by a search" in (tmp_path / "run" / "report.html").read_text()
