"""Why a plan of DMT is as it is: what it moves, and what the other specialisations of SPTT would move. Figures are simulated bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from recsys_lab.plan import ShardingPlan
from recsys_lab.plan.lower import lower
from recsys_lab.schemes.towers import TOWER_COLUMN_WISE, TOWER_ROW_WISE, TOWER_TABLE_WISE
from recsys_lab.schemes.towers.sites import sites_of_plan
from recsys_lab.sharders.base import PlanInputs
from recsys_lab.units import human_bytes

COLUMNS = ("plan", "ids", "inside sites", "between peers", "permuted")
NOTE = "Bytes of a rank in an iteration: ids over all ranks; rows inside sites; rows between peers; what is permuted in memory."


@dataclass(frozen=True)
class Moved:
    """Bytes that the busiest rank hands over in an iteration, both ways.

    They are ids over all ranks, rows inside its site, rows to its peers, and what is permuted in memory.
    """

    name: str
    ids: float
    inside: float
    between: float
    permuted: float


@dataclass(frozen=True)
class Reasons:
    """Of one plan. `schemes`: how many tables have which. `flat_bytes`: of the pooled rows of a rank's samples and their gradients.

    `ranks_of_site`: of the largest; `even`: all sites have as many.
    """

    permute: str
    schemes: dict[str, int]
    sites: int
    ranks_of_site: int
    chosen: Moved
    alternatives: tuple[Moved, ...]
    flat_bytes: float
    even: bool = True

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def explanation(self) -> dict[str, Any]:
        """For people: sentences, and a table of this plan and the others."""
        moved = (self.chosen, *self.alternatives)
        rows = [[m.name, *map(human_bytes, (m.ids, m.inside, m.between, m.permuted))] for m in moved]
        return {"sentences": list(_sentences(self)), "columns": list(COLUMNS), "rows": rows, "note": NOTE}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Reasons:
        moved = {"chosen": Moved(**data["chosen"]), "alternatives": tuple(Moved(**m) for m in data["alternatives"])}
        return Reasons(**{**data, **moved})


def moved_by(name: str, plan: ShardingPlan, inputs: PlanInputs) -> Moved:
    """What the steps of `plan` move in an iteration."""
    steps = lower(plan, inputs.access, inputs.precision, inputs.workload).steps

    def of(*begins: str) -> float:
        return sum(step.max_bytes for step in steps if step.name.startswith(begins))

    ids = of("towers.input.lengths", "towers.input.ids")
    permuted = of("towers.permute", "towers.gradient.permute") / 2  # a step reads and writes
    sites = sites_of_plan(plan)
    if plan.permute == "ids" and not sites.in_order:
        received = [s.received_of_rank or s.bytes_of_rank for s in steps if s.name in ("towers.input.lengths", "towers.input.ids")]
        permuted = sum(max(size) for size in received)
    inside = of("towers.exchange.", "towers.gradient.exchange.")
    return Moved(name, ids, inside, of("towers.output.", "towers.gradient.output."), permuted)


def _sentences(reasons: Reasons) -> list[str]:
    words = {TOWER_TABLE_WISE: "whole on one rank", TOWER_COLUMN_WISE: "cut by columns", TOWER_ROW_WISE: "cut by rows"}
    tables = ", ".join(f"{count} {words[scheme]}" for scheme, count in reasons.schemes.items())
    chosen, own_bytes = reasons.chosen, human_bytes(reasons.flat_bytes)
    at = f"{reasons.sites} sites of {'' if reasons.even else 'at most '}{reasons.ranks_of_site} ranks"
    among = f"in exchanges of {reasons.sites} ranks" if reasons.even else f"to {reasons.sites} sites"
    sentences = [f"Tables in the {at}: {tables}. Bytes are simulated, of the busiest rank in an iteration."]
    sentences.append(
        f"Between peers travel {human_bytes(chosen.between)} {among}; the pooled rows of a rank's own samples are {own_bytes}."
    )
    if not reasons.even:
        sentences.append(
            f"Sites have unlike numbers of hosts, and each its own order of ranks: {human_bytes(chosen.permuted)} of ids are permuted."
        )
        return sentences
    if 1 in (reasons.sites, reasons.ranks_of_site):
        sentences.append("Peer permute: nothing to permute; the ranks are in peer order as they are numbered.")
        return sentences
    permuted = {m.name: m.permuted for m in (chosen, *reasons.alternatives)} | {f"permute={reasons.permute}": chosen.permuted}
    sentences.append(
        f"Peer permute: {reasons.permute}. Permuting rows would move {human_bytes(permuted['permute=rows'])} in memory, ids "
        f"{human_bytes(permuted['permute=ids'])}, none of it in a process group that is in peer order."
    )
    return sentences
