"""The process groups over which a plan's rows travel. Each tier has its own, so that their collectives run beside one another."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import torch.distributed as dist
from torchrec.distributed.types import ShardingEnv

from recsys_lab.plan import ShardingPlan

_MADE: list[dist.ProcessGroup] = []


@dataclass(frozen=True)
class Groups:
    """Of this rank. None where the plan needs none, or where the group would have one member."""

    replicas: dist.ProcessGroup | None  # all ranks: gradients of what all of them hold
    rows: dist.ProcessGroup | None  # all ranks: ids and rows of the row-sharded tier
    host: dist.ProcessGroup | None  # the ranks of this host: ids and rows of the host-sharded tier
    peers: dist.ProcessGroup | None  # the same local rank on every host: gradients of the host-sharded tier


def timeout() -> timedelta:
    """How long a collective waits for the others: RECSYS_LAB_TIMEOUT_S, or ten minutes."""
    return timedelta(seconds=float(os.environ.get("RECSYS_LAB_TIMEOUT_S", 600)))


def groups_of(plan: ShardingPlan) -> Groups:
    """Those that `plan` needs. Collective: every rank makes all groups, in one order, its own or not."""
    needed = {tier for placement in plan.placements for tier, rows in placement.tier_rows.items() if rows}
    world, per_host = range(plan.world_size), plan.ranks_per_host
    hosts = [list(world[first : first + per_host]) for first in world[::per_host]] if "host_sharded" in needed else []
    peers = [list(world[local::per_host]) for local in range(per_host)] if "host_sharded" in needed else []
    return Groups(
        replicas=own_group([list(world)] if "replicated" in needed else []),
        rows=own_group([list(world)] if any(p.scheme == "flexshard" and p.tier_rows["row_sharded"] for p in plan.placements) else []),
        host=own_group(hosts),
        peers=own_group(peers),
    )


def own_group(groups: Sequence[Sequence[int]]) -> dist.ProcessGroup | None:
    """The one of `groups` that this rank is in, its ranks numbered as given; None where groups have one member.

    Collective: every rank makes all of them.
    """
    own = None
    for ranks in groups:
        if len(ranks) > 1:
            made = dist.new_group(list(ranks), timeout=timeout(), sort_ranks=list(ranks) == sorted(ranks))
            if dist.get_rank() in ranks:
                own = made
                _MADE.append(made)
    return own


def close_groups() -> None:
    """Ends every group that was made here, and with them the models that use them: for a process that builds one model after another.

    Collective. Each open group of gloo's keeps three threads awake.
    """
    dist.barrier()
    while _MADE:
        dist.destroy_process_group(_MADE.pop())


def env_of(group: dist.ProcessGroup) -> ShardingEnv:
    """TorchRec's view of `group`. Its own constructor would make a device mesh, and with it more groups, which nothing here uses."""
    env = ShardingEnv(group.size(), group.rank())
    env.process_group = group
    return env
