"""Why a plan of DMT is as it is: what it moves, and what the other specialisations of SPTT would move. Figures are simulated bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from recsys_lab.cluster import Cluster
from recsys_lab.plan import ShardingPlan, Workload
from recsys_lab.plan.lower import lower
from recsys_lab.precision import Precision
from recsys_lab.schemes.towers.sites import sites_of_plan
from recsys_lab.sharders.dmt.planner import SCHEMES, placed
from recsys_lab.tables import AccessStatistics, Table
from recsys_lab.units import human_bytes

COLUMNS = ("plan", "ids", "inside sites", "between peers", "permuted")


@dataclass(frozen=True)
class Moved:
    """Bytes that the busiest rank hands over in an iteration, both ways: ids over all ranks, rows inside its site, rows to its peers, and
    what is permuted in memory.
    """

    name: str
    ids: float
    inside: float
    between: float
    permuted: float


@dataclass(frozen=True)
class Reasons:
    """Of one plan. `schemes`: how many tables have which. `flat_bytes`: of the pooled rows of a rank's samples and their gradients."""

    permute: str
    schemes: dict[str, int]
    sites: int
    ranks_of_site: int
    chosen: Moved
    alternatives: tuple[Moved, ...]
    flat_bytes: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def told(self) -> dict[str, Any]:
        """For people: sentences, and a table of this plan and the others."""
        moved = (self.chosen, *self.alternatives)
        rows = [[m.name, *map(human_bytes, (m.ids, m.inside, m.between, m.permuted))] for m in moved]
        return {"sentences": list(_sentences(self)), "columns": list(COLUMNS), "rows": rows}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Reasons:
        moved = {"chosen": Moved(**data["chosen"]), "alternatives": tuple(Moved(**m) for m in data["alternatives"])}
        return Reasons(**{**data, **moved})


def reasons(
    plan: ShardingPlan,
    tables: tuple[Table, ...],
    access: AccessStatistics,
    cluster: Cluster,
    precision: Precision,
    workload: Workload,
    *,
    scheme: str = "auto",
    permute: str = "auto",
) -> Reasons:
    """Why `plan`, which the planner made of the same arguments, is as it is."""

    def moved(name: str, made: ShardingPlan) -> Moved:
        return _moved(name, made, access, precision, workload)

    def forced(other: str) -> ShardingPlan:
        return placed(tables, access, cluster, precision, workload, plan.towers, other, plan.permute)

    others = [moved(f"scheme={other}", forced(other)) for other in SCHEMES if other not in ("auto", scheme)]
    if scheme != "auto":
        others.insert(0, moved("scheme=auto", forced("auto")))
    others += [moved(f"permute={other}", replace(plan, permute=other)) for other in ("rows", "ids", "none") if other != plan.permute]
    columns = sum(len(table.features) * table.dim for table in tables)
    return Reasons(
        permute=plan.permute,
        schemes=dict(Counter(placement.scheme for placement in plan.placements)),
        sites=sites_of_plan(plan).count,
        ranks_of_site=sites_of_plan(plan).ranks,
        chosen=moved("this plan", plan),
        alternatives=tuple(others),
        flat_bytes=columns * workload.batch_size * float(precision.forward_comm_bytes + precision.backward_comm_bytes),
    )


def _moved(name: str, made: ShardingPlan, access: AccessStatistics, precision: Precision, workload: Workload) -> Moved:
    steps = lower(made, access, precision, workload).steps

    def of(*begins: str) -> float:
        return sum(step.max_bytes for step in steps if step.name.startswith(begins))

    ids = of("towers.input.lengths", "towers.input.ids")
    permuted = of("towers.permute", "towers.gradient.permute") / 2  # a step reads and writes
    if made.permute == "ids" and 1 not in (sites_of_plan(made).count, sites_of_plan(made).ranks):
        taken = [s.received_of_rank or s.bytes_of_rank for s in steps if s.name in ("towers.input.lengths", "towers.input.ids")]
        permuted = sum(max(size) for size in taken)
    inside = of("towers.exchange.", "towers.gradient.exchange.")
    return Moved(name, ids, inside, of("towers.output.", "towers.gradient.output."), permuted)


def _sentences(given: Reasons) -> list[str]:
    words = {"tower_table_wise": "whole on one rank", "tower_column_wise": "cut by columns", "tower_row_wise": "cut by rows"}
    tables = ", ".join(f"{count} {words[scheme]}" for scheme, count in given.schemes.items())
    at = f"{given.sites} sites of {given.ranks_of_site} ranks"
    found = [f"Tables in the {at}: {tables}. Bytes are simulated, of the busiest rank in an iteration."]
    found.append(
        f"Between peers travel {human_bytes(given.chosen.between)} in exchanges of {given.sites} ranks; the pooled rows of a rank's own "
        f"samples are {human_bytes(given.flat_bytes)}."
    )
    if 1 in (given.sites, given.ranks_of_site):
        found.append("Peer permute: nothing to permute; the ranks are in peer order as they are numbered.")
        return found
    permuted = {m.name: m.permuted for m in (given.chosen, *given.alternatives)} | {f"permute={given.permute}": given.chosen.permuted}
    found.append(
        f"Peer permute: {given.permute}. Permuting rows would move {human_bytes(permuted['permute=rows'])} in memory, ids "
        f"{human_bytes(permuted['permute=ids'])}, none of it in a process group that is in peer order."
    )
    return found
