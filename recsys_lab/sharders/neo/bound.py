"""What cannot be beaten: the least that the costliest rank can cost. A placement's quality is its costliest rank over this."""

from __future__ import annotations

from collections.abc import Sequence

from recsys_lab.sharders.neo.cuts import Cut


def bound_of_plans(options: Sequence[Sequence[Cut]], ranks: int) -> float:
    """No plan of these tables has a costliest rank below this many ms. `options`: all cuts of each table.

    The cheapest cut of each table, evenly over all ranks. Or the largest piece of one table, under the cut that makes that piece least.
    Memory is not asked.
    """
    evenly = sum(min(cut.total_ms for cut in cuts) for cuts in options) / ranks
    largest = max((min(cut.largest_ms for cut in cuts) for cuts in options), default=0.0)
    return max(evenly, largest)


def bound_of_placement(costs: Sequence[float], bins: Sequence[float]) -> float:
    """No placement of pieces of these `costs` on `bins`, which cost so much already, has a costliest bin below this.

    All evenly, or the largest piece on the cheapest bin. One bin gets two of the m + 1 largest pieces, so the two smallest of those are a
    bound too.
    """
    m, least = len(bins), min(bins)
    falling = sorted(costs, reverse=True)
    bounds = [(sum(costs) + sum(bins)) / m, max(bins)]
    if falling:
        bounds.append(falling[0] + least)
    if len(falling) > m:
        bounds.append(falling[m - 1] + falling[m] + least)
    return max(bounds)
