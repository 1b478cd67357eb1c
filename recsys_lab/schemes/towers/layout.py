"""Who looks up what: a plan whose tables are in towers, read rank by rank.

A slot is one feature in one shard: what a rank looks up for the samples of all ranks. A rank's slots are in one order everywhere. Those of
whole rows or columns come first. Those of row blocks follow, whose pooled parts are yet to be summed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from recsys_lab.plan import Shard, ShardingPlan
from recsys_lab.schemes.towers.placement import TOWER_ROW_WISE
from recsys_lab.schemes.towers.sites import Sites, sites_of_plan, tower_of_features
from recsys_lab.tables import Table


class Slot(NamedTuple):
    """`feature` of `table`, in `shard` of it."""

    feature: str
    table: Table
    shard: Shard


@dataclass(frozen=True)
class Layout:
    """Of a plan for R ranks and S sites. `rank`: this one, where it runs."""

    plan: ShardingPlan
    rank: int = 0

    @cached_property
    def sites(self) -> Sites:
        return sites_of_plan(self.plan)

    @property
    def site(self) -> int:
        """Of this rank."""
        return self.sites.site_of_rank(self.rank)

    @cached_property
    def row_features(self) -> tuple[tuple[str, Table], ...]:
        """Every feature whose table is in row blocks, of all sites, in the plan's order."""
        return tuple((f, t) for t, p in self.plan.by_table.values() if p.scheme == TOWER_ROW_WISE for f in t.features)

    @cached_property
    def whole(self) -> tuple[tuple[Slot, ...], ...]:
        """By rank, the slots of shards with whole rows or columns."""
        slots_of_rank: list[list[Slot]] = [[] for _ in range(self.plan.world_size)]
        for table, placement in self.plan.by_table.values():
            for shard in placement.shards if placement.scheme != TOWER_ROW_WISE else ():
                slots_of_rank[shard.ranks[0]] += [Slot(feature, table, shard) for feature in table.features]
        return tuple(map(tuple, slots_of_rank))

    @cached_property
    def blocks(self) -> tuple[tuple[Slot, ...], ...]:
        """By rank, the slots of row blocks. Every rank of a site has all of the site's, also where its block has no row."""
        slots_of_rank: list[list[Slot]] = [[] for _ in range(self.plan.world_size)]
        tower_of = tower_of_features(self.plan.towers)
        for feature, table in self.row_features:
            shards = {shard.ranks[0]: shard for shard in self.plan.by_table[table.name][1].shards}
            for rank in self.sites.ranks_of(self.sites.site_of_tower(tower_of[feature])):
                slots_of_rank[rank].append(Slot(feature, table, shards.get(rank) or Shard((rank,), table.rows, table.rows, 0, table.dim)))
        return tuple(map(tuple, slots_of_rank))

    def slots(self, rank: int) -> tuple[Slot, ...]:
        return self.whole[rank] + self.blocks[rank]

    def features_of(self, site: int) -> tuple[str, ...]:
        """Of the site's towers, one after the other."""
        return tuple(f for tower in self.sites.towers_of(site) for f in self.plan.towers[tower])

    def columns_at(self, site: int) -> int:
        """Of the pooled rows of one sample, of the site's features."""
        return sum(self.dims[feature] for feature in self.features_of(site))

    @cached_property
    def dims(self) -> dict[str, int]:
        """D by feature."""
        return {feature: table.dim for table in self.plan.tables for feature in table.features}


def columns_of(slots: Sequence[Slot]) -> int:
    """Of the pooled rows of one sample in `slots`."""
    return sum(slot.shard.cols for slot in slots)
