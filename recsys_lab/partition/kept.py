"""The towers of a run's own model and data, found on a short training and kept: the next run with both has them at once."""

from __future__ import annotations

from typing import Any

from recsys_lab.base.answers import answer
from recsys_lab.data.protocol import DataSet
from recsys_lab.errors import UserError
from recsys_lab.experiment import Experiment, Towers
from recsys_lab.partition import DIMS, SAMPLES
from recsys_lab.partition.source import partition_from, probe_of

#: The rooms on whose sources a partition depends.
ROOMS = ("partition", "sharders", "models", "data")


def towers_of(experiment: Experiment, data: DataSet, count: int) -> Towers:
    """`count` towers by `sharder.towers.strategy`. Raises UserError for data that nothing can be learnt from."""
    options = experiment.sharder.towers
    assert options is not None
    if not data.learnable:
        raise UserError(
            "nothing to find towers on",
            where="sharder.towers.strategy",
            given=f"{options.strategy}, with random labels",
            remedy="use strided, data with clicks, or sharder.towers.partition=FILE",
        )
    settings: dict[str, Any] = {"strategy": options.strategy, "absolute": options.absolute, "dims": DIMS, "samples": SAMPLES}
    settings["groups"] = options.groups_of(experiment.tables(data))
    question = {
        "model": experiment.config["model"],
        "chosen": {key: value for key, value in experiment.chosen.items() if key.startswith("model.")},
        "data": data.fingerprint,
        "batch_size": experiment.data.batch_size,
        "seed": experiment.seed,
        "steps": options.probe_steps,
        "towers": count,
        **settings,
    }

    def found(_: dict[str, Any]) -> list[list[str]]:
        partition = partition_from(probe_of(experiment, options.probe_steps), count, size_ratio=1.0, **settings)[0]
        return [list(tower) for tower in partition.towers]

    return tuple(map(tuple, answer(found, question, ROOMS)))
