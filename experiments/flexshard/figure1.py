"""Figure 1: what a rank pays for histories as sequences and as pooled features, row-wise, as they get longer and more."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from experiments.flexshard.models import cluster, published, setting
from recsys_lab.sharders.flexshard.allocate import Split
from recsys_lab.sharders.flexshard.costs import row_sharding
from recsys_lab.sharders.flexshard.table_costs import table_costs
from recsys_lab.studies.pictures import BLUE, ORANGE, picture, written
from recsys_lab.studies.study import Line, Study
from recsys_lab.tables import Table, TableAccess
from recsys_lab.units import GB

LENGTHS = np.array([1, 10, 100, 200, 500, 1000, 1500, 2000])
TABLES = (1, 2, 4, 8)
ROWS = 30_000_000  # of all tables together; dynamic costs do not depend on it


def sequences(length: float) -> tuple[float, float]:
    """Dynamic memory in GB and exchange in ms of histories that are `length` long together, in however many tables."""
    costs = row_sharding(ROWS, published().setting.dim, length, setting())
    return costs.dynamic_memory_bytes / GB, costs.communication_ms


def pooled(tables: int, length: float) -> tuple[float, float]:
    """The same of `tables` features that are summed."""
    made = Table("history", ROWS // tables, published().setting.dim, ("history",))
    access = TableAccess("history", length / tables, (made.rows,), (length / tables / made.rows,), "formula", "uniform")
    costs = table_costs(made, access, Split(0, 0), setting())["row_sharded"]
    return tables * costs.dynamic_memory_bytes / GB, tables * costs.communication_ms


def run(name: str) -> Study:
    paper = published()
    lines = []
    for model in ("RM-1", "RM-3"):
        given = paper.table4[model]
        half = sequences(given.mean_length)[0] / 2  # table 4 counts one of the two copies of table 2
        lines.append(Line(f"{model}: activations of a rank (table 4)", half, given.local_activation_gb, "GB", "simulated"))
        static = given.rows * paper.setting.dim * 4 / GB
        lines.append(Line(f"{model}: the table (table 4)", static, given.static_gb, "GB", "simulated"))
    long, short = sequences(2000), sequences(1000)
    ratios = {tables: [a / b for a, b in zip(long, pooled(tables, 2000))] for tables in (1, 8)}
    for tables, (memory, time) in ratios.items():
        pooled_as = f"{tables} pooled feature{'s' if tables > 1 else ''}"
        lines.append(Line(f"sequences of 2000 over {pooled_as}: memory", memory, unit="times", origin="simulated"))
        lines.append(Line(f"sequences of 2000 over {pooled_as}: exchange", time, unit="times", origin="simulated"))
    statements = (
        ("pooled costs do not vary with the length", pooled(4, 1) == pooled(4, 2000)),
        ("pooled costs scale by the number of tables", np.allclose(pooled(8, 2000), 8 * np.array(pooled(1, 2000)))),
        ("sequence costs scale linearly with the length", np.allclose(long, 2 * np.array(short))),
        ("sequences cost orders of magnitude more than pooling the same embeddings", min(ratios[8]) > 10 and min(ratios[1]) > 100),
    )
    data = {"curves": {"length": LENGTHS.tolist(), "sequences": [sequences(n) for n in LENGTHS.tolist()]}}
    data["curves"] |= {f"pooled, {n} tables": pooled(n, 2000) for n in TABLES}
    notes = (
        "The figure prints no numbers: held to its caption, and to table 4. Dynamic costs only; (memory in GB, exchange in ms) a rank.",
        "Pooled, row-wise: as TorchRec does it, partial sums for the global batch and a reduce-scatter. Reckoned by what a rank receives "
        f"alone, as section 2 suggests, sequences of 2000 are 2000 / 8 = 250 times 8 pooled features on {cluster().name}.",
    )
    return Study(name, "what sequences cost beside pooled features", tuple(lines), statements, notes, data, draw)


def draw(folder: Path) -> list[Path]:
    with picture(folder / "figure1.svg", 2, 2, height=6) as (figure, axes):
        for row, what in enumerate(("dynamic memory a rank (GB)", "exchange an iteration (ms)")):
            left, right = axes[2 * row], axes[2 * row + 1]
            left.plot(LENGTHS, [sequences(n)[row] for n in LENGTHS], color=BLUE, marker="o", markersize=4)
            left.set(ylabel=what, title="sequences: any number of tables" if row == 0 else "")
            for n in TABLES:
                value = pooled(n, 2000)[row]
                right.plot([1, 2000], [value] * 2, color=ORANGE)
                right.annotate(f"{n} table{'s' if n > 1 else ''}", (2000, value), ha="right", va="bottom", fontsize=9)
            right.set(title="sum-pooled: any length" if row == 0 else "", ylim=(0, 1.25 * pooled(8, 2000)[row]))
            left.set_ylim(bottom=0)
        for axis in axes[2:]:
            axis.set_xlabel("total length of the histories")
        figure.suptitle("Row-wise on 4 x 8 ranks, batch 4096, dimension 256, FP32 (simulated)", fontsize=11)
    return written(folder, "figure1")
