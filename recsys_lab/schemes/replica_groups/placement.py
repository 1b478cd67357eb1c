"""Which ranks are one sharding group, and a table as one of these groups has it (TorchRec's DMPCollection; arXiv 2508.03854).

G ranks are a sharding group, and have each table once. R / G groups have the same shards in the same places.

    between hosts    groups of neighbours: 0 1 | 2 3      copies: 0 2 | 1 3      use_inter_host_allreduce
    within hosts     groups of every second: 0 2 | 1 3    copies: 0 1 | 2 3      TorchRec's default
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from recsys_lab.errors import UserError
from recsys_lab.plan.scheme import Placed, Scheme
from recsys_lab.plan.sharding_plan import Placement, ShardingPlan
from recsys_lab.plan.validate import check_rules
from recsys_lab.schemes import row_blocks, whole
from recsys_lab.tables import Table

Ranks: TypeAlias = tuple[tuple[int, ...], ...]
SUFFIX = "_2d"
TABLE_WISE_2D, COLUMN_WISE_2D, ROW_WISE_2D = NAMES = tuple(
    name + SUFFIX for name in (whole.TABLE_WISE, whole.COLUMN_WISE, row_blocks.ROW_WISE)
)


@dataclass(frozen=True)
class ReplicaGroups:
    """`size`: G. `between_hosts`: a group's ranks are neighbours, so that copies lie as far apart as can be."""

    world_size: int
    size: int
    between_hosts: bool

    @property
    def groups(self) -> Ranks:
        """The ranks of each sharding group."""
        world, count = range(self.world_size), self.world_size // self.size
        if self.between_hosts:
            return tuple(tuple(world[first : first + self.size]) for first in world[:: self.size])
        return tuple(tuple(world[first::count]) for first in range(count))

    @property
    def replicas(self) -> Ranks:
        """The ranks with the same place in each group."""
        return tuple(zip(*self.groups))

    @staticmethod
    def of(plan: ShardingPlan) -> ReplicaGroups:
        """As the first table of `plan` under one of these schemes has them."""
        holders = next(p.shards[0].ranks for p in plan.placements if p.scheme in NAMES)
        size = plan.world_size // len(holders)
        return ReplicaGroups(plan.world_size, size, len(holders) == 1 or holders[1] - holders[0] == size)


def in_each_group(placement: Placement, groups: ReplicaGroups) -> Placement:
    """`placement` of one group, whose ranks are its places 0 to G - 1, in every group."""
    replicas = groups.replicas
    shards = tuple(replace(shard, ranks=replicas[shard.ranks[0]]) for shard in placement.shards)
    return Placement(placement.table, placement.scheme + SUFFIX, shards)


def within_group(placement: Placement, groups: ReplicaGroups) -> Placement:
    """The reverse."""
    places = {ranks: place for place, ranks in enumerate(groups.replicas)}
    shards = tuple(replace(shard, ranks=(places[shard.ranks],)) for shard in placement.shards)
    return Placement(placement.table, placement.scheme.removesuffix(SUFFIX), shards)


def validate(where: str, table: Table, placement: Placement, plan: ShardingPlan, base: Scheme) -> None:
    """Each shard is on the same place of every group, and what a group has is as `base` says. Raises UserError."""
    if plan.world_size % len(placement.shards[0].ranks):
        raise UserError("groups of ranks must be of one size", where=where, given=placement.shards[0].ranks)
    groups = ReplicaGroups.of(plan)
    for shard in placement.shards:
        if shard.ranks not in groups.replicas:
            allowed = " or ".join(map(str, groups.replicas[:4]))
            raise UserError("a shard must be on the same place of every group", where=where, given=shard.ranks, allowed=allowed)
    assert base.rules is not None
    of_group = replace(plan, hosts=1, ranks_per_host=groups.size)
    check_rules(where, table, within_group(placement, groups).shards, of_group, base.rules)


def check_execution(members: Placed, base: Scheme) -> None:
    """Raises UserError for what TorchRec cannot exchange within a group."""
    if base.check_execution is not None:
        base.check_execution([(table, replace(placement, scheme=base.name)) for table, placement in members])


def reference_cases(tables: tuple[Table, ...], hosts: int, ranks_per_host: int, base: Scheme) -> Iterator[ShardingPlan]:
    """Groups of the fewest ranks that are more than one, of neighbours. Of whole tables also groups of ranks that are apart."""
    world = hosts * ranks_per_host
    size = next((size for size in range(2, world) if world % size == 0), world)
    for between_hosts in (True, False) if base.name == whole.TABLE_WISE and size < world else (True,):
        groups = ReplicaGroups(world, size, between_hosts)
        for plan in base.reference_cases(tables, 1, size):
            placements = tuple(in_each_group(placement, groups) for placement in plan.placements)
            yield replace(plan, hosts=hosts, ranks_per_host=ranks_per_host, placements=placements)
