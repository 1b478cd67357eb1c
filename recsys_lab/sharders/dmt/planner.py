"""DMT's planner (arXiv 2403.00877): towers to sites, their tables to the sites' ranks, and which specialisation of SPTT moves least."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from recsys_lab.base.ranges import OneOf
from recsys_lab.base.schema import check_fields
from recsys_lab.errors import UserError
from recsys_lab.plan import Placement, ShardingPlan
from recsys_lab.plan.memory import check_fits
from recsys_lab.plan.validate import validate
from recsys_lab.schemes.row_blocks import ROW_WISE
from recsys_lab.schemes.towers.sites import PERMUTES, Sites, sites_of, sites_of_plan, tower_of_features
from recsys_lab.schemes.whole import COLUMN_WISE, TABLE_WISE
from recsys_lab.sharders.base import PlanInputs, Sharder
from recsys_lab.sharders.dmt.place import Loads, Site, place
from recsys_lab.sharders.dmt.reasons import Moved, Reasons, moved_by
from recsys_lab.sharders.options import KEY
from recsys_lab.tables import Table

SCHEMES = ("auto", COLUMN_WISE, ROW_WISE, TABLE_WISE)


@dataclass(frozen=True, kw_only=True)
class DMT(Sharder):
    """Every table inside the site of its tower. The inputs have T towers, which the sites of `schemes.towers.sites` hold.

    Pieces go to ranks in falling size, each where least bytes and least work are.

    Attributes:
        scheme: one for all tables, or auto.
            auto leaves tables whole. It cuts by columns where a site has fewer tables than ranks, or one is too large for a rank.
            It cuts multi-hot tables (more than one look-up a feature and sample) by rows where that moves less (`volume`).
        permute: of step c: rows, ids, or none by a process group in peer order; auto: what moves least, which is none. Where sites have
            unlike numbers of hosts, each has its own order, and only ids can be permuted into it.
    """

    scheme: Annotated[str, OneOf(SCHEMES)] = "auto"
    permute: Annotated[str, OneOf(("auto", *PERMUTES))] = "auto"

    def plan(self, inputs: PlanInputs) -> ShardingPlan:
        """Raises UserError for towers and options that cannot be, PlanDoesNotFit where a rank cannot hold its part."""
        plan = self.unchecked_plan(inputs)
        check_fits(plan, inputs.workload, inputs.cluster)
        return plan

    def unchecked_plan(self, inputs: PlanInputs) -> ShardingPlan:
        """The plan, whether it fits or not."""
        check_fields(self, KEY)
        cluster = inputs.cluster
        sites = sites_of(len(inputs.towers), cluster.hosts, cluster.ranks_per_host)
        placements: dict[str, Placement] = {}
        for tables, ranks in _sites(inputs.tables, inputs.towers, sites):
            placements |= place(Site(tables, ranks), Loads(inputs, self.scheme))
        plan = ShardingPlan(
            "dmt" if inputs.workload.towers else "dmt_sptt",
            cluster.hosts,
            cluster.ranks_per_host,
            inputs.tables,
            tuple(placements[table.name] for table in inputs.tables),
            tuple(tuple(tower) for tower in inputs.towers),
            ("none" if sites.even else "ids") if self.permute == "auto" else self.permute,
        )
        validate(plan)
        return plan

    def reasons(self, plan: ShardingPlan, inputs: PlanInputs) -> Reasons:
        """What `plan` moves, and what the other specialisations of SPTT would."""

        def forced(scheme: str) -> Moved:
            other = replace(self, scheme=scheme, permute=plan.permute).unchecked_plan(replace(inputs, towers=plan.towers))
            return moved_by(f"scheme={scheme}", other, inputs)

        others = [forced(scheme) for scheme in SCHEMES if scheme != self.scheme]
        sites = sites_of_plan(plan)
        permutes = [permute for permute in PERMUTES if permute != plan.permute and sites.even]
        others += [moved_by(f"permute={permute}", replace(plan, permute=permute), inputs) for permute in permutes]
        columns = sum(len(table.features) * table.dim for table in inputs.tables)
        return Reasons(
            permute=plan.permute,
            schemes=dict(Counter(placement.scheme for placement in plan.placements)),
            sites=sites.count,
            ranks_of_site=len(sites.ranks_of(0)),
            even=sites.even,
            chosen=moved_by("this plan", plan, inputs),
            alternatives=tuple(others),
            flat_bytes=float(inputs.workload.batch_size * inputs.precision.both_ways_bytes(columns, 1)),
        )


def _sites(tables: Sequence[Table], towers: Sequence[Sequence[str]], sites: Sites) -> list[tuple[list[Table], tuple[int, ...]]]:
    """The tables and the ranks of each site. A table is where its first feature is; `validate` finds those whose others are elsewhere."""
    tower_of = tower_of_features(towers)
    members: list[list[Table]] = [[] for _ in range(sites.count)]
    for table in tables:
        if table.features[0] not in tower_of:
            raise UserError("a feature is in no tower", where="towers", given=table.features[0])
        if table.pooling == "none":
            where = f"table {table.name}"
            raise UserError("towers are for pooled features", where=where, given="a sequence", remedy="use sharder=torchrec")
        members[sites.site_of_tower(tower_of[table.features[0]])].append(table)
    return [(own, sites.ranks_of(site)) for site, own in enumerate(members)]
