"""What a sharding scheme is: one way to lay a table out, with everything that a plan, its steps and its explanation need to know of it.

The schemes of this package are the folders of `recsys_lab/schemes`, found there and listed nowhere. Others `register` themselves.
"""

from __future__ import annotations

import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

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


@dataclass(frozen=True)
class ModuleMemory:
    """Bytes of the model's parts that only some ranks have: `lasting` and `buffers` of each rank. `received`: numbers that a rank takes for
    each of its own samples in place of pooled rows; None: pooled rows.
    """

    lasting: tuple[int, ...]
    buffers: tuple[float, ...]
    received: int | None


@dataclass(frozen=True, kw_only=True)
class Scheme(ABC):
    """One way to lay a table out.

    `name`: as plans say it. `travels`: what travels in an iteration because of it, for people. `execution`: `module:name` of how it runs
    (`recsys_lab.executor.execution.Execution`), imported only where something runs; schemes that name the same part run together.
    `family`: schemes of one family are lowered together and their steps have its name; empty: the scheme's own.
    `tier`: where its rows count, unless a shard says so itself. `sequences`: it has an exchange of sequences.
    `at_home`: every rank holds the table, so nothing is exchanged. `divides_evenly`: each rank holds an equal part of each table.
    `sums_across_ranks`: pooled rows are added up over ranks. `any_exchange`: pooled rows may travel in each of `EXCHANGES`.
    """

    name: str
    travels: str
    execution: str
    family: str = ""
    tier: str = ROW_SHARDED
    sequences: bool = False
    at_home: bool = False
    divides_evenly: bool = False
    sums_across_ranks: bool = False
    any_exchange: bool = False

    @abstractmethod
    def validate(self, where: str, table: Table, placement: Placement, plan: ShardingPlan) -> None:
        """Raises UserError, `where` named, unless the shards are as the scheme wants them. Each cell is covered exactly once already."""

    def validate_plan(self, plan: ShardingPlan) -> None:  # noqa: B027 - most schemes ask nothing more
        """What the scheme asks of a plan that uses it, once. Raises UserError."""

    def served_ranks(self, shard: Shard, plan: ShardingPlan) -> int:
        """Of how many ranks a holder of `shard` looks the samples up; 0: its own alone, and nothing is sent."""
        return 0 if self.at_home else plan.world_size

    def module_memory(self, plan: ShardingPlan, workload: Workload) -> ModuleMemory | None:
        """Where the scheme decides which ranks have the model's tower modules; else None."""
        return None

    @abstractmethod
    def lower(self, context: Context) -> tuple[list[Step], list[Step]]:
        """(input and forward, backward) steps of the tables of `context`: the collectives that the executor really issues."""

    @abstractmethod
    def words(self, table: Table, placement: Placement, most_bytes: str, plan: ShardingPlan) -> tuple[str, str]:
        """(where the table is, why), for people. `most_bytes`: on the rank that holds most of it."""

    def sentences(self, plan: ShardingPlan) -> tuple[str, ...]:
        """What else there is to say about a plan that uses it."""
        return ()

    def check_execution(self, placed: Sequence[tuple[Table, Placement]]) -> None:  # noqa: B027 - most run whatever can be planned
        """Raises UserError for tables of the scheme that can be planned and priced, but not run."""

    @abstractmethod
    def reference_cases(self, tables: tuple[Table, ...], hosts: int, ranks_per_host: int) -> Iterator[ShardingPlan]:
        """Plans of `tables` under this scheme, small and uneven, that tests hold to an unsharded model and to their own steps."""


_KNOWN: dict[str, Scheme] = {}


def register(*schemes: Scheme) -> None:
    """Makes schemes known, such as those of a user's own package, by importing which they are registered."""
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
    return {family: tuple(placed) for family, placed in members.items()}


def schemes_of(plan: ShardingPlan) -> tuple[Scheme, ...]:
    """Those that it uses, one of each family, in the order in which the plan first names one."""
    return tuple(scheme_of(placed[0][1]) for placed in families(plan).values())


def home_scheme() -> Scheme:
    """Under which a rank that is alone holds every table."""
    return _only(lambda scheme: scheme.at_home)


def even_scheme() -> Scheme:
    """What holds tables that fit in no other way."""
    return _only(lambda scheme: scheme.divides_evenly)


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


def _only(wanted: Callable[[Scheme], bool]) -> Scheme:
    (scheme,) = (scheme for scheme in known_schemes().values() if wanted(scheme))
    return scheme


@cache
def _load() -> None:
    """Every folder of schemes names its own in `SCHEMES`."""
    home = importlib.import_module(HOME)
    for folder in pkgutil.iter_modules(home.__path__):
        register(*importlib.import_module(f"{HOME}.{folder.name}").SCHEMES)
