"""What needs no model of ours, beside its quality: the base rate, and a logistic regression on the same features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

#: By split, then by metric (metrics.QUALITY).
Figures = Mapping[str, Mapping[str, float]]
#: A model whose AUC is lower than the regression's by more than this has lost to it.
LOSS = 0.002
#: Log losses of the same weights differ by less, whoever computes the logits. AUC differs by more: a tie may break otherwise.
ROUNDING = 1e-6


@dataclass(frozen=True)
class Baselines:
    """`train_examples`: what the regression was fitted on, drawn from `of_train_examples`. `c`: its inverse strength of regularisation,
    the best on the validation split of a few. Quality on at most as many rows of a split as its `examples` say.
    """

    base_rate: Figures
    logistic_regression: Figures
    c: float
    train_examples: int
    of_train_examples: int


def lost_by(quality: Figures, baselines: Figures) -> dict[str, float]:
    """By held-out split, how much the model's AUC is below the baseline's. Only differences above `LOSS` are there."""
    judged = [split for split in ("validation", "test") if split in quality and split in baselines]
    gaps = {split: baselines[split]["auc"] - quality[split]["auc"] for split in judged}
    return {split: gap for split, gap in gaps.items() if gap > LOSS}


def is_baseline(quality: Figures, baselines: Figures) -> bool:
    """Whether the model has the baseline's log loss on every held-out split, of as many examples: it has the weights of its start."""
    judged = [(quality[split], baselines[split]) for split in ("validation", "test") if split in quality and split in baselines]
    same = (abs(a["log_loss"] - b["log_loss"]) < ROUNDING and a["examples"] == b["examples"] for a, b in judged)
    return bool(judged) and all(same)
