"""Lines whose tables are larger than the memory that they may use: files of rows, and caches that evict."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import safe_open

from recsys_lab.train.checkpoint import Piece, Reader, pieces_of
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
    """Every tensor of a run's last checkpoint, whole, however its ranks held it and whatever follows from the seed."""
    checkpoint = last_checkpoint(folder)
    empty: dict[str, torch.Tensor] = {}
    for path in sorted(checkpoint.glob("rank_*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name, where in pieces_of(file.metadata()).items():
                tensor = file.get_tensor(name)
                stops = [offset + size for offset, size in zip(where["offset"], tensor.shape)]
                if "rows" in where:  # a store's: those that were read, and how many there are
                    stops[0] = where["unread"]["start"] + where["unread"]["count"]
                known = empty.get(where["key"], tensor).shape
                empty[where["key"]] = torch.empty([*map(max, stops, known)], dtype=tensor.dtype)
    reader = Reader(checkpoint)
    for key, tensor in empty.items():
        reader.fill(Piece(key, (0,) * tensor.dim(), tensor))
    return empty


def metrics(folder: Path) -> list[list[str]]:
    """metrics.csv, without its speeds."""
    rows = [row.split(",") for row in (folder / "metrics.csv").read_text().splitlines()]
    speed = rows[0].index("examples_per_second")
    return [row[:speed] + row[speed + 1 :] for row in rows]
