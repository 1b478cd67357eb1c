"""What towers are found on: a run's tables, or a short training of the model that overrides name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from recsys_lab.base.files import path_of
from recsys_lab.config.folders import stored
from recsys_lab.config.targets import Named
from recsys_lab.data.protocol import DataSet
from recsys_lab.errors import UserError
from recsys_lab.experiment import Experiment, of_words, resolve
from recsys_lab.models.click_model import ClickModel
from recsys_lab.partition import probe
from recsys_lab.partition.find import check, find
from recsys_lab.sharders.dmt.affinity import affinity, one_thread
from recsys_lab.sharders.dmt.partition_file import Partition


@dataclass(frozen=True)
class Source:
    """`model` gives a model whose tables know the features of `data`; `origin` says where it is from, for the partition's file."""

    experiment: Experiment
    data: DataSet
    model: Callable[[], ClickModel]
    origin: dict[str, Any]


def source_of(words: Sequence[str], steps: int) -> Source:
    """The run folder that `words` name, or a probe of `steps` batches with `words` as overrides. Nothing is trained before `model`.

    Raises UserError for what cannot be read.
    """
    if "=" not in words[0]:
        if len(words) > 1:
            raise UserError("a run has its own config", where="partition", given=words[1], remedy="name the run folder alone")
        from recsys_lab.partition.of_run import of_run  # with what trains, which a probe does not need

        folder = path_of(words[0], "partition")
        experiment = resolve(stored(folder, Named()))
        model, data = of_run(folder, experiment)
        return Source(experiment, data, lambda: model, {"run": folder.resolve().name, "model": experiment.choices["model"]})
    return probe_of(of_words(words, where="partition"), steps)


def probe_of(experiment: Experiment, steps: int) -> Source:
    """`steps` batches of the flat model of `experiment`, on its data. Raises UserError for what towers cannot be of."""
    data = probe.opened(experiment)
    origin = {"model": experiment.choices["model"], "steps": steps, "batch_size": experiment.data.batch_size}
    return Source(experiment, data, lambda: probe.trained(experiment, data, steps, experiment.seed), origin)


def partition_from(
    source: Source,
    towers: int,
    *,
    strategy: str,
    dims: int,
    size_ratio: float,
    samples: int,
    absolute: str,
    groups: Sequence[Sequence[int]] | None = None,
) -> tuple[Partition, np.ndarray]:
    """The features of `source` in `towers` groups, and the affinity between them [F, F].

    `samples`: the affinity is their mean; `absolute`: as `affinity` takes it. The rest: as `find` takes it. Raises UserError.
    """
    with one_thread():
        tables = source.experiment.model.tables(source.data, "fp32")
        check(tables, towers, strategy, dims, size_ratio)
        between = affinity(probe.embeddings(source.model(), source.data, samples), absolute)
    origin = source.origin | {"samples": min(samples, source.data.splits["train"].rows), "absolute": absolute}
    seed = source.experiment.seed
    how: dict[str, Any] = {"strategy": strategy, "dims": dims, "size_ratio": size_ratio, "groups": groups}
    return find(between, source.data, tables, towers, seed=seed, source=origin, **how), between
