"""What an embedding table is, apart from where it lives."""

from __future__ import annotations

from dataclasses import dataclass, replace

#: What an element of a number format takes.
ELEMENT_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1, "int64": 8, "int32": 4}
#: What a stored weight takes, and how much of it a look-up reads. Of hi/lo split weights, and of those with a master, it reads the BF16
#: model.
STORED_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2, "bf16_master": 6, "split_bf16": 4, "split_bf16_8": 3}
READ_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2, "bf16_master": 2, "split_bf16": 2, "split_bf16_8": 2}
TABLE_FORMATS = tuple(STORED_BYTES)


@dataclass(frozen=True)
class Table:
    """E = `rows` x D = `dim`, read by one or more features. `pooling` none means a sequence feature."""

    name: str
    rows: int
    dim: int
    features: tuple[str, ...]
    pooling: str = "sum"  # sum | mean | none
    dtype: str = "fp32"  # one of TABLE_FORMATS

    @property
    def row_bytes(self) -> int:
        """Of a row as it is stored."""
        return self.dim * STORED_BYTES[self.dtype]

    @property
    def weight_bytes(self) -> int:
        return self.rows * self.row_bytes

    @property
    def parameters(self) -> int:
        return self.rows * self.dim

    def with_rows(self, rows: int) -> Table:
        return replace(self, rows=rows)
