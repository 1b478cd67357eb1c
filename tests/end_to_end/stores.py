"""Lines whose tables are larger than the memory that they may use: files of rows, and caches that evict."""

from __future__ import annotations

import json
import math
from pathlib import Path

import torch
from safetensors import safe_open

from tests.end_to_end.lines import last_checkpoint

TABLES = "name,rows,dim,mean_ids,pooling,skew\na,30000,16,2,sum,0.6\nb,20000,16,3,mean,0.4\nc,2000,16,1,sum,1.05\n"
#: By the number of ranks: with it all tables are in files, and steps evict rows.
BUDGET = {1: "sharder.memory_budget_gb=0.0008", 2: "sharder.memory_budget_gb=0.0005"}


def table_file(folder: Path) -> Path:
    path = folder / "tables.csv"
    path.write_text(TABLES)
    return path


def words(tables: Path, ranks: int = 2, steps: int = 24) -> tuple[str, ...]:
    """A line that trains all its tables in memory; a BUDGET brings them to files."""
    return (
        "model=tables",
        f"model.file={tables}",
        "model.bottom_layers=[16,16]",
        "model.over_layers=[16,1]",
        "model.dropout=0.1",
        "data.batch_size=128",
        "data.rows_train=4000",
        "data.rows_validation=500",
        "data.rows_test=500",
        f"trainer.max_steps={steps}",
        "launcher.hosts=1",
        f"launcher.ranks_per_host={ranks}",
        "logger=none",
        "baselines=false",
    )


def contents(folder: Path) -> dict[str, torch.Tensor]:
    """Every tensor of a run's last checkpoint, whole, however its ranks held it."""
    parts: dict[str, list[tuple[list[int], torch.Tensor]]] = {}
    for path in sorted(last_checkpoint(folder).glob("rank_*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name, where in json.loads(file.metadata()["pieces"]).items():
                assert "rows" not in where
                parts.setdefault(where["key"], []).append((where["offset"], file.get_tensor(name)))
    return {key: _whole(held) for key, held in parts.items()}


def _whole(held: list[tuple[list[int], torch.Tensor]]) -> torch.Tensor:
    shape = [max(offset[d] + tensor.shape[d] for offset, tensor in held) for d in range(held[0][1].dim())]
    found, filled = torch.zeros(shape, dtype=held[0][1].dtype), 0
    for offset, tensor in held:
        found[tuple(slice(o, o + n) for o, n in zip(offset, tensor.shape))] = tensor
        filled += tensor.numel()
    assert filled == math.prod(shape)
    return found


def metrics(folder: Path) -> list[list[str]]:
    """metrics.csv, without its speeds."""
    rows = [row.split(",") for row in (folder / "metrics.csv").read_text().splitlines()]
    speed = rows[0].index("examples_per_second")
    return [row[:speed] + row[speed + 1 :] for row in rows]
