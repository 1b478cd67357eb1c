"""Tables as safetensors in shards: a few rows at a time, so a table may be larger than memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from recsys_lab.tables import Table
from recsys_lab.train.checkpoint import Piece, Reader
from recsys_lab.train.tensor_file import write_tensors

#: Of a shard, about. It is held in memory while it is written.
SHARD_BYTES = 1 << 28
_PLAIN = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Shard:
    """Rows [first, first + rows) of a table, in `file` under its name."""

    file: str
    first: int
    rows: int


@dataclass
class Written:
    """`shards` of each table. `largest_error`: of a weight, by its table's greatest; where no number changed 0."""

    shards: dict[str, list[dict[str, Any]]]
    largest_error: float = 0.0
    greatest: float = 0.0


def encoded(rows: torch.Tensor, format: str) -> dict[str, torch.Tensor]:
    """FP32 [n, D] as it is written: by what is added to the table's name. int8: a row is code * scale + offset, codes from 0 to 255."""
    if format != "int8":
        return {"weight": rows.to(_PLAIN[format])}
    low, high = rows.min(1).values, rows.max(1).values
    scale = ((high - low) / 255).where(high > low, torch.ones_like(low))
    codes = ((rows - low[:, None]) / scale[:, None]).round_().clamp_(0, 255)
    return {"weight": codes.to(torch.uint8), "scale": scale, "offset": low}


def decoded(parts: dict[str, torch.Tensor]) -> torch.Tensor:
    """FP32 [n, D] of what `encoded` made of them."""
    weight = parts["weight"].float()
    return weight if "scale" not in parts else weight * parts["scale"][:, None] + parts["offset"][:, None]


def write_tables(folder: Path, tables: tuple[Table, ...], reader: Reader, format: str) -> Written:
    """Writes the weights of `tables` to `folder`. Raises UserError where the checkpoint lacks some."""
    written = Written({})
    pending: dict[str, torch.Tensor] = {}
    size, number = 0, 1

    def flush() -> None:
        nonlocal pending, size, number
        if pending:
            write_tensors(folder / _file(number), pending, {"format": "pt"})
            pending, size, number = {}, 0, number + 1

    for table in tables:
        shards = written.shards.setdefault(table.name, [])
        for first, rows in _blocks(table, reader):
            parts = encoded(rows, format)
            changed = (decoded(parts) - rows).abs().max().item()
            written.largest_error, written.greatest = max(written.largest_error, changed), max(written.greatest, rows.abs().max().item())
            if shards and size and f"table.{table.name}.weight" in pending:
                flush()
            shards.append({"file": _file(number), "first": first, "rows": len(rows)})
            pending |= {f"table.{table.name}.{part}": tensor for part, tensor in parts.items()}
            size += sum(tensor.nbytes for tensor in parts.values())
            if size >= SHARD_BYTES:
                flush()
    flush()
    return written


def _file(number: int) -> str:
    return f"tables-{number:05d}.safetensors"


def _blocks(table: Table, reader: Reader) -> Iterator[tuple[int, torch.Tensor]]:
    """(first row, FP32 [n, D]) of each block of rows of `table`, in order."""
    step = max(1, SHARD_BYTES // (4 * table.dim))
    for first in range(0, table.rows, step):
        rows = torch.empty(min(step, table.rows - first), table.dim)
        reader.fill(Piece(f"table.{table.name}.weight", (first, 0), rows))
        yield first, rows


def rows_of(table: Table, ids: np.ndarray, reader: Reader) -> torch.Tensor:
    """FP32 [n, D]: those rows of `table`, `ids` int64 [n] distinct."""
    rows = torch.empty(len(ids), table.dim)
    reader.fill(Piece(f"table.{table.name}.weight", (0, 0), rows, ids))
    return rows
