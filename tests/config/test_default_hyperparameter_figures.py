"""The settings that a train split asks for, by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from recsys_lab.config.default_hyperparameters import default_hyperparameters
from recsys_lab.config.options import DenseOptimizer, EarlyStoppingOptions, OptimizerOptions, Schedule, SparseOptimizer, TrainerOptions

OPTIMIZER = OptimizerOptions(
    dense=DenseOptimizer(name="adam", lr=None, eps=1e-8, weight_decay=0.0, momentum=0.0),
    sparse=SparseOptimizer(name="adam", lr=None, eps=None, weight_decay=0.0),
    schedule=Schedule(name="constant", warmup_steps=0, final_ratio=0.0, step_epochs=1.0, gamma=0.1),
)
STOPS = {
    "trainer.max_epochs": 100,
    "trainer.max_minutes": 10.0,
    "trainer.early_stopping.patience": 4,
    "trainer.restore_best": True,
}


def trainer(every: int = 1, **more: Any) -> TrainerOptions:
    open_ones = {"max_epochs": None, "max_minutes": None, "restore_best": None} | more
    return TrainerOptions(
        max_steps=-1,
        evaluate_every_epochs=every,
        evaluate_train_rows=0,
        evaluate_pairs=0,
        checkpoint_every_steps=0,
        log_every_steps=1,
        gradient_clip_norm=None,
        early_stopping=EarlyStoppingOptions(metric="auc", patience=None),
        measure_steps=1,
        replan_saving=0.0,
        progress_bar=False,
        **open_ones,
    )


@pytest.mark.parametrize(
    ("rows", "batch", "begins", "dense_lr", "lr", "eps"),
    [
        (1, 512, False, 1e-4, 0.02, 0.003),
        (20_000, 512, False, 1e-4, 0.02, 0.003),
        (20_001, 512, False, 1e-3, 0.02, 0.003),
        (20_000, 512, True, 1e-3, 0.005, 0.003),
        (100_000, 512, False, 1e-3, 0.02, 0.003),
        (100_000, 1024, False, 1e-3, 0.02, 0.0015),
        (400_000, 512, False, 1e-3, 0.01, 0.00075),  # a fourth: half the rate
        (400_000, 512, True, 1e-3, 0.005, 0.00075),
        (6_400_000, 512, True, 1e-3, 0.0025, 4.7e-05),  # 1/64: an eighth, below the most of tables that have begun
        (40_000_000, 512, False, 1e-3, 0.001, 7.5e-06),  # 1/400: a twentieth, the least
        (10**9, 512, False, 1e-3, 0.001, 3e-07),
        (10**12, 512, False, 1e-3, 0.001, 1e-08),  # the least
        (100_000, 1, False, 1e-3, 0.02, 1.0),  # the most
        (1_000, 2, False, 1e-4, 0.02, 0.77),
        # Where another row or sample would be rounded otherwise.
        (1, 31, False, 1e-4, 0.02, 0.05),
        (1, 17, False, 1e-4, 0.02, 0.09),
        (101_694, 512, False, 1e-3, 0.02, 0.003),
        (101_695, 512, False, 1e-3, 0.02, 0.0029),
    ],
)
def test_rates_and_eps(rows: int, batch: int, begins: bool, dense_lr: float, lr: float, eps: float) -> None:
    fit = default_hyperparameters(rows, batch, True, begins, trainer(), OPTIMIZER)
    rates = {"optimizer.dense.lr": dense_lr, "optimizer.sparse.lr": lr, "optimizer.sparse.eps": eps}
    assert fit.chosen == STOPS | rates | ({"trainer.start_from_baseline": True} if begins else {})
    assert (fit.optimizer.dense.lr, fit.optimizer.sparse.lr, fit.optimizer.sparse.eps) == (dense_lr, lr, eps)
    assert fit.optimizer.schedule == OPTIMIZER.schedule and fit.trainer.start_from_baseline is (True if begins else None)


def test_stops() -> None:
    fit = default_hyperparameters(10, 512, False, False, trainer(), OPTIMIZER)
    assert fit.chosen == STOPS and fit.optimizer == OPTIMIZER
    stopping = EarlyStoppingOptions(metric="auc", patience=4)
    assert fit.trainer == replace(trainer(max_epochs=100, max_minutes=10.0, restore_best=True), early_stopping=stopping)
    assert default_hyperparameters(10, 512, False, False, trainer(every=0), OPTIMIZER).chosen == {"trainer.max_minutes": 10.0}


def test_what_is_not_null_stays() -> None:
    said = {"max_epochs": 1, "max_minutes": 0.5, "restore_best": False, "start_from_baseline": False}
    fit = default_hyperparameters(10, 512, True, True, trainer(**said), OPTIMIZER)
    assert fit.chosen.keys().isdisjoint({f"trainer.{key}" for key in said}) and "trainer.early_stopping.patience" in fit.chosen
    assert {key: getattr(fit.trainer, key) for key in said} == said


@pytest.mark.parametrize(("linear", "name"), [(False, "adam"), (True, "sgd")])
def test_only_adam_of_a_model_with_a_first_order_part_is_damped(linear: bool, name: str) -> None:
    sparse = SparseOptimizer(name=name, lr=None, eps=None, weight_decay=0.0)
    other = OptimizerOptions(OPTIMIZER.dense, sparse, OPTIMIZER.schedule)
    assert default_hyperparameters(10, 512, linear, True, trainer(), other).chosen == STOPS | {"trainer.start_from_baseline": True}


def test_what_null_stands_for() -> None:
    assert (OPTIMIZER.dense.rate, OPTIMIZER.sparse.rate, OPTIMIZER.sparse.floor, trainer().epochs) == (1e-3, 1e-3, 1e-8, 1)
    dense = DenseOptimizer(name="adam", lr=0.0, eps=1e-8, weight_decay=0.0, momentum=0.0)
    sparse = SparseOptimizer(name="adam", lr=0.0, eps=0.5, weight_decay=0.0)
    assert (dense.rate, sparse.rate, sparse.floor, trainer(max_epochs=7).epochs) == (0.0, 0.0, 0.5, 7)
