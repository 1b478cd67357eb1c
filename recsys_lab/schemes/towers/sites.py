"""Where towers live (DMT, section 3.1): T towers over H hosts.

A site is a set of whole hosts that hold towers together. If T >= H it is one host with T / H towers, of which some hosts have one more
where that is no whole number. Else it is the K hosts of one tower. Where T does not divide H, two divisors of H are next to H / T: the
first towers have the larger number of hosts. Sites are consecutive hosts, so a site's ranks are consecutive.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import accumulate

from recsys_lab.errors import UserError
from recsys_lab.plan.sharding_plan import ShardingPlan

#: What SPTT brings into peer order (DMT, section 3.1.3): looked-up rows, ids before the look-up, or nothing. Nothing is needed where ids
#: already travel in a process group that is in peer order.
PERMUTES = ("rows", "ids", "none")


@dataclass(frozen=True)
class Sites:
    """`hosts`, `towers`: how many each site has. L = `ranks_per_host`. A rank is `place` of its site's ranks.

    Of a site of K hosts, the j-th serves the hosts whose number modulo K is j: its i-th rank the i-th rank of each. Those are its peers,
    and each rank has one in every site. Where all sites have as many hosts, peers are the ranks with the same place in each site, and peer
    order sorts all ranks by (place, site).
    """

    hosts: tuple[int, ...]
    towers: tuple[int, ...]
    ranks_per_host: int

    @property
    def count(self) -> int:
        return len(self.hosts)

    @property
    def even(self) -> bool:
        """Whether all have as many hosts."""
        return len(set(self.hosts)) == 1

    @property
    def in_order(self) -> bool:
        """Whether peer order is the order in which ranks are numbered, so that nothing is to be permuted."""
        return self.even and 1 in (self.count, len(self.ranks_of(0)))

    @property
    def world(self) -> range:
        """All ranks."""
        return range(sum(self.hosts) * self.ranks_per_host)

    @cached_property
    def _first_ranks(self) -> tuple[int, ...]:
        return (0, *accumulate(hosts * self.ranks_per_host for hosts in self.hosts))

    @cached_property
    def _first_towers(self) -> tuple[int, ...]:
        return (0, *accumulate(self.towers))

    def site_of_rank(self, rank: int) -> int:
        return bisect_right(self._first_ranks, rank) - 1

    def place_of_rank(self, rank: int) -> int:
        return rank - self._first_ranks[self.site_of_rank(rank)]

    def site_of_tower(self, tower: int) -> int:
        return bisect_right(self._first_towers, tower) - 1

    def ranks_of(self, site: int) -> tuple[int, ...]:
        return tuple(range(self._first_ranks[site], self._first_ranks[site + 1]))

    def towers_of(self, site: int) -> range:
        return range(self._first_towers[site], self._first_towers[site + 1])

    def peers_of(self, site: int) -> int:
        """How many ranks' samples a rank of the site works on."""
        return sum(self.hosts) // self.hosts[site]

    def peers_at(self, site: int, place: int) -> tuple[int, ...]:
        """The ranks whose samples a rank of the site works on."""
        host, number = divmod(place, self.ranks_per_host)
        return tuple(at * self.ranks_per_host + number for at in range(host, sum(self.hosts), self.hosts[site]))

    def order_of(self, site: int) -> tuple[int, ...]:
        """All ranks in the order in which the site looks up their samples: place after place."""
        return tuple(rank for place in range(len(self.ranks_of(site))) for rank in self.peers_at(site, place))

    @property
    def peer_order(self) -> tuple[int, ...]:
        """The same of every site, where they are even; (0, 2, 1, 3) for two sites of two ranks (section 3.1.1)."""
        return self.order_of(0)

    @property
    def exchanges(self) -> tuple[tuple[int, ...], ...]:
        """The groups of ranks that exchange in step f. Where sites are not even, all ranks with one number in their hosts."""
        if self.even:
            return tuple(self.peers_at(0, place) for place in range(len(self.ranks_of(0))))
        return tuple(tuple(self.world[number :: self.ranks_per_host]) for number in range(self.ranks_per_host))

    def exchange_of(self, rank: int) -> tuple[int, ...]:
        """The one of `exchanges` that the rank is in."""
        return next(group for group in self.exchanges if rank in group)


@cache
def sites_of(towers: int, hosts: int, ranks_per_host: int) -> Sites:
    """Raises UserError where no two divisors of the hosts next to each other make up the hosts."""
    if towers >= hosts:
        least, more = divmod(towers, hosts)
        return Sites((1,) * hosts, (least + 1,) * more + (least,) * (hosts - more), ranks_per_host)
    hosts_of_towers = _divided(towers, hosts)
    if not hosts_of_towers:
        allowed = [str(count) for count in range(1, hosts + 1) if _divided(count, hosts)]
        raise UserError(
            "so many towers cannot share the hosts",
            where="towers",
            given=f"{towers} towers on {hosts} hosts",
            allowed=f"{', '.join(allowed)}, or more than {hosts}",
        )
    return Sites(hosts_of_towers, (1,) * towers, ranks_per_host)


def _divided(towers: int, hosts: int) -> tuple[int, ...]:
    """How many hosts each tower has, all of them divisors of `hosts`, as even as can be. Empty where that cannot be."""
    if towers < 1:
        return ()
    divisors = [count for count in range(1, hosts + 1) if hosts % count == 0]
    small = max(count for count in divisors if count * towers <= hosts)
    large = next((count for count in divisors if count > small), small + 1)
    wide, rest = divmod(hosts - small * towers, large - small)
    return () if rest or wide > towers else (large,) * wide + (small,) * (towers - wide)


def sites_of_plan(plan: ShardingPlan) -> Sites:
    """Raises UserError where its towers cannot share the hosts."""
    return sites_of(len(plan.towers), plan.hosts, plan.ranks_per_host)


def tower_of_features(towers: Sequence[Sequence[str]]) -> dict[str, int]:
    """The number of each feature's tower."""
    return {feature: number for number, tower in enumerate(towers) for feature in tower}
