"""A trained model is evaluated elsewhere and trained on: `start_from=RUN`, as a user gives the lines."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from sklearn.metrics import roc_auc_score

from recsys_lab.config.command_line import read
from recsys_lab.errors import UserError
from recsys_lab.record.metrics import quality
from tests.end_to_end.lines import SMALL, Done, killed, last_checkpoint, line, result
from tests.end_to_end.stores import contents


def test_a_run_evaluates_to_its_own_quality_under_another_sharder_on_another_number_of_ranks(
    undisturbed: tuple[Path, Done], cache: Path, tmp_path: Path
) -> None:
    """The same bits: the order of sums does not reach across samples. Its predictions have that AUC."""
    run, file = undisturbed[0], tmp_path / "predictions.parquet"
    words = (f"start_from={run}", "mode=evaluate", "sharder=torchrec_row_wise", "launcher.hosts=1", "launcher.ranks_per_host=1")
    parts = ("evaluate.by=C1", "evaluate.group=C2")
    done = line(*words, *parts, f"predictions={file}", f"hydra.run.dir={tmp_path / 'run'}", cache=cache)
    assert done.code == 0, done.err
    record = result(tmp_path / "run")
    assert record["quality"] == result(run)["quality"] and record["measured"] is None and record["mode"] == "evaluate"
    for split in ("validation", "test"):
        assert record["breakdown"][split]["reliability"] == result(run)["breakdown"][split]["reliability"]
    by, grouped = (record["breakdown"]["test"][key] for key in ("by", "grouped"))
    rows = [one["quality"]["examples"] for one in (*by["C1"]["values"], by["C1"]["others"])]
    assert sum(rows) == grouped["examples"] + grouped["one_class_examples"] == 1500 and "GAUC by C2" in done.out
    assert record["started_from"]["partly"] == {} and record["started_from"]["not_taken"] == {}
    table = pl.read_parquet(file)
    assert table.columns == ["row", "label", "probability"] and table["row"].to_list() == list(range(1500))
    p = table["probability"].to_numpy()
    assert abs(quality(np.log(p / (1 - p)), table["label"].to_numpy())["auc"] - record["quality"]["test"]["auc"]) < 1e-6
    assert (tmp_path / "run" / "report.html").is_file()


@pytest.mark.parametrize(
    "sharder", ["flexshard_3tier", *(pytest.param(name, marks=pytest.mark.long) for name in ("neo_4d", "torchrec_2d", "dmt_sptt"))]
)
def test_whatever_sharder_trained_it_one_rank_finds_the_runs_own_auc(sharder: str, cache: Path, tmp_path: Path) -> None:
    run, again = tmp_path / "run", tmp_path / "again"
    trained = line(*SMALL, f"sharder={sharder}", "trainer.max_steps=6", "launcher.hosts=2", f"hydra.run.dir={run}", cache=cache)
    assert trained.code == 0, trained.err
    assert result(run)["ended_by"] == {"key": "trainer.max_steps", "steps": 6, "of_steps": 48}
    elsewhere = ("sharder=torchrec_row_wise", "launcher.hosts=1", "launcher.ranks_per_host=1")
    done = line(f"start_from={run}", "mode=evaluate", *elsewhere, f"hydra.run.dir={again}", cache=cache)
    assert done.code == 0, done.err
    assert result(again)["quality"] == result(run)["quality"] and result(again)["breakdown"] == result(run)["breakdown"]


@pytest.mark.long
def test_towers_are_part_of_the_model_on_any_number_of_ranks(cache: Path, tmp_path: Path) -> None:
    """Another sharder has none of them. Their number is that of the cluster's hosts."""
    run, again = tmp_path / "run", tmp_path / "again"
    ranks = ("launcher.hosts=1", "launcher.ranks_per_host=1")
    trained = line(*SMALL, "sharder=dmt", "trainer.max_steps=6", "launcher.hosts=2", f"hydra.run.dir={run}", cache=cache)
    assert trained.code == 0, trained.err
    for words in (("sharder=torchrec_row_wise",), ()):
        refused = line(f"start_from={run}", "mode=evaluate", *words, *ranks, f"hydra.run.dir={again}", cache=cache)
        assert refused.code == 2 and "tower modules are part of the model" in refused.err and refused.err.count("\n") == 1, refused.err
    done = line(f"start_from={run}", "mode=evaluate", "cluster=h100", "cluster.hosts=2", *ranks, f"hydra.run.dir={again}", cache=cache)
    assert done.code == 0 and result(again)["quality"] == result(run)["quality"], done.err


def test_training_goes_on_with_another_optimizer_and_says_what_was_taken(
    undisturbed: tuple[Path, Done], cache: Path, tmp_path: Path
) -> None:
    run = undisturbed[0]
    words = (f"start_from='{last_checkpoint(run)}'", "trainer.max_steps=3", "launcher.hosts=1")
    done = line(*words, "optimizer=row_wise_adagrad", f"hydra.run.dir={tmp_path / 'run'}", cache=cache)
    assert done.code == 0, done.err
    record = result(tmp_path / "run")
    assert record["started_from"]["taken"] > 26 and "weights: " in done.out
    assert record["quality"]["validation"]["auc"] > result(run)["quality"]["validation"]["auc"] - 0.05


def test_another_model_is_not_evaluated(undisturbed: tuple[Path, Done], cache: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    done = line(f"start_from={undisturbed[0]}", "mode=evaluate", "model.cross_layers=4", f"hydra.run.dir={folder}", cache=cache)
    assert done.code == 2 and "not the one that was trained" in done.err and done.err.count("\n") == 1, done.err
    assert not folder.exists()


def clicks(path: Path, rows: int, seed: int, labelled: bool = True, device: bool = True) -> None:
    """A CSV whose clicks follow user and price; later files have users that the first has not. `device`: a column that nobody trains on."""
    draw = np.random.default_rng(seed)
    users, prices = draw.integers(0, 40 + seed, rows), draw.normal(3, 2, rows).round(2)
    labels = (draw.random(rows) < 1 / (1 + np.exp(-np.sin(users) * 2 - prices / 4))).astype(int)
    devices = draw.choice(["phone", "tablet", "watch"], rows, p=[0.6, 0.36, 0.04])
    columns = {"user": [f"u{user}" for user in users], "price": prices, "day": draw.choice(["mon", "tue"], rows)}
    columns |= {"device": devices} if device else {}
    pl.DataFrame(({"clicked": labels} if labelled else {}) | columns).write_csv(path)


def test_a_new_file_is_judged_and_predicted_with_the_vocabulary_of_the_run_folder_alone(cache: Path, tmp_path: Path) -> None:
    """Nothing of the data that it was trained on is there any more; the run folder has been moved."""
    data, new = tmp_path / "data", tmp_path / "new.csv"
    data.mkdir()
    clicks(data / "clicks.csv", 1500, seed=0, device=False)
    words = ("data=table", f"data.root={data}", "data.label=clicked", "logger=none", "baselines=false", "launcher.hosts=1")
    done = line(*words, "trainer.max_epochs=2", f"hydra.run.dir={tmp_path / 'run'}", cache=cache)
    assert done.code == 0, done.err
    run = (tmp_path / "run").rename(tmp_path / "moved")
    (data / "clicks.csv").unlink()
    data.rmdir()

    clicks(new, 400, seed=9)
    by_device = ("evaluate.by=device", "evaluate.group=user", "evaluate.min_rows=50")
    begin = (f"start_from={run}", f"data.splits.test={new}", *by_device)
    first, second = tmp_path / "first.parquet", tmp_path / "second.parquet"
    evaluated = line(*begin, "mode=evaluate", f"predictions={first}", f"hydra.run.dir={tmp_path / 'evaluated'}", cache=cache)
    assert evaluated.code == 0, evaluated.err
    assert list(result(tmp_path / "evaluated")["quality"]) == ["test"] and "did not know, or hardly: user" in evaluated.out
    by = result(tmp_path / "evaluated")["breakdown"]["test"]["by"]["device"]
    table = pl.read_parquet(first).hstack(pl.read_csv(new).select("device"))
    phone = table.filter(pl.col("device") == "phone")
    assert [one["value"] for one in by["values"]] == ["phone", "tablet"] and by["others"]["values"] == 1
    assert by["values"][0]["quality"]["auc"] == pytest.approx(roc_auc_score(phone["label"], phone["probability"]), abs=1e-12)
    assert result(tmp_path / "evaluated")["unknown_values"]["user"] > 0
    assert pl.read_parquet(first)["label"].to_list() == pl.read_csv(new)["clicked"].to_list()

    clicks(new, 400, seed=9, labelled=False)
    refused = line(*begin, "mode=evaluate", f"hydra.run.dir={tmp_path / 'refused'}", cache=cache)
    assert refused.code == 2 and "without labels" in refused.err and refused.err.count("\n") == 1 and not (tmp_path / "refused").exists()
    ranks = ("sharder=torchrec_row_wise", "launcher.ranks_per_host=1")
    done = line(*begin, *ranks, "mode=predict", f"predictions={second}", f"hydra.run.dir={tmp_path / 'predicted'}", cache=cache)
    assert done.code == 0, done.err
    assert pl.read_parquet(second).columns == ["row", "probability"] and result(tmp_path / "predicted")["quality"] is None
    assert pl.read_parquet(second)["probability"].to_list() == pl.read_parquet(first)["probability"].to_list()


def test_a_killed_run_goes_on_under_another_sharder_as_one_that_never_moved(cache: Path, tmp_path: Path) -> None:
    """But for the last bits: the first sharder adds gradients of replicated tables in another order. Its folder is then the second's."""
    words = (*(word for word in SMALL if "dropout" not in word), "launcher.hosts=1", "launcher.ranks_per_host=2")
    stayed, moved = tmp_path / "stayed", tmp_path / "moved"
    assert line(*words, f"hydra.run.dir={stayed}", cache=cache).code == 0
    killed(*words, f"hydra.run.dir={moved}", cache=cache, when=lambda: any((moved / "checkpoints").glob("step=*")), pause_s=0.2)
    assert not (moved / "result.json").exists()
    done = line(f"resume={moved}", "sharder=torchrec_row_wise", cache=cache)
    assert done.code == 0, done.err
    assert (
        result(moved)["choices"]["sharder"] == "torchrec_row_wise" and "elsewhere; last bits differ: replicas or hosts add" in done.out
    ), done.out
    expected, actual = contents(stayed), contents(moved)
    assert expected.keys() == actual.keys()
    assert all(torch.allclose(actual[key], value, rtol=1e-5, atol=1e-6) for key, value in expected.items() if "rng" not in key)
    assert abs(result(moved)["quality"]["test"]["auc"] - result(stayed)["quality"]["test"]["auc"]) < 1e-4
    assert read([f"resume={moved}"]).config.choices.sharder == "torchrec_row_wise"
    assert read([f"resume={moved}", "launcher.hosts=2"]).config.choices.sharder == "torchrec_row_wise"
    with pytest.raises(UserError, match="another config"):
        read([f"resume={moved}", "sharder=dmt"])
    with pytest.raises(UserError, match="another config"):
        read([f"resume={moved}", "seed=5"])
