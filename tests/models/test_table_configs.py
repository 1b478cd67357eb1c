"""TorchRec's collections of tables, whose weights are drawn only where they are somewhere."""

from __future__ import annotations

import pytest
import torch
from torch.nn import init
from torchrec.modules.embedding_configs import EmbeddingBagConfig, EmbeddingConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection

from recsys_lab.models.table_configs import tables_of

KINDS = pytest.mark.parametrize(("kind", "config"), [(EmbeddingBagCollection, EmbeddingBagConfig), (EmbeddingCollection, EmbeddingConfig)])


def of(kind: type, config: type, device: str) -> torch.nn.Module:
    tables = [config(name=name, num_embeddings=rows, embedding_dim=4, feature_names=[name]) for name, rows in (("a", 3), ("b", 5))]
    return tables_of(kind, tables, torch.device(device))


@KINDS
def test_weights_on_meta_have_shapes_and_are_not_drawn(kind: type, config: type, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[torch.Tensor] = []
    monkeypatch.setattr(init, "_no_grad_normal_", lambda tensor, *_: drawn.append(tensor) or tensor)
    weights = list(of(kind, config, "meta").parameters())
    assert [tuple(one.shape) for one in weights] == [(3, 4), (5, 4)] and all(one.is_meta and one.requires_grad for one in weights)
    assert not drawn


@KINDS
def test_weights_in_memory_are_drawn_as_ever(kind: type, config: type) -> None:
    torch.manual_seed(3)
    ours = of(kind, config, "cpu")
    torch.manual_seed(3)
    tables = [config(name=name, num_embeddings=rows, embedding_dim=4, feature_names=[name]) for name, rows in (("a", 3), ("b", 5))]
    theirs = kind(tables=tables, device=torch.device("cpu"))
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))
    assert all(one.std() > 0 for one in ours.parameters())
