"""Where towers live (DMT, section 3.1): T towers over H hosts, T and H dividing each other.

If T <= H a tower has K = H / T hosts; else a host has T / H towers. A site is a set of ranks that hold towers together. It is the K hosts
of one tower, or the one host of several. Sites are consecutive hosts, so a site's ranks are consecutive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recsys_lab.errors import UserError
from recsys_lab.plan.sharding_plan import ShardingPlan

#: What SPTT brings into peer order (DMT, section 3.1.3): looked-up rows, ids before the look-up, or nothing. Nothing is needed where ids
#: already travel in a process group that is in peer order.
PERMUTES = ("rows", "ids", "none")


@dataclass(frozen=True)
class Sites:
    """S = `count` sites of M = `ranks` ranks and `towers` towers each. A rank is `place` of M in its site.

    Peers are the ranks with the same place in each site. Peer order sorts all ranks by (place, site).
    """

    count: int
    ranks: int
    towers: int

    def site_of_rank(self, rank: int) -> int:
        return rank // self.ranks

    def place_of_rank(self, rank: int) -> int:
        return rank % self.ranks

    def site_of_tower(self, tower: int) -> int:
        return tower // self.towers

    def ranks_of(self, site: int) -> tuple[int, ...]:
        return tuple(range(site * self.ranks, (site + 1) * self.ranks))

    def towers_of(self, site: int) -> range:
        return range(site * self.towers, (site + 1) * self.towers)

    def peers_at(self, place: int) -> tuple[int, ...]:
        return tuple(range(place, self.count * self.ranks, self.ranks))

    @property
    def peer_order(self) -> tuple[int, ...]:
        """All ranks; (0, 2, 1, 3) for two sites of two ranks (section 3.1.1)."""
        return tuple(rank for place in range(self.ranks) for rank in self.peers_at(place))


def sites_of(towers: int, hosts: int, ranks_per_host: int) -> Sites:
    """Raises UserError where the towers do not divide over the hosts."""
    if towers < 1 or max(towers, hosts) % min(towers, hosts):
        raise UserError(
            "towers and hosts must divide each other",
            where="towers",
            given=f"{towers} towers on {hosts} hosts",
            remedy=f"use {hosts} towers, or a divisor or a multiple of it",
        )
    count = min(towers, hosts)
    return Sites(count, hosts // count * ranks_per_host, towers // count)


def sites_of_plan(plan: ShardingPlan) -> Sites:
    """Raises UserError where its towers do not divide over the hosts."""
    return sites_of(len(plan.towers), plan.hosts, plan.ranks_per_host)


def tower_of_features(towers: Sequence[Sequence[str]]) -> dict[str, int]:
    """The number of each feature's tower."""
    return {feature: number for number, tower in enumerate(towers) for feature in tower}
