"""Settings that a config leaves open: chosen for data that ask for it, and never where the user has said something."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from recsys_lab.config.suited import suited
from recsys_lab.experiment import Experiment, of_words

OPEN = {
    "trainer.max_epochs",
    "trainer.max_minutes",
    "trainer.early_stopping.patience",
    "trainer.restore_best",
    "optimizer.dense.lr",
    "optimizer.sparse.lr",
    "optimizer.sparse.eps",
    "model.first_order",
}


def table(root: Path, *words: str) -> Experiment:
    rows = ["label,user,item", *(f"{i % 3 % 2},u{i % 7},i{i % 11}" for i in range(300))]
    (root / "clicks.csv").write_text("\n".join(rows) + "\n")
    line = ("data=table", f"data.root={root}", f"data.cache={root / 'cache'}", "logger=none", *words)
    experiment = of_words(line, "a test")
    return experiment.suited(experiment.open_data())


@pytest.mark.parametrize("model", ["dcn", "dlrm"])
def test_everything_open_is_chosen_for_a_table(tmp_path: Path, model: str) -> None:
    fit = table(tmp_path, f"model={model}")
    assert set(fit.chosen) == OPEN
    assert fit.trainer.epochs > 1 and fit.trainer.restore_best and fit.trainer.early_stopping.patience and fit.trainer.max_minutes
    assert fit.model.has_first_order and fit.optimizer.sparse.floor > 1e-6


def test_any_key_of_the_user_wins(tmp_path: Path) -> None:
    words = {
        "trainer.max_epochs": 1,
        "trainer.max_minutes": 2.0,
        "trainer.early_stopping.patience": 0,
        "trainer.restore_best": False,
        "optimizer.dense.lr": 0.5,
        "optimizer.sparse.lr": 0.25,
        "optimizer.sparse.eps": 1e-8,
        "model.first_order": False,
    }
    fit = table(tmp_path, *(f"{key}={value}" for key, value in words.items()))
    assert fit.chosen == {} and set(words) == OPEN
    assert (fit.trainer.epochs, fit.trainer.early_stopping.patience, fit.trainer.restore_best) == (1, 0, False)
    assert (fit.optimizer.dense.rate, fit.optimizer.sparse.rate, fit.model.has_first_order) == (0.5, 0.25, False)


def test_without_evaluations_on_the_way_nothing_stops_by_them(tmp_path: Path) -> None:
    fit = table(tmp_path, "trainer.evaluate_every_epochs=0")
    assert not fit.trainer.restore_best and not fit.trainer.early_stopping.patience and fit.trainer.epochs == 1


@pytest.mark.parametrize("words", [("optimizer=row_wise_adagrad",), ("optimizer.sparse.name=sgd",), ("model.first_order=false",)])
def test_adam_is_damped_for_a_first_order_part_alone(tmp_path: Path, words: tuple[str, ...]) -> None:
    assert not {key for key in table(tmp_path, *words).chosen if key.startswith("optimizer")}


def test_a_sharder_with_tower_modules_leaves_the_model_as_it_is(tmp_path: Path) -> None:
    assert "model.first_order" not in table(tmp_path, "sharder=dmt").chosen


def test_other_data_keep_one_epoch_and_the_rates_of_old() -> None:
    experiment = of_words(["data.rows_train=100", "data.rows_validation=50", "data.rows_test=50", "logger=none"], "a test")
    assert experiment.suited(experiment.open_data()) is experiment
    trainer, optimizer = experiment.trainer, experiment.optimizer
    assert (trainer.epochs, trainer.max_minutes, trainer.early_stopping.patience, trainer.restore_best) == (1, None, None, None)
    assert (optimizer.dense.rate, optimizer.sparse.rate, optimizer.sparse.floor) == (1e-3, 1e-3, 1e-8)
    assert not experiment.model.has_first_order


def test_larger_tables_are_damped_less(tmp_path: Path) -> None:
    fit = table(tmp_path)
    plain = replace(fit.optimizer, sparse=replace(fit.optimizer.sparse, eps=None, lr=None))
    few, many = (suited(rows, 512, True, fit.trainer, plain).optimizer.sparse for rows in (5_000, 50_000_000))
    assert few.floor > many.floor and few.rate > many.rate
