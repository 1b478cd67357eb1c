"""The process groups over which tiers' rows and gradients travel. Each tier has its own: their collectives run beside one another."""

from __future__ import annotations

from dataclasses import dataclass

import torch.distributed as dist

from recsys_lab.executor.execution import Request
from recsys_lab.executor.groups import own_group
from recsys_lab.plan.tiers import tier_rows
from recsys_lab.schemes.tiers.placement import holders
from recsys_lab.tables.tiers import HOST_SHARDED, REPLICATED, ROW_SHARDED


@dataclass(frozen=True)
class Groups:
    """Of this rank, by tier. None where the plan needs none, or where the group would have one member.

    `rows`: between whose ranks ids and rows travel. `replicas`: whose ranks hold the same rows and average their gradients.
    """

    rows: dict[str, dist.ProcessGroup | None]
    replicas: dict[str, dist.ProcessGroup | None]


def groups_of(request: Request) -> Groups:
    """Those that the request's tables need. Collective: every rank makes all groups, in one order, its own or not."""
    plan = request.plan
    needed = {tier for _, placement in request.placed for tier, rows in tier_rows(placement).items() if rows}
    world, per_host = list(range(plan.world_size)), plan.ranks_per_host
    hosts = [world[first : first + per_host] for first in world[::per_host]]
    same = {tier: [list(ranks) for ranks in groups] for tier, groups in holders(plan.hosts, per_host).items()}

    def group(tier: str, groups: list[list[int]]) -> dist.ProcessGroup | None:
        return own_group(groups if tier in needed else [])

    replicated = group(REPLICATED, same[REPLICATED])
    rows = {ROW_SHARDED: group(ROW_SHARDED, [world]), HOST_SHARDED: group(HOST_SHARDED, hosts)}
    return Groups(rows, {REPLICATED: replicated, HOST_SHARDED: group(HOST_SHARDED, same[HOST_SHARDED])})
