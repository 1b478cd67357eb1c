"""Memory of a rank over a simulated iteration: what lasts, and what comes and goes with its steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recsys_lab.cluster import Cluster
from recsys_lab.plan.memory import RankMemory
from recsys_lab.plan.steps import Steps
from recsys_lab.plan.workload import Workload
from recsys_lab.simulate.collectives import copied_bytes
from recsys_lab.simulate.costs import AHEAD
from recsys_lab.simulate.order import is_dense_work
from recsys_lab.simulate.placed import Event
from recsys_lab.simulate.profile import Profile
from recsys_lab.units import MB


@dataclass(frozen=True)
class MemoryAt:
    """Bytes from `ms` on. `lasting`: tables, dense weights and both optimizers' states."""

    ms: float
    lasting: int
    activations: float
    communication: float

    @property
    def total(self) -> float:
        return self.lasting + self.activations + self.communication


def added_memory_bytes(steps: Steps, cluster: Cluster, profile: Profile, memory: RankMemory) -> float:
    """On the rank with most: the lasting part, the buffers of a step as the software has them, and the memory of its libraries."""
    passing = profile.buffer_factor * (np.asarray(memory.buffers) + _copied(steps, cluster))
    return float((np.asarray(memory.lasting) + np.asarray(memory.kept) + passing).max()) + profile.process_memory_mb * MB


def _copied(steps: Steps, cluster: Cluster) -> np.ndarray:
    """[R], or [1] where all ranks are alike: the largest buffer that a collective copies."""
    most = np.zeros(1)
    for step in steps.collectives:
        factor = copied_bytes(step.kind, len(step.groups[0]), 1.0, cluster)
        most = np.maximum(most, factor * np.asarray(step.bytes_of_rank, dtype=float))
    return most


def memory_over_time(events: Sequence[Event], memory: RankMemory, rank: int, workload: Workload) -> list[MemoryAt]:
    """Of `rank`, whose `events` these are, at every moment at which it changes.

    Activations grow over the dense forward and shrink over the dense backward. The output of a collective stays until the phase that reads
    it has ended. Ids and embeddings stay until their gradients leave, gradients until the optimizer has read them.
    """
    changes: list[tuple[float, float, float]] = []  # ms, activations, communication
    own = [event for event in events if not event.elsewhere]
    end = max((event.end_ms for event in own), default=0.0)
    backward = [event for event in own if is_dense_work(event.step) and event.step.phase == "backward"]
    read = max((event.end_ms for event in backward), default=end)
    activations = workload.kept_bytes
    for event in own:
        if is_dense_work(event.step) and event.step.phase == "forward" and event.step.part != AHEAD:
            changes.append((event.start_ms, activations, 0.0))
        if event.step.is_collective:
            taken = max(event.step.received_of_rank or event.step.bytes_of_rank)
            until = read if event.end_ms < read else end
            changes += [(event.start_ms, 0.0, taken), (until, 0.0, -taken)]
    changes.append((read, -activations, 0.0))
    points, now = [MemoryAt(0.0, memory.lasting[rank], 0.0, 0.0)], [0.0, 0.0]
    for ms, more, sent in sorted(changes):
        now = [max(now[0] + more, 0.0), max(now[1] + sent, 0.0)]
        points.append(MemoryAt(ms, memory.lasting[rank], *now))
    return points
