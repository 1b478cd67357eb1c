"""What a sharding scheme is: one way to lay a table out. It has all that a plan, its steps and its explanation need to know of it.

The schemes of this package are the folders of `recsys_lab/schemes`, found there and listed nowhere. Others `register` themselves.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

from recsys_lab.errors import UserError
from recsys_lab.plan.context import Context
from recsys_lab.plan.sharding_plan import Placement, Shard, ShardingPlan
from recsys_lab.plan.steps import Step
from recsys_lab.plan.workload import Workload
from recsys_lab.tables import Table
from recsys_lab.tables.tiers import ROW_SHARDED

HOME = "recsys_lab.schemes"
#: How pooled rows of whole tables travel: TorchRec's way, a scatter a table, a scatter a rank.
ALL_TO_ALL = "all_to_all"
EXCHANGES = (ALL_TO_ALL, "scatter_list", "fused_scatter")
Placed: TypeAlias = Sequence[tuple[Table, Placement]]


@dataclass(frozen=True)
class Rules:
    """What shards of a table must be, beside covering each of its cells once.

    Attributes:
        everywhere: one shard, on all ranks.
        one_shard: the table has one shard.
        all_rows: each shard has all rows.
        all_columns: each shard has all columns.
        one_host: all shards are on one host.
        blocks: rows in equal blocks over the ranks of the `world`, or of each `host` that has a shard; empty: no blocks.
    """

    everywhere: bool = False
    one_shard: bool = False
    all_rows: bool = False
    all_columns: bool = False
    one_host: bool = False
    blocks: str = ""


@dataclass(frozen=True)
class ModuleMemory:
    """Bytes of the model's parts that only some ranks have.

    Attributes:
        lasting: bytes on each rank from step to step.
        buffers: bytes on each rank within a step.
        received: numbers that a rank takes for each of its samples in place of pooled rows; None: pooled rows.
    """

    lasting: tuple[int, ...]
    buffers: tuple[float, ...]
    received: int | None


@dataclass(frozen=True, kw_only=True)
class Scheme:
    """One way to lay a table out.

    Attributes:
        name: as plans say it.
        travels: what travels in an iteration because of it, for people.
        execution: `module:name` of a `recsys_lab.executor.execution.Execution`. It is imported only where something runs.
        lower: (input and forward, backward) steps of its tables, with the collectives that the executor really issues.
        words: (where a table is, why) for people, from table, placement, size on the fullest rank, and plan.
        reference_cases: small plans of some tables on (hosts, ranks a host). Tests compare them with an unsharded model and their steps.
        rules: what its shards must be; None: `validate` alone decides.
        family: schemes of one family are lowered together and name their steps by it; empty: the scheme alone.
        tier: where its rows count, unless a shard says so itself.
        sequences: whether it has an exchange of sequences.
        at_home: every rank holds the table, so nothing is exchanged.
        divides_evenly: each rank holds an equal part of each table.
        sums_across_ranks: pooled rows are added up over ranks.
        any_exchange: pooled rows may travel by each of `EXCHANGES`.
        validate: raises UserError, with where, for shards that break more than the `rules`.
        validate_plan: the same for a plan, once.
        served_ranks: of how many ranks a holder of a shard looks samples up; 0: its own alone, nothing is sent; None: of all.
        module_memory: memory of tower modules, where the scheme decides which ranks have them.
        sentences: more words on a plan.
        check_execution: raises UserError for tables that can be planned and priced, but not run.
    """

    name: str
    travels: str
    execution: str
    lower: Callable[[Context], tuple[list[Step], list[Step]]]
    words: Callable[[Table, Placement, str, ShardingPlan], tuple[str, str]]
    reference_cases: Callable[[tuple[Table, ...], int, int], Iterator[ShardingPlan]]
    rules: Rules | None = Rules()
    family: str = ""
    tier: str = ROW_SHARDED
    sequences: bool = False
    at_home: bool = False
    divides_evenly: bool = False
    sums_across_ranks: bool = False
    any_exchange: bool = False
    validate: Callable[[str, Table, Placement, ShardingPlan], None] | None = None
    validate_plan: Callable[[ShardingPlan], None] | None = None
    served_ranks: Callable[[Shard, ShardingPlan], int] | None = None
    module_memory: Callable[[ShardingPlan, Workload], ModuleMemory] | None = None
    sentences: Callable[[ShardingPlan], tuple[str, ...]] | None = None
    check_execution: Callable[[Placed], None] | None = None


_KNOWN: dict[str, Scheme] = {}


def register(*schemes: Scheme) -> None:
    """Makes schemes known. A package of your own calls it when it is imported.

    Args:
        schemes: each with a name of its own.
    """
    for scheme in schemes:
        assert _KNOWN.setdefault(scheme.name, scheme) == scheme, f"two schemes have the name {scheme.name}"


def known_schemes() -> Mapping[str, Scheme]:
    """All schemes by name: those of this package, then what was registered."""
    _load()
    return _KNOWN


def scheme_of(placement: Placement) -> Scheme:
    """KeyError for an unknown one: `validate` refuses it with a user's error."""
    return known_schemes()[placement.scheme]


def families(plan: ShardingPlan) -> dict[str, tuple[tuple[Table, Placement], ...]]:
    """The tables of each family, in the order in which the plan first names one."""
    members: dict[str, list[tuple[Table, Placement]]] = {}
    for table, placement in zip(plan.tables, plan.placements):
        scheme = scheme_of(placement)
        members.setdefault(scheme.family or scheme.name, []).append((table, placement))
    return {family: tuple(tables) for family, tables in members.items()}


def schemes_of(plan: ShardingPlan) -> tuple[Scheme, ...]:
    """Those that it uses, one of each family, in the order in which the plan first names one."""
    return tuple(scheme_of(members[0][1]) for members in families(plan).values())


def home_scheme() -> Scheme:
    """Under which a rank that is alone holds every table."""
    return next(scheme for scheme in known_schemes().values() if scheme.at_home)


def even_scheme() -> Scheme:
    """What holds tables that fit in no other way."""
    return next(scheme for scheme in known_schemes().values() if scheme.divides_evenly)


def column_scheme() -> Scheme:
    """What cuts a table of sequences by columns over any ranks: a hot row then loads each of them alike."""
    cut = (scheme for scheme in known_schemes().values() if scheme.sequences and scheme.rules is not None and scheme.rules.all_rows)
    return next(scheme for scheme in cut if scheme.rules is not None and not scheme.rules.one_shard)


def check_exchange(plan: ShardingPlan, exchange: str, overlap: bool) -> None:
    """Raises UserError for an exchange that does not exist, or that is not for this plan's tables."""
    if exchange not in EXCHANGES:
        raise UserError("no such exchange", where="sharder.executor.exchange", given=exchange, allowed=", ".join(EXCHANGES))
    if (exchange == ALL_TO_ALL and overlap) or plan.world_size == 1:
        return
    for table, placement in plan.by_table.values():
        if table.pooling == "none" or not scheme_of(placement).any_exchange:
            whole = [scheme.name for scheme in known_schemes().values() if scheme.any_exchange]
            raise UserError(
                "this exchange is for pooled tables that lie whole on a rank",
                where=f"sharder.executor.{'overlap' if exchange == ALL_TO_ALL else 'exchange'}",
                given=f"table {table.name} is {'a sequence' if table.pooling == 'none' else placement.scheme}",
                allowed=", ".join(whole),
                remedy=f"sharder=torchrec 'sharder.planner.sharding_types=[{','.join(whole)}]', or exchange all_to_all with overlap",
            )


def examples(place: Callable[[Table, int, int, int], Placement]) -> Callable[[tuple[Table, ...], int, int], Iterator[ShardingPlan]]:
    """Reference cases of a scheme whose tables are placed one by one, by `place(table, number, hosts, ranks_per_host)`."""

    def reference_cases(tables: tuple[Table, ...], hosts: int, ranks_per_host: int) -> Iterator[ShardingPlan]:
        placements = tuple(place(table, number, hosts, ranks_per_host) for number, table in enumerate(tables))
        yield ShardingPlan("reference", hosts, ranks_per_host, tables, placements)

    return reference_cases


@cache
def _load() -> None:
    """Every folder of schemes names its own in `SCHEMES`."""
    home = importlib.import_module(HOME)
    for folder in pkgutil.iter_modules(home.__path__):
        register(*importlib.import_module(f"{HOME}.{folder.name}").SCHEMES)
