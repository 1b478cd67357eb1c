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
        folder = path_of(words[0], "partition")
        experiment = resolve(stored(folder, Named()))
        model, data = probe.of_run(folder, experiment)
        return Source(experiment, data, lambda: model, {"run": folder.resolve().name, "model": experiment.choices["model"]})
    probed = of_words(words, where="partition")
    data = probe.opened(probed)
    origin = {"model": probed.choices["model"], "steps": steps, "batch_size": probed.data.batch_size}
    return Source(probed, data, lambda: probe.trained(probed, data, steps, probed.seed), origin)


def partition_of(
    words: Sequence[str], towers: int, *, strategy: str, dims: int, size_ratio: float, steps: int, samples: int
) -> tuple[Partition, np.ndarray, DataSet]:
    """The features of a source in `towers` groups, the affinity between them [F, F], and their data.

    `words`, `steps`: as `source_of` takes them. `samples`: the affinity is their mean. The rest: as `find` takes it. Raises UserError.
    """
    with one_thread():
        source = source_of(words, steps)
        tables = source.experiment.model.tables(source.data, "fp32")
        check(tables, towers, strategy, dims, size_ratio)
        between = affinity(probe.embeddings(source.model(), source.data, samples))
    origin = source.origin | {"samples": min(samples, source.data.splits["train"].rows)}
    seed = source.experiment.seed
    partition = find(between, source.data, tables, towers, strategy=strategy, dims=dims, size_ratio=size_ratio, seed=seed, source=origin)
    return partition, between, source.data
