"""What a model is trained for: its loss, exact over ranks, and how a split is judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, softplus

from recsys_lab.base.losses import BINARY
from recsys_lab.config.options import EvaluateOptions
from recsys_lab.data.batch import Batch
from recsys_lab.data.loader import RankLoader
from recsys_lab.data.protocol import DataSet
from recsys_lab.data.values import values_of
from recsys_lab.record.breakdown import Breakdown, by_values, grouped_auc
from recsys_lab.train.evaluate import ClickEvaluation, Evaluation, NextItemEvaluation

#: Splits whose quality is broken down.
BROKEN_DOWN = ("validation", "test")
QUALITY_ALONE = EvaluateOptions()
#: (the model's output, batch, parts) -> this process's share of the loss: the mean over `parts` processes is the batch's loss.
Loss = Callable[[Tensor, Batch, int], Tensor]


@dataclass(frozen=True)
class Objective:
    """`evaluation(split, loader)` judges a split while training; `final` the same at the end, where it may take longer. None where
    nothing can be said of a split."""

    loss: Loss
    evaluation: Callable[[str, RankLoader], Evaluation | None]
    final: Callable[[str, RankLoader], Evaluation | None]


def objective_of(
    name: str, data: DataSet, most_pairs: int, options: EvaluateOptions = QUALITY_ALONE, loss_weight: float = 1.0, loss: str = BINARY
) -> Objective:
    """The objective `name` of a model on `data`.

    `most_pairs`: the most rows that a click model scores for held-out items. `options`: by what its quality is broken down at the end.
    `loss_weight`: what the loss of clicks is multiplied by. `loss`: of next items.
    """
    if name == "next_item":
        length = {feature.name: feature.mean_length for feature in data.features}["positive"]
        judge = partial(_next_item_evaluation, data)
        return Objective(partial(next_item_loss, loss=loss, mean_length=length), judge, judge)
    of_clicks = partial(click_loss, weight=loss_weight)
    return Objective(of_clicks, ClickEvaluation, partial(_final_click_evaluation, data, most_pairs, options))


def click_loss(logits: Tensor, batch: Batch, parts: int, *, weight: float = 1.0) -> Tensor:
    """Binary cross entropy of logits [B] times `weight`, as this process's share of `parts`.

    Padding rows count nothing, and the mean over `parts` processes is the exact mean over the global batch.
    """
    per_row = binary_cross_entropy_with_logits(logits[: batch.valid], batch.labels[: batch.valid], reduction="sum")
    if batch.valid < len(batch.labels):
        per_row = per_row + 0.0 * logits[batch.valid :].sum()  # keeps every rank's graph whole, so that all take part in the exchange
    return per_row * (weight * parts / batch.global_valid)


def next_item_loss(outputs: Tensor, batch: Batch, parts: int, *, loss: str, mean_length: float) -> Tensor:
    """Of what a model says of N places (models/next_item.py).

    binary: cross-entropy of scores [N, 1 + K] (Kang and McAuley 2018, equation 6): the first is of the item that came next, the others are
    of items that did not. The softmaxes: of [N, 2], the score of the item that came, and the log of the sum over all that it is told from.

    The sum over the N places, divided by the global batch's rows times the mean places a row of the train split. The exact number of places
    in the global batch would need an exchange. Padding rows have no places; without any place at all the graph is whole all the same.
    """
    if loss == BINARY:
        summed = softplus(-outputs[:, 0]).sum() + softplus(outputs[:, 1:]).sum()
    else:
        summed = (outputs[:, 1] - outputs[:, 0]).sum()
    return summed * (parts / (batch.global_valid * mean_length))


def _final_click_evaluation(data: DataSet, most_pairs: int, options: EvaluateOptions, split: str, loader: RankLoader) -> Evaluation:
    parts = partial(_parts, data, options, split) if split in BROKEN_DOWN else None
    return ClickEvaluation(split, loader, data.held_out.get(split), most_pairs, parts)


def _parts(data: DataSet, options: EvaluateOptions, split: str, logits: np.ndarray, labels: np.ndarray) -> Breakdown:
    """What `options` ask for, from columns of the data. Shapes [N], in file order."""
    by, grouped = {}, None
    for column in options.columns:
        values = values_of(data, column, split)
        by[column] = by_values(logits, labels, values.codes, values.names, options.min_rows)
    if options.group is not None:
        grouped = grouped_auc(logits, labels, values_of(data, options.group, split).codes, options.group)
    return Breakdown((), by, grouped)


def _next_item_evaluation(data: DataSet, split: str, loader: RankLoader) -> Evaluation | None:
    return NextItemEvaluation(split, loader, data.held_out[split]) if split in data.held_out else None
