"""The rank that serves most rows of tables cut by rows: which tables make it so, and plans of the same tables in which it does not."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from recsys_lab.plan.scheme import column_scheme, even_scheme
from recsys_lab.plan.sharding_plan import Placement, Shard, ShardingPlan
from recsys_lab.plan.workload import Workload
from recsys_lab.tables import Table
from recsys_lab.tables.spec import ELEMENT_BYTES
from recsys_lab.units import human_bytes

#: A rank that serves so many times the mean rank's rows is said to hold hot ones.
HOT = 1.2
#: Columns of a shard are a multiple of this: what FBGEMM's kernels read at once.
UNIT = 4

ONCE = "sharder.dedup=true, by which equal ids of a rank's batch travel once"


@dataclass(frozen=True)
class HotRank:
    """`passing` [R] of each table of sequences: bytes for the rows that a rank looks up for others.

    `rank`: the one of which is asked.
    """

    passing: Mapping[str, np.ndarray]
    rank: int
    workload: Workload

    @property
    def excess_bytes(self) -> float:
        """What the rank has beyond the mean rank."""
        return float(sum(size[self.rank] - size.mean() for size in self.passing.values()))

    @property
    def times_mean(self) -> float:
        """Its rows over those of the mean rank."""
        mean = sum(size.mean() for size in self.passing.values())
        return float(sum(size[self.rank] for size in self.passing.values()) / mean) if mean else 1.0

    @property
    def tables(self) -> list[str]:
        """Those of which it serves more than `HOT` times the mean, the largest excess first."""
        hot = {t: size[self.rank] - size.mean() for t, size in self.passing.items() if size[self.rank] > HOT * size.mean()}
        least = 0.01 * sum(hot.values())
        return sorted((t for t in hot if hot[t] > least), key=lambda t: -hot[t])

    def words(self) -> str:
        """Which tables are hot there, and what the codec copies; empty where none is."""
        if not self.tables:
            return ""
        parts = (f"{t} {self.passing[t][self.rank] / self.passing[t].mean():.1f} times" for t in self.tables)
        served = sum(size[self.rank] for size in self.passing.values())
        copy = f", of which the {self.workload.rows_format} codec's second FP32 copy is {human_bytes(served * self._copy_share)}"
        return (
            f"; hot rows: it serves {self.times_mean:.1f} times the mean rank's rows ({', '.join(parts)}), which take {human_bytes(served)}"
            f"{copy if self._copy_share else ''}"
        )

    @property
    def _copy_share(self) -> float:
        """Of those bytes: rows, clamped copies and what travels."""
        travels, row = ELEMENT_BYTES[self.workload.rows_format], ELEMENT_BYTES["fp32"]
        return row / (2 * row + travels) if travels < row else 0.0

    def remedy(self, plan: ShardingPlan, fits: Callable[[ShardingPlan, Workload], bool]) -> str:
        """Changes with which `plan` fits: equal ids once, and the fewest hot tables by columns. Empty where neither does."""
        once = replace(self.workload, dedup=True)
        lines = [ONCE] if not self.workload.dedup and fits(plan, once) else []
        hottest = (self.tables[:count] for count in range(1, len(self.tables) + 1))
        lines += [_line(plan, names) for names in hottest if fits(by_columns(plan, names), self.workload)][:1]
        return "; or ".join(lines)


def by_columns(plan: ShardingPlan, names: Sequence[str]) -> ShardingPlan:
    """`plan` with the tables `names` cut by columns, over all ranks or as many as have some. All are equally wide."""
    tables = [table for table in plan.tables if table.name in names]
    width = min(math.ceil(table.dim / plan.world_size / UNIT) * UNIT for table in tables)
    return replace(plan, placements=tuple(_in_columns(t, width) if t.name in names else p for t, p in plan.by_table.values()))


def _in_columns(table: Table, width: int) -> Placement:
    starts = range(0, table.dim, width)
    shards = (Shard((rank,), 0, table.rows, start, min(start + width, table.dim)) for rank, start in enumerate(starts))
    return Placement(table.name, column_scheme().name, tuple(shards))


def _line(plan: ShardingPlan, names: Sequence[str]) -> str:
    """What plans it so, with TorchRec's planner."""
    even, others = even_scheme().name, {p.scheme for p in plan.placements if p.table not in names}
    rest = {"*": even} if others <= {even} else {}
    force = ", ".join(f"{name}: {scheme}" for name, scheme in (rest | dict.fromkeys(names, column_scheme().name)).items())
    return f"{' and '.join(names)} by columns, which spreads hot rows: sharder=torchrec 'sharder.planner.force={{{force}}}'"
