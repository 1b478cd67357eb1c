"""A TorchRec plan as JSON: read as ours, written of ours, and priced beside plans of ours. Imports no torch.

TorchRec writes no file itself. Its plan gives plain data, which a user writes: `json.dump(plan._serialize(), file)`. It reads none either:
docs/torchrec.md has the lines that make a plan of it. The data are the same in TorchRec 1.8 and 1.9.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from recsys_lab import api
from recsys_lab.base.files import read_json, write_json
from recsys_lab.base.schema import check_shape
from recsys_lab.errors import PlanDoesNotFit, UserError
from recsys_lab.experiment import Experiment
from recsys_lab.plan import Placement, Shard, ShardingPlan
from recsys_lab.plan.validate import validate
from recsys_lab.schemes.replicated import DATA_PARALLEL
from recsys_lab.sharders.torchrec.types import SCHEMES
from recsys_lab.tables import Table
from recsys_lab.units import counted

REMEDY = "write it again with json.dump(plan._serialize(), file)"


@dataclass(frozen=True)
class _Shard:
    """Of TorchRec's `ShardMetadata`: first row and column, rows and columns."""

    shard_offsets: list[int]
    shard_sizes: list[int]


@dataclass(frozen=True)
class _Sharding:
    """Of TorchRec's `ParameterSharding`: a table of one module."""

    sharding_type: str
    ranks: list[int] | None = None
    shards: list[_Shard] | None = None


@dataclass(frozen=True)
class _Plan:
    """Of TorchRec's `ShardingPlan`: by module, by table."""

    plan: Mapping[str, Mapping[str, _Sharding]]


def read(path: Path | str, tables: Sequence[Table], hosts: int, ranks_per_host: int) -> ShardingPlan:
    """The plan in a file that holds what `ShardingPlan._serialize()` of TorchRec gives, as ours.

    Args:
        path: the file.
        tables: of the model. Each must be in the file, under its name, and no other.
        hosts, ranks_per_host: of the processes that the plan is for.

    Returns:
        A ShardingPlan: `recsys_lab.plan.explain.explain` says what it means.

    Raises:
        UserError: for a file that is missing or broken, for other tables, and for shards that cannot be.
    """
    path = Path(path)
    data = read_json(path, REMEDY)
    check_shape(data, _Plan, path, REMEDY)
    by_table: dict[str, dict] = {}
    for module, shardings in data["plan"].items():
        for name, sharding in shardings.items():
            if name in by_table:
                raise UserError("two tables have one name", where=f"{path}: {module or 'the model'}", given=name)
            by_table[name] = sharding
    names = {table.name for table in tables}
    for mistake, differing in (("the plan lacks a table", names - set(by_table)), ("the plan has a table more", set(by_table) - names)):
        if differing:
            remedy = "name the model that the plan is for: its tables need the same names"
            raise UserError(mistake, where=path, given=min(differing), remedy=remedy)
    placements = tuple(_placement(table, by_table[table.name], f"{path}: table {table.name}", hosts * ranks_per_host) for table in tables)
    plan = ShardingPlan("torchrec", hosts, ranks_per_host, tuple(tables), placements)
    validate(plan, where=path)
    return plan


def _placement(table: Table, sharding: Mapping, where: str, world_size: int) -> Placement:
    scheme, ranks, shards = sharding["sharding_type"], sharding.get("ranks"), sharding.get("shards")
    if scheme not in SCHEMES:
        raise UserError("no such sharding type", where=where, given=scheme, allowed=", ".join(SCHEMES))
    if scheme == DATA_PARALLEL:
        held_by = tuple(range(world_size)) if ranks is None else tuple(ranks)
        return Placement(table.name, scheme, (Shard(held_by, 0, table.rows, 0, table.dim),))
    if not shards or not ranks or len(shards) != len(ranks):
        counts = f"{counted(len(ranks or ()), 'rank')} and {counted(len(shards or ()), 'shard')}"
        raise UserError("a rank for each shard is needed", where=where, given=counts, remedy=REMEDY)
    parts = []
    for rank, shard in zip(ranks, shards):
        if (len(shard["shard_offsets"]), len(shard["shard_sizes"])) != (2, 2):
            raise UserError("a shard needs rows and columns", where=where, given=shard["shard_sizes"], remedy=REMEDY)
        (row, col), (rows, cols) = shard["shard_offsets"], shard["shard_sizes"]
        parts.append(Shard((rank,), row, row + rows, col, col + cols))
    return Placement(table.name, scheme, tuple(parts))


def write(path: Path | str, plan: ShardingPlan, device: str = "cuda") -> Path:
    """A plan of ours as the JSON of `ShardingPlan._serialize()` of TorchRec.

    Args:
        path: the file.
        plan: its tables become those of one module, `""`: it does not know the paths of modules.
        device: cuda or cpu, where it will train. Sharded tables get TorchRec's kernel `fused` on the former, else `dense`.

    Returns:
        `path`.

    Raises:
        UserError: for a scheme that TorchRec has not, and where the file cannot be written.
    """
    tables = {}
    for placement in plan.placements:
        check_scheme(placement)
        replicated = placement.scheme == DATA_PARALLEL
        kernel = "fused" if device == "cuda" and not replicated else "dense"
        ranks = [rank for shard in placement.shards for rank in shard.ranks]
        tables[placement.table] = {"sharding_type": placement.scheme, "compute_kernel": kernel, "ranks": ranks}
        if not replicated:
            tables[placement.table]["shards"] = [_shard(shard, plan.ranks_per_host, device) for shard in placement.shards]
    return write_json(Path(path), {"plan": {"": tables}})


def _shard(shard: Shard, ranks_per_host: int, device: str) -> dict[str, Any]:
    """Of TorchRec's `ShardMetadata`."""
    (rank,) = shard.ranks
    place = f"cuda:{rank % ranks_per_host}" if device == "cuda" else device
    return {
        "shard_offsets": [shard.row_start, shard.col_start],
        "shard_sizes": [shard.rows, shard.cols],
        "placement": f"rank:{rank}/{place}",
    }


def check_scheme(placement: Placement) -> None:
    """Raises UserError for a scheme that TorchRec has not."""
    if placement.scheme not in SCHEMES:
        remedy = "sharder=torchrec or neo_4d plans with these; FlexShard's tiers, DMT's towers and 2D groups run under run.py"
        allowed = ", ".join(SCHEMES)
        raise UserError("TorchRec has no such scheme", where=placement.table, given=placement.scheme, allowed=allowed, remedy=remedy)


@dataclass(frozen=True)
class Priced:
    """A plan's iteration on one cluster. `sent_mb`: by the busiest rank; `tables_gb`: what a rank holds at most.

    `why_not`: of a plan that does not fit, which rank lacks how much, and what would fit. Then there are no figures.
    """

    iteration_ms: float | None = None
    phases_ms: Mapping[str, float] = field(default_factory=dict)
    sent_mb: float | None = None
    tables_gb: float | None = None
    why_not: str | None = None

    @staticmethod
    def of(simulate: Callable[[], api.Simulated]) -> Priced:
        """What `simulate` returns. Or that the plan does not fit."""
        try:
            simulated = simulate()
        except PlanDoesNotFit as error:
            return Priced(why_not="; ".join(str(error.parts[part]) for part in ("what", "remedy") if error.parts[part]))
        sent = sum(collective.bytes for collective in simulated.collectives)
        return Priced(simulated.iteration_ms, simulated.phases_ms, sent / 1e6, simulated.bytes_per_rank.max / 1e9)


class Compared(dict[str, Priced]):
    """Plans by name, each priced on one cluster. `print` shows them side by side."""

    def rows(self) -> tuple[tuple[str, ...], ...]:
        """A figure a row: what it is, then of each plan. Phases that no plan has are left out."""
        each = list(self.values())
        names = dict.fromkeys(name for one in each for name in one.phases_ms)
        phases = [name for name in names if any(one.phases_ms.get(name) for one in each)]
        return (
            ("ms of an iteration", *("does not fit" if one.why_not else _figure(one.iteration_ms, ".2f") for one in each)),
            *((f"  {name.replace('_', ' ')}", *(_figure(one.phases_ms.get(name), ".2f") for one in each)) for name in phases),
            ("MB that a rank sends", *(_figure(one.sent_mb, ",.0f") for one in each)),
            ("GB with optimizer state", *(_figure(one.tables_gb, ".1f") for one in each)),
        )

    def reasons(self) -> list[str]:
        """A line for each plan that does not fit."""
        return [f"{name}: {one.why_not}" for name, one in self.items() if one.why_not]

    def __str__(self) -> str:
        rows = (("", *self), *self.rows())
        widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
        lines = ((row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))) for row in rows)
        return "\n".join([*("  ".join(line).rstrip() for line in lines), *self.reasons()])


def _figure(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def plan_of(path: Path | str, experiment: Experiment) -> ShardingPlan:
    """The plan in `path` for the tables and the cluster of `experiment`. Raises what `read` does."""
    cluster = experiment.cluster
    return read(path, experiment.tables(experiment.open_data()), cluster.hosts, cluster.ranks_per_host)


def compared(path: Path | str, sharders: Sequence[str], *overrides: str) -> Compared:
    """The plan in `path`, and those that sharders of ours make for the same tables, each priced on the same cluster.

    Args:
        path: as `read` takes it.
        sharders: of ours, such as "neo_4d".
        overrides: of run.py: the model and the cluster, such as "model=tables", "model.file=tables.csv", "cluster=h100x64".

    Returns:
        A Priced by name: of the file, then of each sharder. `print` shows a table of them. A plan that does not fit says so.

    Raises:
        UserError: that of `read`, and for wrong overrides.
    """
    experiment = api.compose(*overrides)
    plan = plan_of(path, experiment)
    of_sharders = {name: Priced.of(partial(api.simulate, *overrides, f"sharder={name}")) for name in sharders}
    return Compared({Path(path).name: Priced.of(partial(api.simulate, experiment, given=plan))} | of_sharders)


__all__ = ["Compared", "Priced", "check_scheme", "compared", "plan_of", "read", "write"]
