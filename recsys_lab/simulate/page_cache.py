"""Rows in files beside the page cache of their host: the memory that the plan leaves holds some of the file's pages.

Rows that are not in a cache of ours are read from all over the file. So the share that the page cache has of the file is the share of
reads that it serves. Those are copies that a processor's cores make. On a CPU cluster the cores compute as well, so such reads are on the
compute stream. So are those from the disk: they pass through the page cache, and take its requests and copies too. A GPU's host makes them
beside.

Rows that leave a cache go behind the last ones in the file, until it is full. Then they go where records are free, and the pages between
are read and written again: by the cores, as above, and on the disk what it holds of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from recsys_lab.cluster import Cluster
from recsys_lab.plan import ShardingPlan, Steps
from recsys_lab.plan.memory import RankMemory
from recsys_lab.plan.steps import FETCH, WRITE_BACK, Step, folded
from recsys_lab.plan.store import DISK_CACHED
from recsys_lab.plan.store_facts import Files
from recsys_lab.simulate.profile import Profile
from recsys_lab.simulate.stores import PAGE_CACHE, REWRITTEN
from recsys_lab.units import MB

#: Of a process, before it has a model: Python, torch and TorchRec took 350 MB in two trainings on CPUs.
BEFORE_A_MODEL_MB = 350.0


def beside_page_cache(
    steps: Steps, cluster: Cluster, profile: Profile, plan: ShardingPlan, memory: RankMemory, files: Files | None = None
) -> Steps:
    """`steps` with the reads of files shared out between the disk and the page cache; as they are where its rate is not known.

    `files`: None: as large as `memory` says.
    """
    if not _is_known(cluster, plan):
        return steps
    share, on_cpu = page_cache_share(cluster, profile, plan, memory, files), cluster.device.kind == "cpu"
    chain: list[Step] = []
    for step in steps.steps:
        if step.kind == FETCH and step.store == DISK_CACHED:
            phase, of_cores = ("forward", 1.0) if on_cpu else (step.phase, share)
            of_pages = _part(step, of_cores, name=f"{step.name}.{PAGE_CACHE}", store=PAGE_CACHE, phase=phase)
            chain += [_part(step, 1 - share), of_pages]
        elif step.kind == WRITE_BACK and step.store == DISK_CACHED and _rewrites(cluster, files):
            assert files is not None
            chain += _rewritten(step, files.rewritten, 1 - share, on_cpu)
        else:
            known = {one.name for one in chain if one.store == PAGE_CACHE}
            behind = (f"{name}.{PAGE_CACHE}" for name in step.after)
            chain.append(replace(step, after=(*step.after, *(name for name in behind if name in known))))
    return replace(steps, steps=tuple(chain))


def page_cache_share(cluster: Cluster, profile: Profile, plan: ShardingPlan, memory: RankMemory, files: Files | None = None) -> float:
    """Of the files' bytes, those that the fullest host's memory holds beside what is in it: on a CPU cluster all that its ranks keep."""
    if not _is_known(cluster, plan):
        return 0.0
    assert cluster.host is not None
    of_files = _of_hosts(memory.beneath if files is None else files.bytes, cluster)
    kept = np.zeros_like(of_files)
    if cluster.device.kind == "cpu":
        lasting, buffers = (np.asarray(part, dtype=float) for part in (memory.lasting, memory.buffers))
        own = lasting + np.asarray(memory.kept) + profile.buffer_factor * buffers + (BEFORE_A_MODEL_MB + profile.process_memory_mb) * MB
        kept = _of_hosts(own, cluster)
    left = np.maximum(cluster.host.memory_gb * 1e9 - kept, 0.0)
    return float(np.min(np.where(of_files > left, left / np.maximum(of_files, 1.0), 1.0)))


def _rewrites(cluster: Cluster, files: Files | None) -> bool:
    assert cluster.disk is not None, "else no rate is known"
    return files is not None and any(files.rewritten) and cluster.disk.rewritten_gb_s is not None


def _rewritten(step: Step, factors: Sequence[float], from_disk: float, on_cpu: bool) -> list[Step]:
    """What leaves a cache, as the disk writes it, behind the pages that it reads for it. On a CPU also what the cores move."""
    pages = np.asarray(step.bytes_of_rank, dtype=float) * np.asarray(factors)
    read = replace(step, name=f"{step.name}.pages", kind=FETCH, bytes_of_rank=folded(from_disk * pages), rows_of_rank=(0.0,))
    parts = [read, replace(step, bytes_of_rank=folded(np.maximum(step.bytes_of_rank, pages)), after=(*step.after, read.name))]
    if on_cpu:
        parts.append(replace(step, name=f"{step.name}.{REWRITTEN}", store=REWRITTEN, phase="forward", bytes_of_rank=folded(pages)))
    return parts


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
