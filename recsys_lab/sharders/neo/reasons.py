"""Why a plan of neo_4d is as it is. It shows the schemes, the costs of its ranks beside their bounds, and what other choices would cost.

Costs are those of the planner's model (`costs`): simulated ms, to compare plans by.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

COLUMNS = ("plan", "slowest ranks", "imbalance", "over the bound")
NOTE = "slowest ranks: what they cost; imbalance: that over the mean rank; over the bound: over the least that any plan can cost."


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

    def explanation(self) -> dict[str, Any]:
        """For people: sentences, and a table of this plan and the others."""
        counts = ", ".join(f"{count} {scheme}" for scheme, count in sorted(self.schemes.items(), key=lambda item: -item[1]))
        sentences = [
            f"Tables: {counts}.",
            f"The slowest ranks cost {self.chosen.worst_ms:.3g} ms by the planner's model of volume and load, "
            f"{self.chosen.imbalance:.3f} times the mean. No plan can be below {self.bound_ms:.3g} ms.",
        ]
        rows = [[c.name, f"{c.worst_ms:.3g} ms", f"{c.imbalance:.3f}", f"{c.over_bound:.3f}"] for c in (self.chosen, *self.alternatives)]
        return {"sentences": sentences, "columns": list(COLUMNS), "rows": rows, "note": NOTE}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Reasons:
        choices = {"chosen": Choice(**data["chosen"]), "alternatives": tuple(Choice(**c) for c in data["alternatives"])}
        return Reasons(**{**data, **choices})
