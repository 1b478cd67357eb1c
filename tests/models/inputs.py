"""Small tables, batches and model settings for the tests of models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys_lab.models.choice import ModelChoice
from recsys_lab.models.click_model import ModelInputs
from recsys_lab.models.initial import fill_tables, initialise_dense
from recsys_lab.tables import Table

CONF = Path(__file__).parents[2] / "conf" / "model"
D, K = 4, 3
TABLES = (Table("color", 7, D, ("color",)), Table("shop", 11, D, ("shop", "brand"), pooling="mean"), Table("day", 5, D, ("day",)))
FEATURES = ["color", "shop", "brand", "day"]
SETTINGS: dict[str, dict[str, Any]] = {
    "DLRM": {"embedding_dim": D, "bottom_layers": [6, D], "over_layers": [8, 5, 1]},
    "DCN": {"embedding_dim": D, "bottom_layers": [6, D], "cross_layers": 2, "cross_rank": 3, "over_layers": [8, 5, 1]},
}


def batch(samples: int, seed: int = 0) -> tuple[torch.Tensor, KeyedJaggedTensor]:
    """dense [B, K] and bags of 0 to 3 ids, with the keys in another order than the tables have them."""
    generator = torch.Generator().manual_seed(seed)
    keys = ["day", "brand", "color", "shop"]
    rows = {feature: table.rows for table in TABLES for feature in table.features}
    lengths = torch.randint(0, 4, (len(keys), samples), generator=generator, dtype=torch.int32)
    ids = [torch.randint(0, rows[key], (int(lengths[i].sum()),), generator=generator) for i, key in enumerate(keys)]
    return torch.randn(samples, K, generator=generator), KeyedJaggedTensor(keys=keys, values=torch.cat(ids), lengths=lengths.flatten())


def built(kind: type, dense_width: int = K, **changes: Any) -> torch.nn.Module:
    """A model of `kind` on TABLES with its first weights of seed 1."""
    model = kind(**SETTINGS[kind.__name__] | changes).build(ModelInputs(TABLES, dense_width, torch.device("cpu")))
    initialise_dense(model, 1, torch.device("cpu"))
    fill_tables(model.embeddings, TABLES, 1)
    return model


def with_towers(kind: Any, tables: tuple[Table, ...], dense_width: int, device: str, towers: Any, **keys: Any) -> torch.nn.Module:
    """The model of `kind` with these towers, or without any."""
    return kind(**keys).build(ModelInputs(tables, dense_width, torch.device(device), towers))


def from_yaml(choice: str, device: str = "meta") -> tuple[torch.nn.Module, int]:
    """The model of conf/model/`choice`.yaml and its K, on 26 tables of 1,000 rows and 13 dense features unless it fixes its own."""
    config: Any = OmegaConf.create({"model": OmegaConf.load(CONF / f"{choice}.yaml")})
    OmegaConf.resolve(config)
    model = ModelChoice.of(config.model)
    dense_width = 13 if model.dense_features is None else model.dense_features
    dim = sum(model.kind.widths(model.embedding_dim))
    tables = tuple(Table(f"cat_{i}", rows, dim, (f"cat_{i}",)) for i, rows in enumerate(model.rows or [1000] * 26))
    return model.build(tables, dense_width, torch.device(device)), dense_width
