"""Bytes of a model's tower modules on the ranks of their site."""

from __future__ import annotations

from recsys_lab.plan.scheme import ModuleMemory
from recsys_lab.plan.sharding_plan import ShardingPlan
from recsys_lab.plan.workload import Workload
from recsys_lab.schemes.towers.sites import sites_of_plan


def module_memory(plan: ShardingPlan, workload: Workload) -> ModuleMemory:
    """Each rank's site's tower modules, and what passes through them, for the samples of its peers.

    Buffers in FP32, each with its gradient: pooled rows before the modules, what they give, and their activations.
    """
    sites, dims = sites_of_plan(plan), {feature: table.dim for table in plan.tables for feature in table.features}
    lasting: list[int] = []
    buffers: list[float] = []
    for site in range(sites.count):
        works = [workload.towers[tower] for tower in sites.towers_of(site)] if workload.towers else []
        pooled = sum(dims[feature] for tower in sites.towers_of(site) for feature in plan.towers[tower])
        columns = sum(work.columns for work in works)
        a_sample = 2 * 4 * (pooled + columns) + sum(work.activation_bytes_per_sample for work in works)
        lasting += [sum(workload.dense_bytes_of(work.parameters) for work in works)] * sites.ranks
        buffers += [a_sample * sites.count * workload.batch_size] * sites.ranks
    received = sum(work.columns for work in workload.towers) if workload.towers else None
    return ModuleMemory(tuple(lasting), tuple(buffers), received)
