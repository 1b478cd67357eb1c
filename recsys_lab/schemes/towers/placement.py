"""Whether the tables of a plan are in its towers: each on the ranks of its tower's site."""

from __future__ import annotations

from recsys_lab.errors import UserError
from recsys_lab.plan.sharding_plan import PERMUTES, TOWER_SCHEMES, Placement, ShardingPlan
from recsys_lab.schemes.row_blocks.placement import check_blocks
from recsys_lab.schemes.towers.sites import tower_of_features
from recsys_lab.tables import Table


def check_towers(plan: ShardingPlan) -> None:
    """Raises UserError. A plan places all of its tables in towers, or none."""
    sites = plan.sites
    listed = [feature for tower in plan.towers for feature in tower]
    if doubled := {feature for feature in listed if listed.count(feature) > 1}:
        raise UserError("a feature is in two towers", where="towers", given=min(doubled))
    if plan.permute not in PERMUTES:
        raise UserError("unknown peer permute", where="permute", given=plan.permute or "none given", allowed=", ".join(PERMUTES))
    tower_of = tower_of_features(plan.towers)
    for table, placement in zip(plan.tables, plan.placements):
        tower = _tower(table, placement, tower_of)
        ranks = sites.ranks_of(sites.site_of_tower(tower))
        where = f"table {table.name}, {placement.scheme}"
        if outside := sorted(set(placement.ranks) - set(ranks)):
            raise UserError(
                f"all shards must lie on the ranks of tower {tower}",
                where=where,
                given=f"rank {outside[0]}",
                allowed=f"{ranks[0]} to {ranks[-1]}",
            )
        if placement.scheme == "tower_row_wise":
            check_blocks(where, table.rows, list(placement.shards), list(ranks))


def _tower(table: Table, placement: Placement, tower_of: dict[str, int]) -> int:
    where = f"table {table.name}"
    if placement.scheme not in TOWER_SCHEMES:
        raise UserError("a plan with towers has all tables in them", where=where, given=placement.scheme, allowed=", ".join(TOWER_SCHEMES))
    if table.pooling == "none":
        raise UserError("a sequence has no pooled row for a tower", where=where, given="pooling none", allowed="sum, mean")
    found = {tower_of.get(feature) for feature in table.features}
    if None in found or len(found) > 1:
        raise UserError("all features of a table must be in one tower", where=where, given=sorted(map(str, found)))
    return tower_of[table.features[0]]
