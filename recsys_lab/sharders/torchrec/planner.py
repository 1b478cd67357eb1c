"""TorchRec's EmbeddingShardingPlanner as a pure function of our tables, access statistics and cluster.

It works on the meta device and needs no process group. So a plan for 64 GPUs is made on a laptop. This file imports no torch; search.py
does. What it answers is kept (recsys_lab/base/answers.py), so that a plan made again imports no torch.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from recsys_lab.base.answers import answer
from recsys_lab.base.ranges import OneOf, Width
from recsys_lab.base.schema import check_fields
from recsys_lab.cluster import Cluster
from recsys_lab.errors import PlanDoesNotFit, UserError
from recsys_lab.plan import Placement, Shard, ShardingPlan, Workload
from recsys_lab.plan.lower import check_kinds
from recsys_lab.plan.memory import check_fits
from recsys_lab.plan.scheme import known_schemes
from recsys_lab.schemes.in_host import GRID_SHARD, TABLE_ROW_WISE
from recsys_lab.schemes.replicated import DATA_PARALLEL
from recsys_lab.schemes.row_blocks import ROW_WISE
from recsys_lab.schemes.whole import COLUMN_WISE, TABLE_WISE
from recsys_lab.sharders.base import PlanInputs, Sharder
from recsys_lab.sharders.options import KEY, forced_schemes
from recsys_lab.sharders.torchrec.columns import AUTO, FACTOR, Types, exchangeable, factor, first_widths, idle_ranks, more_shards
from recsys_lab.sharders.torchrec.hot_tables import cooler_types, cost_ms, fits
from recsys_lab.sharders.torchrec.types import SCHEMES
from recsys_lab.sharders.torchrec_row_wise import RowWise
from recsys_lab.tables import Table
from recsys_lab.units import human_bytes

#: How often it is asked again for a plan in which every rank has a shard.
SPREADING = 3
BYTES_PER_MS = 1e6  # in one GB/s
NO_TYPE = "no such sharding type"
#: The rooms on whose sources TorchRec's answer depends.
SEARCHED = ("sharders", "schemes", "tables", "plan")


@dataclass(frozen=True, kw_only=True)
class TorchRec(Sharder):
    """The plan that TorchRec's cost model likes best.

    Attributes:
        sharding_types: what the planner may choose from; None: all but the grid, as TorchRec does.
        force: table name or glob -> the sharding type that those tables must have; a later entry wins.
        column_shard_width: columns of a column shard; None: the planner decides. A forced table is then cut over all ranks, a host's
            ranks or all hosts, as its type has it.
        column_shards: into how many shards a table is cut by columns, in place of their width. auto: where ranks would hold no shard, the
            heaviest tables are cut, or cut again, until there are enough. factor: with more ranks than tables all tables are cut by
            columns, the least power of two with which every rank has a shard (DMT, section 5.1); else as auto.

    Tables of sequences are those of an EmbeddingCollection. TorchRec exchanges them under four sharding types, and those that are cut by
    columns in shards of one width.
    """

    sharding_types: list[Annotated[str, OneOf(SCHEMES)]] | None = None
    force: dict[str, str] | None = None
    column_shard_width: Width | None = None
    column_shards: str | None = None

    def plan(self, inputs: PlanInputs) -> ShardingPlan:
        """Raises UserError for a sharding type that does not exist or that a table cannot have, PlanDoesNotFit if no plan fits."""
        tables = inputs.tables
        check_fields(self, KEY)
        check_kinds(tables)
        forced = forced_schemes(tables, self.force, SCHEMES, NO_TYPE)
        cut = self.column_shards == FACTOR and factor(len(tables), inputs.cluster.world_size) is not None
        free = [COLUMN_WISE] if cut else self.sharding_types
        types: dict[str, list[str] | None] = {t.name: [forced[t.name]] if t.name in forced else free for t in tables}
        for table in tables:
            _check_possible(table, types[table.name])
        widths = exchangeable(tables, first_widths(tables, forced, inputs.cluster, self.column_shard_width, self.column_shards))
        best = _search(inputs, types, widths)
        tries = SPREADING if self.column_shards in (AUTO, FACTOR) and not cut else 0
        while tries and (narrower := more_shards(best, inputs.access, types)):
            types, widths, tries = types | dict.fromkeys(narrower, [COLUMN_WISE]), exchangeable(tables, widths | narrower), tries - 1
            best = min(best, _search(inputs, types, widths), key=idle_ranks)
        best = self._cooler(best, inputs, types, forced)
        check_fits(best, inputs.workload, inputs.cluster)
        return best

    def _cooler(self, plan: ShardingPlan, inputs: PlanInputs, types: Types, forced: Mapping[str, str]) -> ShardingPlan:
        """`plan`, or what TorchRec finds where hot tables are not cut by rows, if that fits and its slowest ranks cost less."""
        plans = [plan]
        for cooler, hot in cooler_types(plan, inputs, types):
            over_all = dict(forced) | {name: COLUMN_WISE for name in hot if name not in forced}
            widths = exchangeable(inputs.tables, first_widths(inputs.tables, over_all, inputs.cluster, self.column_shard_width, None))
            with suppress(PlanDoesNotFit):
                plans.append(_search(inputs, cooler, widths))
        return plan if len(plans) == 1 else min(plans, key=lambda one: (not fits(one, inputs), cost_ms(one, inputs)))


@dataclass(frozen=True)
class Search:
    """All that TorchRec's search depends on. `lengths`: look-ups of a feature of each table; `types`, `widths`: of each table, in order.
    `room_bytes`: what tables may fill of a rank; `bandwidths`: of memory, within a host and across hosts, bytes per ms.
    """

    tables: tuple[Table, ...]
    lengths: tuple[float, ...]
    types: tuple[tuple[str, ...] | None, ...]
    widths: tuple[int, ...]
    ranks: int
    ranks_per_host: int
    kind: str
    room_bytes: int
    bandwidths: tuple[float, float, float]
    batch_size: int
    sparse_optimizer: str


def _search(inputs: PlanInputs, types: Types, widths: Mapping[str, int]) -> ShardingPlan:
    """TorchRec's plan with these types allowed and column shards of these widths."""
    tables, cluster, workload = inputs.tables, inputs.cluster, inputs.workload
    if not _could_fit(tables, cluster, workload):  # TorchRec would go through all of its proposals first: minutes for XLRM in FP32
        raise _does_not_fit(inputs, types)
    placements = _placements(_search_of(inputs, types, widths))
    if placements is None:
        raise _does_not_fit(inputs, types)
    return ShardingPlan("torchrec", cluster.hosts, cluster.ranks_per_host, tables, placements)


def _search_of(inputs: PlanInputs, types: Types, widths: Mapping[str, int]) -> Search:
    tables, cluster, workload = inputs.tables, inputs.cluster, inputs.workload
    memory, near, far = cluster.device.memory_bandwidth_gb_s, cluster.near.bandwidth_gb_s, cluster.cross_host.bandwidth_gb_s
    return Search(
        tables=tables,
        lengths=tuple(inputs.access[table.name].mean_length / len(table.features) for table in tables),
        types=tuple(None if (own := types[table.name]) is None else tuple(own) for table in tables),
        widths=tuple(widths[table.name] for table in tables),
        ranks=cluster.world_size,
        ranks_per_host=cluster.ranks_per_host,
        kind=cluster.device.kind,
        room_bytes=max(cluster.usable_memory_bytes - workload.dense_bytes, 0),
        bandwidths=(memory * BYTES_PER_MS, near * BYTES_PER_MS, far * BYTES_PER_MS),
        batch_size=workload.batch_size,
        sparse_optimizer=workload.sparse_optimizer,
    )


@functools.lru_cache(maxsize=32)
def _placements(search: Search) -> tuple[Placement, ...] | None:
    """What TorchRec finds; None where nothing fits. Kept: it takes seconds, and what else differs between two plans is often not of it."""
    rows = answer(ask_torchrec, asdict(search), SEARCHED)
    return None if rows is None else tuple(Placement(table, scheme, _shards(shards)) for table, scheme, shards in rows)


def ask_torchrec(search: dict[str, Any]) -> list[Any] | None:
    """The answer of TorchRec's planner to a `Search`, both plain. Imports torch."""
    from recsys_lab.sharders.torchrec.search import answered

    return answered(search)


def _shards(extents: list[list[Any]]) -> tuple[Shard, ...]:
    return tuple(Shard(tuple(ranks), *edges) for ranks, *edges in extents)


def _check_possible(table: Table, types: list[str] | None) -> None:
    of_sequences = [scheme for scheme in SCHEMES if known_schemes()[scheme].sequences]
    if table.pooling == "none" and types is not None and not set(types) & set(of_sequences):
        raise UserError(
            "TorchRec does not exchange sequences under this sharding type",
            where=f"table {table.name}",
            given=f"pooling none, {', '.join(types)}",
            allowed=", ".join(of_sequences),
        )
    if table.pooling == "mean" and types == [GRID_SHARD]:
        raise UserError(
            f"TorchRec computes mean pooling wrongly under {GRID_SHARD}",
            where=f"table {table.name}",
            given=f"pooling mean, {GRID_SHARD}",
            remedy=f"force {TABLE_ROW_WISE} or {COLUMN_WISE} instead",
        )


def _could_fit(tables: tuple[Table, ...], cluster: Cluster, workload: Workload) -> bool:
    """Whether all ranks together can hold one copy of the tables with their optimizer's state."""
    room = cluster.usable_memory_bytes - workload.dense_bytes
    return sum(t.weight_bytes + workload.table_state_bytes(t.rows, t.dim) for t in tables) <= room * cluster.world_size


def _does_not_fit(inputs: PlanInputs, types: Types) -> PlanDoesNotFit:
    """Why TorchRec found no plan. Even the most even one lacks memory (with its figures), or the allowed types are too coarse."""
    RowWise().plan(inputs)  # raises PlanDoesNotFit if that is so
    tables, cluster, workload = inputs.tables, inputs.cluster, inputs.workload
    room = cluster.usable_memory_bytes - workload.dense_bytes
    size = {t.name: t.weight_bytes + workload.table_state_bytes(t.rows, t.dim) for t in tables}
    whole = [name for name in size if types[name] == [TABLE_WISE]]
    replicated = sum(size[name] for name in size if types[name] == [DATA_PARALLEL])
    spread = sum(size[name] for name in size if types[name] != [DATA_PARALLEL]) / cluster.world_size
    least_bytes = replicated + max(spread, max((size[name] for name in whole), default=0))
    lacks = f": a rank lacks {human_bytes(least_bytes - room)}" if least_bytes > room else ": the pieces are too large to be spread evenly"
    return PlanDoesNotFit(
        "no plan fits with the sharding types that are allowed" + lacks,
        where=f"cluster {cluster.name}",
        allowed=f"{human_bytes(room)} of tables a rank",
        remedy=f"nearest change that would fit: allow or force {ROW_WISE} for the largest tables, or sharder=torchrec_row_wise",
    )
