"""DMT's planner (arXiv 2403.00877): towers to sites, their tables to the sites' ranks, and which specialisation of SPTT moves least."""

from __future__ import annotations

from collections.abc import Sequence

from recsys_lab.cluster import Cluster
from recsys_lab.errors import UserError, did_you_mean
from recsys_lab.plan import Placement, ShardingPlan, Workload
from recsys_lab.plan.memory import check_fits
from recsys_lab.plan.validate import validate
from recsys_lab.precision import Precision
from recsys_lab.schemes.towers.sites import PERMUTES, Sites, sites_of, tower_of_features
from recsys_lab.sharders.dmt.place import Given, Site, place
from recsys_lab.tables import AccessStatistics, Table

SCHEMES = ("auto", "column_wise", "row_wise", "table_wise")


def plan(
    tables: tuple[Table, ...],
    access: AccessStatistics,
    cluster: Cluster,
    precision: Precision,
    workload: Workload,
    towers: Sequence[Sequence[str]],
    *,
    scheme: str = "auto",
    permute: str = "auto",
) -> ShardingPlan:
    """Every table inside the site of its tower. `towers`: T groups of features, T and the hosts dividing each other.

    `scheme` auto: tables whole, or cut by columns where a site has fewer of them than ranks, or where one is too large for a rank;
    multi-hot tables (more than one look-up a feature and sample) by rows where that moves less (`volume`). Or one for all tables.
    Pieces go to ranks in falling size, each where least bytes and least work are.

    `permute`, of step c: rows, ids, or none by a process group in peer order; auto: what moves least, which is none.

    Raises UserError for towers and options that cannot be, PlanDoesNotFit where a rank cannot hold its part.
    """
    made = placed(tables, access, cluster, precision, workload, towers, scheme, permute)
    check_fits(made, workload, cluster)
    return made


def placed(
    tables: tuple[Table, ...],
    access: AccessStatistics,
    cluster: Cluster,
    precision: Precision,
    workload: Workload,
    towers: Sequence[Sequence[str]],
    scheme: str,
    permute: str,
) -> ShardingPlan:
    """The plan, whether it fits or not."""
    for where, value, allowed in (("scheme", scheme, SCHEMES), ("permute", permute, ("auto", *PERMUTES))):
        if value not in allowed:
            where = f"sharder.planner.{where}"
            raise UserError("unknown choice", where=where, given=value, allowed=", ".join(allowed), remedy=did_you_mean(value, allowed))
    sites = sites_of(len(towers), cluster.hosts, cluster.ranks_per_host)
    given = Given(access, cluster, precision, workload, scheme)
    found: dict[str, Placement] = {}
    for tables_of_site, ranks in _sites(tables, towers, sites):
        found |= place(Site(tables_of_site, ranks), given)
    made = ShardingPlan(
        "dmt" if workload.towers else "dmt_sptt",
        cluster.hosts,
        cluster.ranks_per_host,
        tables,
        tuple(found[table.name] for table in tables),
        tuple(tuple(tower) for tower in towers),
        "none" if permute == "auto" else permute,
    )
    validate(made)
    return made


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
