"""How many rows each tier gets (FlexShard, sections 4.3 to 4.6), on rows in falling p. Costs are those beyond row-wise sharding.

The number of rows in each tier is enough to describe an allocation. The hottest rows belong in the replicated tier and the next in the
host-sharded one, whether memory or communication counts. So an allocation is two numbers.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from recsys_lab.sharders.flexshard.costs import Costs, Setting, break_point, flex, replication, row_sharding
from recsys_lab.sharders.flexshard.rows import Rows

#: Sums of bytes over billions of rows are rounded: what a plan may miss its budget by.
SLACK_BYTES = 0.01
#: Replica counts that the exact search looks at one by one around the best one of rows that could be divided.
MOST_CANDIDATES = 1 << 20


@dataclass(frozen=True)
class Split:
    """The first `replicated` rows are replicated, the next `in_host` host-sharded, the others row-sharded."""

    replicated: int
    in_host: int

    def aligned(self, rows: int, world_size: int) -> Split:
        """Rounded down to multiples of the ranks, tier by tier. A tier that reaches the table's end, at `rows`, stays whole."""
        if self.replicated == rows:
            return self
        replicated = self.replicated // world_size * world_size
        reaches_end = self.replicated + self.in_host == rows
        return Split(replicated, rows - replicated if reaches_end else self.in_host // world_size * world_size)


@dataclass(frozen=True)
class Trade:
    """What moving rows out of the row-sharded tier costs (above 0) or saves (below 0)."""

    rows: Rows
    setting: Setting

    def costs(self, replicated: np.ndarray | float, in_host: np.ndarray | float = 0) -> tuple[Costs, Costs]:
        """(of these rows in their tiers, of the same rows row-wise). Elements stand for E x D, which every cost has as a product."""
        hot, both = replicated, replicated + in_host
        hot_elements, hot_traffic = self.rows.elements(hot), self.rows.traffic(hot)
        elements, traffic = self.rows.elements(both), self.rows.traffic(both)
        tiers = replication(hot_elements, 1, hot_traffic, self.setting)
        tiers += flex(elements - hot_elements, 1, traffic - hot_traffic, self.setting)
        return tiers, row_sharding(elements, 1, traffic, self.setting)

    def memory_bytes(self, replicated: np.ndarray | float, in_host: np.ndarray | float = 0) -> np.ndarray:
        tiers, baseline = self.costs(replicated, in_host)
        return tiers.memory_bytes - baseline.memory_bytes

    def communication_ms(self, replicated: np.ndarray | float, in_host: np.ndarray | float = 0) -> np.ndarray:
        tiers, baseline = self.costs(replicated, in_host)
        return tiers.communication_ms - baseline.communication_ms

    def least_memory(self) -> int:
        """Point A of figure 5: replicated rows beyond the memory-neutral break-point. More or fewer would take more memory."""
        return self.rows.above(break_point(replication, row_sharding, "memory_bytes", self.setting))

    def least_communication(self) -> int:
        """Point C of figure 5: replicated rows beyond the communication-neutral break-point."""
        return self.rows.above(break_point(replication, row_sharding, "communication_ms", self.setting))

    def worth_host_sharding(self) -> int:
        """Rows beyond the communication-neutral break-point of Flex against RW."""
        return self.rows.above(break_point(flex, row_sharding, "communication_ms", self.setting))

    def affordable(self, budget_bytes: float) -> tuple[int, int] | None:
        """The fewest and the most replicated rows within the budget; None where even point A exceeds it.

        Memory falls up to point A and rises from there on, so all between the two are within the budget.
        """
        least, budget = self.least_memory(), budget_bytes + SLACK_BYTES
        if self.memory_bytes(least) > budget:
            return None
        fewest = _first(0, least, lambda k: bool(self.memory_bytes(k) <= budget))
        most = _first(least, self.rows.total + 1, lambda k: k > self.rows.total or bool(self.memory_bytes(k) > budget)) - 1
        return fewest, most


def two_tier(trade: Trade, budget_bytes: float = 0.0) -> Split | None:
    """Section 4.3: the least communication within the budget (0: point B, memory-neutral). None where no split is within it."""
    affordable = trade.affordable(budget_bytes)
    if affordable is None:
        return None
    fewest, most = affordable
    return Split(min(max(trade.least_communication(), fewest), most), 0)


def three_tier(trade: Trade, budget_bytes: float = 0.0) -> Split | None:
    """Section 4.5: replicate up to point A. Then Flex until the memory is spent or communication-neutral. The rest row-wise.

    Where Flex ends at its break-point and more memory is allowed than row-wise sharding takes, the hottest of its rows are replicated, as
    far as that takes less time than Flex. The paper has no rule for more memory: this is our reading.

    Many rows may lie just behind point A. Replicating them can leave less to the global all-to-all than Flex does. Then the two-tier split
    is returned, so a third tier never adds to the global all-to-all.
    """
    two = two_tier(trade, budget_bytes)
    if two is None:
        return None
    replicated = trade.least_memory()
    most = max(trade.worth_host_sharding() - replicated, 0)
    in_host = _first(0, most + 1, lambda n: n > most or bool(trade.memory_bytes(replicated, n) > budget_bytes + SLACK_BYTES)) - 1
    three = Split(replicated, in_host)
    if budget_bytes > 0 and in_host == most:
        three = _with_more_replicas(trade, three, budget_bytes)
    return max((three, two), key=lambda split: float(trade.rows.traffic(split.replicated + split.in_host)))


def _with_more_replicas(trade: Trade, split: Split, budget_bytes: float) -> Split:
    """The same rows out of the row-sharded tier, with as many of them replicated as are worth it and fit."""
    end = split.replicated + split.in_host
    most = min(max(trade.rows.above(break_point(replication, flex, "communication_ms", trade.setting)), split.replicated), end)
    budget = budget_bytes + SLACK_BYTES
    replicated = _first(split.replicated, most + 1, lambda k: k > most or bool(trade.memory_bytes(k, end - k) > budget)) - 1
    return Split(replicated, end - replicated)


def optimal_three_tier(trade: Trade, budget_bytes: float = 0.0) -> Split | None:
    """The split with the least communication of all within the budget.

    For each number of replicated rows, it takes as many Flex rows as are worth it and fit. Then it takes the best such number. Of equally
    good ones, the one with fewest replicated rows.

    For each number of replicated rows the problem is a linear programme. So the cost would be convex in that number if rows could be
    divided. A bisection finds its minimum. Whole rows are then tried one by one around it, until none further off could be better. Exact
    for tables of one dimension. For several it may leave less than a row of memory unused.
    """
    affordable = trade.affordable(budget_bytes)
    if affordable is None:
        return None
    fewest, most = affordable
    rows, worth = trade.rows, trade.worth_host_sharding()
    flex_bytes = flex(1, 1, 0.0, trade.setting).memory_bytes - row_sharding(1, 1, 0.0, trade.setting).memory_bytes  # of an element

    def in_host(replicated: np.ndarray | float) -> np.ndarray:
        room = np.maximum(budget_bytes + SLACK_BYTES - trade.memory_bytes(replicated), 0.0) / flex_bytes
        end = rows.rows_of_elements(rows.elements(replicated) + room)
        return np.maximum(np.minimum(end, worth) - replicated, 0.0)

    def divided_ms(replicated: int) -> float:
        return float(trade.communication_ms(replicated, in_host(replicated)))

    best = _first(fewest, most, lambda k: divided_ms(k + 1) >= divided_ms(k))
    bound = float(trade.communication_ms(best, np.floor(in_host(best)))) + 1e-12
    low = max(_first(fewest, best, lambda k: divided_ms(k) <= bound), best - MOST_CANDIDATES // 2)
    high = min(_first(best, most + 1, lambda k: k > most or divided_ms(k) > bound), best + MOST_CANDIDATES // 2)
    candidates = np.arange(low, high)
    flexed = np.floor(in_host(candidates))
    index = int(np.argmin(trade.communication_ms(candidates, flexed)))
    return Split(int(candidates[index]), int(flexed[index]))


def _first(low: int, high: int, predicate: Callable[[int], bool]) -> int:
    """The first number in [low, high) from which on `predicate` holds, or `high`."""
    return low + bisect.bisect_left(range(low, high), True, key=predicate)
