"""How often each combination is the cheapest, and what choosing it may cost, over draws of what nobody knows.

A draw is one state of the software, of the links and of each system (`simulate/posterior.py`). In every draw each combination has a cost,
and one is the cheapest. Where profiles are weighed, each has its share of the draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from recsys_lab.decide.prices import Priced
from recsys_lab.decide.rows import Row
from recsys_lab.simulate.posterior import DRAWS

#: So many of the next best are held against the best.
MOST_PAIRS = 10


@dataclass(frozen=True)
class Pair:
    """`p`: how often combination `cheaper` is cheaper than `than`."""

    cheaper: str
    than: str
    p: float


@dataclass(frozen=True)
class Standings:
    """`names`: of the combinations that are compared. `costs` [combinations, DRAWS]: of each in every draw. `clusters`: of each."""

    names: tuple[str, ...]
    clusters: tuple[str, ...]
    costs: np.ndarray

    @cached_property
    def _over_cheapest(self) -> np.ndarray:
        return self.costs / self.costs.min(axis=0) - 1

    @cached_property
    def p_best(self) -> np.ndarray:
        """[combinations]. Of equal costs the first counts."""
        return np.bincount(self.costs.argmin(axis=0), minlength=len(self.names)) / self.costs.shape[1]

    @property
    def regret(self) -> np.ndarray:
        """[combinations]: how much dearer than the cheapest, in the mean."""
        return self._over_cheapest.mean(axis=1)

    @property
    def regret_95(self) -> np.ndarray:
        """[combinations]: how much dearer in 95 % of draws at most."""
        return np.quantile(self._over_cheapest, 0.95, axis=1)

    def p_cheaper(self, one: str, other: str) -> float:
        mine, theirs = (self.costs[self.names.index(name)] for name in (one, other))
        return float((mine < theirs).mean() + (mine == theirs).mean() / 2)

    @cached_property
    def of_clusters(self) -> dict[str, float]:
        """How often each cluster has the cheapest combination, the most frequent first."""
        p = {cluster: float(self.p_best[[c == cluster for c in self.clusters]].sum()) for cluster in dict.fromkeys(self.clusters)}
        return dict(sorted(p.items(), key=lambda one: -one[1]))

    def pairs(self, best: str) -> list[Pair]:
        """`best` against the next ones, those that most often beat it first."""
        made = [Pair(best, name, self.p_cheaper(best, name)) for name in self.names if name != best]
        return sorted(made, key=lambda pair: pair.p)[:MOST_PAIRS]


def standings_of(priced: Sequence[Priced], compared: Sequence[Row]) -> Standings | None:
    """Of the combinations that have a row in `compared`. None where the error of one is not known, and of no row."""
    able = {row.name for row in compared}
    chosen = [one for one in priced if one.combination.name in able]
    names, clusters, costs = [], [], []
    for one in chosen:
        cost = _cost_in_draws(one)
        if cost is None:
            return None
        names.append(one.combination.name)
        clusters.append(one.combination.cluster)
        costs.append(cost)
    return Standings(tuple(names), tuple(clusters), np.array(costs)) if costs else None


def _cost_in_draws(one: Priced) -> np.ndarray | None:
    """[DRAWS]: each weighed profile has its share of them, the first draws for the first."""
    ends = np.rint(np.cumsum(one.combination.weights) * DRAWS).astype(int)
    cost = np.empty(DRAWS)
    for profile, begin, end in zip(one.combination.profiles, [0, *ends], ends):
        if begin == end:
            continue
        row = next((row for row in one.rows if row.profile == profile.name), None)
        if row is None or row.ms is None or profile.name not in one.changes:
            return None
        cost[begin:end] = row.cost * np.exp(one.changes[profile.name][begin:end])
    return cost


def with_standing(rows: Sequence[Row], standings: Standings | None) -> list[Row]:
    """`rows` with `p_best` and `regret`, which are a combination's: every row of it has them."""
    if standings is None:
        return list(rows)
    figures = zip(standings.p_best, standings.regret, standings.regret_95)
    by_name = {name: tuple(map(float, of)) for name, of in zip(standings.names, figures)}
    none = (None, None, None)
    return [replace(row, p_best=p, regret=mean, regret_95=most) for row in rows for p, mean, most in [by_name.get(row.name, none)]]
