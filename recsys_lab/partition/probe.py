"""A short training in one process, and the embeddings that it gives each sample. Shapes: B samples, F features, N dimension."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torchrec.modules.embedding_modules import EmbeddingBagCollection

from recsys_lab.data.loader import RankLoader
from recsys_lab.data.protocol import DataSet
from recsys_lab.errors import UserError
from recsys_lab.experiment import Experiment, Towers
from recsys_lab.models.click_model import ClickModel
from recsys_lab.models.initial import fill_tables, initialise_dense

#: A probe's tables have at most so many rows, ids taken modulo that.
MOST_ROWS = 1_000_000
BLOCK_ROWS = 4_096
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Rates:
    """Adam's learning rates. Far above those of a whole training: a probe has to tell features apart within a few hundred steps."""

    dense: float = 3e-3
    tables: float = 2e-2


def opened(experiment: Experiment) -> DataSet:
    """The data of `experiment`. Raises UserError where features are sequences: they have no pooled embedding to compare."""
    data = experiment.open_data(MOST_ROWS)
    for feature in data.features:
        if feature.pooling == "none":
            raise UserError("towers are of pooled features", where=f"feature {feature.name}", given="pooling none", allowed="sum, mean")
    return data


def trained(experiment: Experiment, data: DataSet, steps: int, seed: int, towers: Towers = (), rates: Rates = Rates()) -> ClickModel:
    """The model of `experiment` after `steps` batches of the train split by Adam, lazy on the tables. Epochs follow one another.

    One process, no process group. The same arguments give the same weights.
    """
    model = fresh(experiment, data, seed, towers)
    tables = list(model.embeddings.parameters())
    dense = [parameter for name, parameter in model.named_parameters() if not name.startswith("embeddings.")]
    optimizers = [torch.optim.Adam(dense, lr=rates.dense), torch.optim.SparseAdam(tables, lr=rates.tables)]
    loader = batches(data, "train", experiment.data.batch_size, seed, shuffle=True)
    step, epoch = 0, 0
    model.train()
    while step < steps:
        loader.set_position(epoch)
        for batch in loader:
            for optimizer in optimizers:
                optimizer.zero_grad()
            logits = model(batch.values, batch.sparse)[: batch.valid]
            torch.nn.functional.binary_cross_entropy_with_logits(logits, batch.labels[: batch.valid]).backward()
            for optimizer in optimizers:
                optimizer.step()
            step += 1
            if step == steps:
                break
        epoch += 1
    return model.eval()


def fresh(experiment: Experiment, data: DataSet, seed: int, towers: Towers = ()) -> ClickModel:
    """The model of `experiment` with its first weights, whose tables' gradients are sparse."""
    model = experiment.build_model(data, CPU, towers)
    initialise_dense(model, seed, CPU)
    fill_tables(model.embeddings, experiment.model.tables(data, "fp32"), seed)
    for bag in bags(model).values():
        bag.sparse = True
    torch.manual_seed(seed)  # of dropout
    return model


def bags(model: ClickModel) -> Mapping[str, torch.nn.EmbeddingBag]:
    """The model's tables by name."""
    assert isinstance(model.embeddings, EmbeddingBagCollection)
    return dict(model.embeddings.embedding_bags.items())


def batches(data: DataSet, split: str, batch_size: int, seed: int, shuffle: bool) -> RankLoader:
    """All of a split, for one process."""
    return RankLoader(
        data.splits[split],
        data,
        batch_size=batch_size,
        rank=0,
        world_size=1,
        seed=seed,
        shuffle=shuffle,
        prefetch_batches=0,
        pin_memory=False,
    )


@torch.no_grad()
def embeddings(model: ClickModel, data: DataSet, samples: int) -> Iterator[Tensor]:
    """Each feature's pooled embedding [B, F, N], block by block, of `samples` rows spread over the train split."""
    names = [feature.name for feature in data.features]
    remaining = min(samples, data.splits["train"].rows)
    for batch in batches(data, "train", BLOCK_ROWS, seed=0, shuffle=True):
        if remaining <= 0:
            return
        looked_up = model.embeddings(batch.sparse).to_dict()
        yield torch.stack([looked_up[name] for name in names], dim=1)[: min(batch.valid, remaining)]
        remaining -= batch.valid


@torch.no_grad()
def logits(model: ClickModel, data: DataSet, split: str) -> tuple[np.ndarray, np.ndarray]:
    """The model's logits and the labels, each [rows of the split]."""
    parts = [
        (model(batch.values, batch.sparse)[: batch.valid], batch.labels[: batch.valid])
        for batch in batches(data, split, BLOCK_ROWS, 0, False)
    ]
    return torch.cat([score for score, _ in parts]).numpy(), torch.cat([label for _, label in parts]).numpy()
