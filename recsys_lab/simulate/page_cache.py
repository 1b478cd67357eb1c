"""Rows in files beside the page cache of their host: the memory that the plan leaves holds some of the file's pages.

Rows that are not in a cache of ours are read from all over the file. So the share that the page cache has of the file is the share of
reads that it serves. Those are copies that a processor's cores make. On a CPU cluster the cores compute as well, so such reads are on the
compute stream. So are those from the disk: they pass through the page cache, and take its requests and copies too. A GPU's host makes them
beside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from recsys_lab.cluster import Cluster
from recsys_lab.plan import ShardingPlan, Steps
from recsys_lab.plan.memory import RankMemory
from recsys_lab.plan.steps import FETCH, Step
from recsys_lab.plan.store import DISK_CACHED
from recsys_lab.simulate.profile import Profile
from recsys_lab.simulate.stores import PAGE_CACHE
from recsys_lab.units import MB

#: Of a process, before it has a model: Python, torch and TorchRec took 350 MB in two trainings on CPUs.
BEFORE_A_MODEL_MB = 350.0


def beside_page_cache(
    steps: Steps, cluster: Cluster, profile: Profile, plan: ShardingPlan, memory: RankMemory, file_bytes: Sequence[float] = ()
) -> Steps:
    """`steps` with the reads of files shared out between the disk and the page cache; as they are where its rate is not known.

    `file_bytes`: of each rank's files, where they do not hold all rows yet.
    """
    if not _is_known(cluster, plan):
        return steps
    share, on_cpu = page_cache_share(cluster, profile, plan, memory, file_bytes), cluster.device.kind == "cpu"
    chain: list[Step] = []
    for step in steps.steps:
        if step.kind == FETCH and step.store == DISK_CACHED:
            phase, of_cores = ("forward", 1.0) if on_cpu else (step.phase, share)
            of_pages = _part(step, of_cores, name=f"{step.name}.{PAGE_CACHE}", store=PAGE_CACHE, phase=phase)
            chain += [_part(step, 1 - share), of_pages]
        else:
            known = {one.name for one in chain if one.store == PAGE_CACHE}
            behind = (f"{name}.{PAGE_CACHE}" for name in step.after)
            chain.append(replace(step, after=(*step.after, *(name for name in behind if name in known))))
    return replace(steps, steps=tuple(chain))


def page_cache_share(cluster: Cluster, profile: Profile, plan: ShardingPlan, memory: RankMemory, file_bytes: Sequence[float] = ()) -> float:
    """Of the files' bytes, those that the fullest host's memory holds beside what is in it: on a CPU cluster all that its ranks keep."""
    if not _is_known(cluster, plan):
        return 0.0
    assert cluster.host is not None
    files = _of_hosts(file_bytes or memory.beneath, cluster)
    kept = np.zeros_like(files)
    if cluster.device.kind == "cpu":
        lasting, buffers = (np.asarray(part, dtype=float) for part in (memory.lasting, memory.buffers))
        own = lasting + np.asarray(memory.kept) + profile.buffer_factor * buffers + (BEFORE_A_MODEL_MB + profile.process_memory_mb) * MB
        kept = _of_hosts(own, cluster)
    left = np.maximum(cluster.host.memory_gb * 1e9 - kept, 0.0)
    return float(np.min(np.where(files > left, left / np.maximum(files, 1.0), 1.0)))


def _is_known(cluster: Cluster, plan: ShardingPlan) -> bool:
    """Whether there are files, and the page cache's rate and size."""
    on_disk = any(placement.store is not None and placement.store.kind == DISK_CACHED for placement in plan.placements)
    return on_disk and cluster.host is not None and cluster.disk is not None and cluster.disk.cached_reads_per_s is not None


def _of_hosts(figures: Sequence[float] | np.ndarray, cluster: Cluster) -> np.ndarray:
    """[H]: the sum over each host's ranks."""
    return np.asarray(figures, dtype=float).reshape(cluster.hosts, cluster.ranks_per_host).sum(axis=1)


def _part(step: Step, share: float, **changes: str) -> Step:
    """`share` of what a step moves."""
    moved = {key: tuple(share * figure for figure in getattr(step, key)) for key in ("bytes_of_rank", "rows_of_rank")}
    return replace(step, **moved, **changes)  # type: ignore[arg-type]
