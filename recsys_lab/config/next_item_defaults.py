"""Settings of a model for the next item that the config leaves open (null), chosen by counts of the log. A key of the user wins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from recsys_lab.base.losses import SAMPLED_SOFTMAX, SOFTMAX
from recsys_lab.config.default_hyperparameters import Defaults, filled
from recsys_lab.config.options import OptimizerOptions, TrainerOptions

#: Training ends after so many evaluations without a better one, epochs or minutes, whichever comes first.
PATIENCE, MOST_EPOCHS, MOST_MINUTES, METRIC = 5, 200, 30.0, "ndcg_10"
#: Up to so many items the softmax is over all of them.
FEW_ITEMS = 30_000
TEMPERATURE = 0.05
#: Below so many events an item, half of the activations are dropped, as SASRec does on sparse data; above, a fifth.
DENSE_EVENTS, SPARSE_DROPOUT, DENSE_DROPOUT = 50, 0.5, 0.2


@dataclass(frozen=True)
class LogCounts:
    """Of a log as histories. `max_length`: the most items of a history that are read."""

    items: int
    interactions: int
    max_length: int


def next_item_defaults(
    counts: LogCounts, keys: Mapping[str, Any], trainer: TrainerOptions, optimizer: OptimizerOptions, whole_catalogue: bool
) -> tuple[Defaults, dict[str, Any]]:
    """Both with what is null chosen, and the model's `keys` that were null with their values. `Defaults.chosen` names all of them.

    `whole_catalogue`: whether a softmax may be over all items.
    """
    model: dict[str, Any] = {"dropout": SPARSE_DROPOUT if counts.interactions < DENSE_EVENTS * counts.items else DENSE_DROPOUT}
    model["max_length"] = counts.max_length
    if keys.get("loss") is None:
        model |= {"loss": SOFTMAX if whole_catalogue and counts.items <= FEW_ITEMS else SAMPLED_SOFTMAX, "temperature": TEMPERATURE}
    model = {key: value for key, value in model.items() if key in keys and keys[key] is None}
    chosen = {f"model.{key}": value for key, value in model.items()}
    values: dict[str, Any] = {"trainer.max_epochs": MOST_EPOCHS, "trainer.max_minutes": MOST_MINUTES}
    if trainer.evaluate_every_epochs:
        values |= {"trainer.early_stopping.patience": PATIENCE, "trainer.restore_best": True}
    stops = trainer
    for key, value in values.items():
        stops, was_open = filled(stops, key.split(".")[1:], value)
        chosen |= {key: value} if was_open else {}
    if trainer.evaluate_every_epochs and trainer.early_stopping.metric not in ("ndcg_10", "hit_rate_10"):
        stops, _ = filled(stops, ["early_stopping", "metric"], METRIC, always=True)
        chosen["trainer.early_stopping.metric"] = METRIC
    return Defaults(stops, optimizer, chosen), model
