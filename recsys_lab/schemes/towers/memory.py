"""What towers add to the bytes of each rank."""

from __future__ import annotations

from recsys_lab.plan.sharding_plan import ShardingPlan
from recsys_lab.plan.workload import Workload


def tower_bytes(plan: ShardingPlan, workload: Workload) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """(what lasts, buffers) of each rank: its site's tower modules, and what passes through them, for the samples of its peers.

    Buffers in FP32, each with its gradient: pooled rows before the modules, what they give, and their activations. A plan without towers
    has all of the model's modules on every rank, for its own samples.
    """
    if not plan.has_tower_tables:
        everything = sum(workload.dense_bytes_of(work.parameters) for work in workload.towers)
        passing = sum(work.activation_bytes_per_sample for work in workload.towers) * workload.batch_size
        return (everything,) * plan.world_size, (passing,) * plan.world_size
    sites, dims = plan.sites, {feature: table.dim for table in plan.tables for feature in table.features}
    lasting, buffers = [], []
    for site in range(sites.count):
        works = [workload.towers[tower] for tower in sites.towers_of(site)] if workload.towers else []
        pooled = sum(dims[feature] for tower in sites.towers_of(site) for feature in plan.towers[tower])
        given = sum(work.columns for work in works)
        a_sample = 2 * 4 * (pooled + given) + sum(work.activation_bytes_per_sample for work in works)
        lasting += [sum(workload.dense_bytes_of(work.parameters) for work in works)] * sites.ranks
        buffers += [a_sample * sites.count * workload.batch_size] * sites.ranks
    return tuple(lasting), tuple(buffers)


def received_columns(plan: ShardingPlan, workload: Workload) -> int | None:
    """Numbers that a rank receives for each of its own samples, where tower modules make them of pooled rows; else None."""
    return sum(work.columns for work in workload.towers) if plan.has_tower_tables and workload.towers else None
