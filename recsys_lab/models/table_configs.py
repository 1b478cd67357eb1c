"""TorchRec's configs of tables, with the format in which the weights are stored: TorchRec has names for plain formats only.

`data_type` is what a look-up reads, and all that TorchRec needs to know.
"""

from __future__ import annotations

from dataclasses import dataclass

from torchrec.modules.embedding_configs import DataType, EmbeddingBagConfig, EmbeddingConfig

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
