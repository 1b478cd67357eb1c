"""Sequence models and batches for the tests, small."""

from __future__ import annotations

from typing import Any

import torch
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys_lab.models.click_model import ModelInputs
from recsys_lab.models.initial import fill_tables, initialise_dense
from recsys_lab.models.sequence import Sequence
from recsys_lab.models.sequence.network import SequenceNetwork
from recsys_lab.tables import Table

D = 8
NEXT_ITEM = (
    Table("item", 30, D, ("item", "positive", "negative"), "none"),
    Table("category", 5, D, ("category",), "none"),
    Table("time", 6, D, ("time",), "none"),
)
CLICK = (
    Table("item", 30, D, ("item", "candidate"), "none"),
    Table("category", 5, D, ("category", "candidate_category"), "none"),
)
SETTINGS: dict[str, Any] = {
    "embedding_dim": D,
    "objective": "next_item",
    "attention": "transformer",
    "max_length": 12,
    "blocks": 2,
    "heads": 2,
    "feed_forward": 12,
    "over_layers": [6, 1],
}
KINDS: dict[str, tuple[tuple[Table, ...], dict[str, Any]]] = {
    "next_item": (NEXT_ITEM, {}),
    "click, transformer": (CLICK, {"objective": "click"}),
    "click, pairwise": (CLICK, {"objective": "click", "attention": "pairwise"}),
}
#: A feature to the ids of each sample.
Ids = dict[str, list[list[int]]]


def built(tables: tuple[Table, ...] = NEXT_ITEM, seed: int = 1, **changes: Any) -> SequenceNetwork:
    """A model with first weights of `seed`, large enough for differences to show."""
    model = Sequence(**SETTINGS | changes).build(ModelInputs(tables, 0, torch.device("cpu")))
    initialise_dense(model, seed, torch.device("cpu"))
    fill_tables(model.embeddings, tables, seed)
    with torch.no_grad():
        model.place.weight.mul_(20)
    return model


def keyed(ids: Ids) -> KeyedJaggedTensor:
    flat = [i for samples in ids.values() for sample in samples for i in sample]
    lengths = [len(sample) for samples in ids.values() for sample in samples]
    return KeyedJaggedTensor(keys=list(ids), values=torch.tensor(flat, dtype=torch.int64), lengths=torch.tensor(lengths, dtype=torch.int32))


def drawn(tables: tuple[Table, ...], lengths: list[int], seed: int = 0) -> Ids:
    """Histories of these lengths; candidates are single."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: [torch.randint(1, table.rows, (1 if "candidate" in name else n,), generator=generator).tolist() for n in lengths]
        for table in tables
        for name in table.features
    }
