"""What an embedding table is, apart from where it lives."""

from __future__ import annotations

from dataclasses import dataclass, replace

ELEMENT_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2, "int64": 8, "int32": 4}


@dataclass(frozen=True)
class Table:
    """E = `rows` x D = `dim`, read by one or more features. `pooling` none means a sequence feature."""

    name: str
    rows: int
    dim: int
    features: tuple[str, ...]
    pooling: str = "sum"  # sum | mean | none
    dtype: str = "fp32"

    @property
    def row_bytes(self) -> int:
        return self.dim * ELEMENT_BYTES[self.dtype]

    @property
    def weight_bytes(self) -> int:
        return self.rows * self.row_bytes

    @property
    def parameters(self) -> int:
        return self.rows * self.dim

    def with_rows(self, rows: int) -> Table:
        return replace(self, rows=rows)
