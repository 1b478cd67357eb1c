"""First weights of a model: the same on every rank and for every sharding."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection

from recsys_lab.models.click_model import ClickModel
from recsys_lab.models.table_weights import initial_weight
from recsys_lab.tables import Table


def initialise_dense(model: ClickModel, seed: int, device: torch.device) -> None:
    """Makes all weights outside `model.embeddings` on `device` and draws them from `seed`, leaving torch's random state as it was.

    The model may come from the meta device. Values are drawn on the CPU, so they are the same on any device.
    """
    tables = {id(module) for module in model.embeddings.modules()}
    dense = [m for m in model.modules() if id(m) not in tables and list(m.parameters(recurse=False))]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for module in dense:
            module.to_empty(device="cpu", recurse=False)
        for module in reversed(list(model.modules())):  # children first: a parent may draw its children's weights its own way
            reset = getattr(module, "reset_parameters", None)
            if id(module) not in tables and callable(reset):
                reset()
        for module in dense:
            for name, parameter in module.named_parameters(recurse=False):
                setattr(module, name, nn.Parameter(parameter.detach().to(device), requires_grad=parameter.requires_grad))


@torch.no_grad()
def fill_tables(embeddings: EmbeddingBagCollection | EmbeddingCollection, tables: Sequence[Table], seed: int) -> None:
    """Fills unsharded tables with their first values: what every sharding of them starts from."""
    modules = embeddings.embeddings if isinstance(embeddings, EmbeddingCollection) else embeddings.embedding_bags
    for table in tables:
        weight = modules[table.name].weight
        weight.copy_(initial_weight(table, 0, table.rows, 0, table.dim, seed))
