"""Settings that a config leaves open: chosen for data that ask for it, and never where the user has said something."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from recsys_lab.config.default_hyperparameters import default_hyperparameters
from recsys_lab.errors import UserError
from recsys_lab.experiment import Experiment, of_words

#: Keys that a table's config leaves open, with values of a user.
OPEN = {
    "trainer.max_epochs": 1,
    "trainer.max_minutes": 2.0,
    "trainer.early_stopping.patience": 0,
    "trainer.restore_best": False,
    "optimizer.dense.lr": 0.5,
    "optimizer.sparse.lr": 0.25,
    "optimizer.sparse.eps": 1e-8,
    "model.first_order": False,
    "trainer.start_from_baseline": False,
}


START = "trainer.start_from_baseline"


def data_of(rows: int, asks: bool = True) -> Any:
    return SimpleNamespace(chooses_settings=asks, learnable=True, splits={"train": SimpleNamespace(rows=rows)})


@pytest.fixture(scope="module")
def plain() -> Experiment:
    return of_words(["logger=none"], "a test")


def test_everything_open_is_chosen_where_the_data_ask_for_it(plain: Experiment) -> None:
    fit = plain.with_default_hyperparameters(data_of(5_000))
    assert set(fit.chosen) == set(OPEN)
    assert fit.trainer.epochs > 1 and fit.trainer.restore_best and fit.trainer.early_stopping.patience and fit.trainer.max_minutes
    assert fit.model.has_first_order and fit.trainer.start_from_baseline and fit.optimizer.sparse.floor > 1e-6


def test_other_data_keep_one_epoch_and_the_rates_of_old(plain: Experiment) -> None:
    assert plain.with_default_hyperparameters(data_of(5_000, asks=False)) is plain
    trainer, optimizer = plain.trainer, plain.optimizer
    assert (trainer.epochs, trainer.max_minutes, trainer.early_stopping.patience, trainer.restore_best) == (1, None, None, None)
    assert (optimizer.dense.rate, optimizer.sparse.rate, optimizer.sparse.floor) == (1e-3, 1e-3, 1e-8)
    assert not plain.model.has_first_order


def test_any_key_of_the_user_wins(tmp_path: Path) -> None:
    """Also through the command line, on a real table."""
    rows = ["label,user,item", *(f"{i % 3 % 2},u{i % 7},i{i % 11}" for i in range(300))]
    (tmp_path / "clicks.csv").write_text("\n".join(rows) + "\n")
    said = [f"{key}={value}" for key, value in OPEN.items()]
    experiment = of_words(["data=table", f"data.root={tmp_path}", f"data.cache={tmp_path / 'cache'}", "logger=none", *said], "a test")
    data = experiment.open_data()
    assert data.chooses_settings
    fit = experiment.with_default_hyperparameters(data)
    assert fit.chosen == {} and (fit.trainer.epochs, fit.trainer.early_stopping.patience, fit.trainer.restore_best) == (1, 0, False)
    assert (fit.optimizer.dense.rate, fit.optimizer.sparse.rate, fit.model.has_first_order) == (0.5, 0.25, False)


def test_without_evaluations_on_the_way_nothing_stops_by_them(plain: Experiment) -> None:
    fit = replace(plain, trainer=replace(plain.trainer, evaluate_every_epochs=0)).with_default_hyperparameters(data_of(5_000)).trainer
    assert not fit.restore_best and not fit.early_stopping.patience and fit.epochs == 1


@pytest.mark.parametrize("name", ["sgd", "row_wise_adagrad"])
def test_the_rates_of_another_optimizer_are_left_alone(plain: Experiment, name: str) -> None:
    other = replace(plain, optimizer=replace(plain.optimizer, sparse=replace(plain.optimizer.sparse, name=name)))
    assert not {key for key in other.with_default_hyperparameters(data_of(5_000)).chosen if key.startswith("optimizer")}


def test_a_model_without_a_first_order_part_keeps_its_rates(plain: Experiment) -> None:
    without = replace(plain, model=replace(plain.model, keys={**plain.model.keys, "first_order": False}))
    assert set(without.with_default_hyperparameters(data_of(5_000)).chosen) == {key for key in OPEN if key.startswith("trainer")} - {START}


def test_a_model_with_tower_modules_begins_with_the_regression_too(plain: Experiment) -> None:
    towers = replace(plain, sharder=replace(plain.sharder, tower_modules=True))
    assert towers.with_default_hyperparameters(data_of(5_000)).chosen == plain.with_default_hyperparameters(data_of(5_000)).chosen


def test_deepfm_begins_with_the_regression_once_its_pairs_have_a_weight(plain: Experiment) -> None:
    deepfm = of_words(["model=deepfm", "logger=none"], "a test")
    assert deepfm.model.has_first_order and not deepfm.model.begins_first_order
    fit = deepfm.with_default_hyperparameters(data_of(5_000))
    assert fit.chosen["model.scale_pairs"] is True and fit.chosen[START] and fit.model.begins_first_order
    said = of_words(["model=deepfm", "model.scale_pairs=false", "logger=none"], "a test").with_default_hyperparameters(data_of(5_000))
    assert not {"model.scale_pairs", START} & set(said.chosen)


def test_without_a_baseline_nothing_begins_with_it(plain: Experiment) -> None:
    without = replace(plain, baselines=False)
    assert START not in without.with_default_hyperparameters(data_of(5_000)).chosen
    asked = replace(without, trainer=replace(plain.trainer, start_from_baseline=True))
    with pytest.raises(UserError, match="trainer.start_from_baseline.*baselines=true"):
        asked.check(asked.open_data())


def test_tables_that_begin_with_the_regression_move_less(plain: Experiment) -> None:
    drawn = replace(plain, trainer=replace(plain.trainer, start_from_baseline=False)).with_default_hyperparameters(data_of(5_000)).optimizer
    begun = plain.with_default_hyperparameters(data_of(5_000)).optimizer
    assert begun.sparse.rate < drawn.sparse.rate and begun.dense.rate > drawn.dense.rate


def test_larger_tables_are_damped_less(plain: Experiment) -> None:
    few, many = (
        default_hyperparameters(rows, 512, True, True, plain.trainer, plain.optimizer).optimizer.sparse for rows in (5_000, 50_000_000)
    )
    assert few.floor > many.floor > 0 and few.rate > many.rate
