"""Why a plan of neo_4d is as it is: its schemes, the costs of its ranks beside their bounds, and what other choices would cost.

Costs are those of the planner's model (`costs`): simulated ms, to compare plans by.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from recsys_lab.cluster import Cluster
from recsys_lab.plan import ShardingPlan, Workload
from recsys_lab.precision import Precision
from recsys_lab.sharders.neo.costs import RankCosts, Setting, Weights, costs_of_ranks
from recsys_lab.sharders.neo.planner import Made, best
from recsys_lab.tables import AccessStatistics, Table

COLUMNS = ("plan", "slowest ranks", "imbalance", "over the bound")


@dataclass(frozen=True)
class Choice:
    """`worst_ms`: of the slowest ranks in look-up and exchange; `imbalance`: over the mean; `over_bound`: over what no plan is below."""

    name: str
    worst_ms: float
    imbalance: float
    over_bound: float


@dataclass(frozen=True)
class Reasons:
    """Of one plan. `schemes`: how many tables have which. `bound_ms`: no plan's slowest ranks cost less."""

    schemes: dict[str, int]
    bound_ms: float
    chosen: Choice
    alternatives: tuple[Choice, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def told(self) -> dict[str, Any]:
        """For people: sentences, and a table of this plan and the others."""
        counted = ", ".join(f"{count} {scheme}" for scheme, count in sorted(self.schemes.items(), key=lambda item: -item[1]))
        sentences = [
            f"Tables: {counted}.",
            f"The slowest ranks cost {self.chosen.worst_ms:.3g} ms by the planner's model of volume and load, "
            f"{self.chosen.imbalance:.3f} times the mean. No plan can be below {self.bound_ms:.3g} ms.",
        ]
        rows = [[c.name, f"{c.worst_ms:.3g} ms", f"{c.imbalance:.3f}", f"{c.over_bound:.3f}"] for c in (self.chosen, *self.alternatives)]
        return {"sentences": sentences, "columns": list(COLUMNS), "rows": rows}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Reasons:
        choices = {"chosen": Choice(**data["chosen"]), "alternatives": tuple(Choice(**c) for c in data["alternatives"])}
        return Reasons(**{**data, **choices})


def reasons(
    plan: ShardingPlan,
    tables: tuple[Table, ...],
    access: AccessStatistics,
    cluster: Cluster,
    precision: Precision,
    workload: Workload,
    *,
    placement: str = "karmarkar_karp",
    schemes: list[str] | None = None,
    communication_weight: float = 1.0,
    load_weight: float = 4.0,
    even_out: bool = True,
) -> Reasons:
    """Why `plan`, which the planner made of the same arguments, is as it is."""
    weights = Weights(communication_weight, load_weight)
    given = Setting(access, cluster, precision, workload.batch_size, weights)

    def made(how: str, allowed: list[str] | None, evened: bool = even_out) -> Made:
        return best(tables, access, cluster, precision, workload, how, allowed, weights, evened)

    other = "greedy" if placement == "karmarkar_karp" else "karmarkar_karp"
    alternatives = {f"placement={other}": made(other, schemes)}
    if even_out:
        alternatives["even_out=false"] = made(placement, schemes, False)
    if schemes != ["table_wise"]:
        alternatives["table_wise only"] = made(placement, ["table_wise"])
    free = made(placement, None)
    if schemes:
        alternatives["all schemes"] = free

    def choice(name: str, costs: RankCosts) -> Choice:
        return Choice(name, costs.worst_ms, costs.imbalance, costs.worst_ms / free.bound_ms if free.bound_ms else 1.0)

    return Reasons(
        schemes=dict(Counter(p.scheme for p in plan.placements)),
        bound_ms=free.bound_ms,
        chosen=choice("this plan", costs_of_ranks(plan, given)),
        alternatives=tuple(choice(name if found.fits else f"{name} (does not fit)", found.costs) for name, found in alternatives.items()),
    )
