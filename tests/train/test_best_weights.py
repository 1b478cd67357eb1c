"""Which evaluation's weights are kept: the best, and in place of a start that was learnt elsewhere only clearly better ones."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from recsys_lab.train.callbacks import BestWeights

START = (0, 0.70, 0.50)


def kept(tmp_path: Path, margin: float, *evaluations: tuple[int, float, float], cut: int | None = None) -> list[int]:
    """The steps whose weights are saved, of (step, AUC, log loss). After `cut` evaluations the callback is made again from its state."""
    saved: list[int] = []
    (tmp_path / "best").mkdir(exist_ok=True)
    (tmp_path / "best" / "trainer.json").write_text("{}")
    best = BestWeights(tmp_path, "validation_auc", True, margin)
    for number, (step, auc, log_loss) in enumerate(evaluations):
        if number == cut:
            state, best = best.state_dict(), BestWeights(tmp_path, "validation_auc", True, margin)
            best.load_state_dict(state)
        metrics = {"validation_auc": auc, "validation_log_loss": log_loss}
        module: Any = None
        trainer: Any = SimpleNamespace(
            callback_metrics=metrics,
            sanity_checking=False,
            global_step=step,
            save_checkpoint=lambda path, step=step, **how: saved.append(step),
        )
        best.on_validation_end(trainer, module)
    return saved


@pytest.mark.parametrize("cut", [None, 1, 2])
def test_a_start_is_replaced_by_what_is_better_by_more_than_the_margin(tmp_path: Path, cut: int | None) -> None:
    assert kept(tmp_path, 0.01, START, (5, 0.705, 0.49), (9, 0.711, 0.49), (12, 0.7105, 0.48), (15, 0.712, 0.5), cut=cut) == [0, 9, 15]


def test_a_start_is_not_replaced_by_what_is_too_sure(tmp_path: Path) -> None:
    assert kept(tmp_path, 0.01, START, (5, 0.80, 0.51), (9, 0.75, 0.50)) == [0, 9]


def test_without_a_margin_any_better_evaluation_counts(tmp_path: Path) -> None:
    assert kept(tmp_path, 0.0, (5, 0.70, 0.5), (9, 0.7001, 0.9), (12, 0.69, 0.1)) == [5, 9]
