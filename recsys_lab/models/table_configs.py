"""TorchRec's configs of tables, with the format in which the weights are stored: TorchRec has names for plain formats only.

`data_type` is what a look-up reads, and all that TorchRec needs to know. `tables_of` makes TorchRec's collection of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch.nn import init
from torch.overrides import TorchFunctionMode
from torchrec.modules.embedding_configs import DataType, EmbeddingBagConfig, EmbeddingConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection

from recsys_lab.tables.spec import TABLE_FORMATS

#: What a look-up reads, by the format that is stored.
READ_TYPE = dict.fromkeys(TABLE_FORMATS, DataType.BF16) | {"fp32": DataType.FP32, "fp16": DataType.FP16}
_PLAIN = {DataType.FP32: "fp32", DataType.FP16: "fp16", DataType.BF16: "bf16"}


@dataclass
class StoredBagConfig(EmbeddingBagConfig):
    """Of a pooled table. `stored`: one of TABLE_FORMATS."""

    stored: str = "fp32"


@dataclass
class StoredRowConfig(EmbeddingConfig):
    """Of a table that does not pool. `stored`: one of TABLE_FORMATS."""

    stored: str = "fp32"


def format_of(config: EmbeddingBagConfig | EmbeddingConfig) -> str:
    """How the table's weights are stored. A config of TorchRec's own says it by its data type."""
    return config.stored if isinstance(config, StoredBagConfig | StoredRowConfig) else _PLAIN[config.data_type]


Collection = TypeVar("Collection", EmbeddingBagCollection, EmbeddingCollection)


def tables_of(kind: type[Collection], configs: Sequence[Any], device: torch.device | None) -> Collection:
    """TorchRec's collection `kind` of the tables of `configs`, on `device`.

    Weights on "meta" are nowhere. They are not drawn, which would take PyTorch a millisecond a table.
    """
    with _Undrawn():
        return kind(tables=list(configs), device=device)


class _Undrawn(TorchFunctionMode):
    """Weights that are nowhere stay as they are where PyTorch would draw them."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        weights = given.get("tensor")
        return weights if function is init.normal_ and weights is not None and weights.is_meta else function(*args, **given)
