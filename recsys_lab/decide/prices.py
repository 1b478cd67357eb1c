"""What a combination takes. The functions are those that plan and price a run (`planning.price`)."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from recsys_lab.cluster import Cluster
from recsys_lab.data.protocol import DataSet
from recsys_lab.decide.checkpoint import checkpoint_gb
from recsys_lab.decide.combinations import Combination
from recsys_lab.decide.rows import PLACES, Row
from recsys_lab.errors import PlanDoesNotFit, UserError, as_called
from recsys_lab.plan import ShardingPlan
from recsys_lab.planning import Planned, check_calibrated, plan_for, price, responses_of
from recsys_lab.simulate import Profile, Simulated, Timeline
from recsys_lab.simulate.posterior import error_on, interval_of, log_changes
from recsys_lab.units import GB

#: What the phases of a simulated iteration wait for, in words; of other phases the name.
PHASES = {
    "exposed_embedding_comm": "exchange",
    "exposed_dense_sync": "all-reduce",
    "exposed_store": "rows from host memory or disk",
    "wait_for_longest_rank": "the longest rank",
    "host_launch": "host",
}
#: What a step of compute is, in words.
COMPUTE = {"lookup": "look-ups", "update": "updates", "dense": "dense"}


@dataclass(frozen=True)
class Priced:
    """A combination's rows, one for each of its profiles, and its plan.

    `changes` [DRAWS] of each profile that is weighed and whose error is known: what the logarithm of its time may be over that of its row.
    Where it cannot be planned, there is a row without figures and no plan.
    """

    combination: Combination
    rows: tuple[Row, ...]
    plan: ShardingPlan | None = None
    changes: Mapping[str, np.ndarray] = field(default_factory=dict)


def price_combination(combination: Combination, data: DataSet) -> Priced:
    """Plans and prices it. A cluster that lacks a figure for it, such as the peak of a format, cannot have it."""
    try:
        check_calibrated(combination.experiment.cluster)
        planned = plan_for(combination.experiment, data)
        why, saved_gb = why_simulated_only(planned), checkpoint_gb(planned.plan, planned.workload)
        memory_gb, of_ranks, schemes = (
            fullest_gb(planned),
            in_gb(planned.memory.totals),
            {p.table: p.scheme for p in planned.plan.placements},
        )
        changes, rows = _changes(combination, planned), []
        for profile in combination.profiles:
            row = _with_interval(priced_row(combination, planned, profile), changes.get(profile.name))
            row = replace(row, memory_gb=memory_gb, memory_of_ranks_gb=of_ranks, schemes=schemes)
            rows.append(replace(row, checkpoint_gb=saved_gb, trainable=why is None, why_simulated_only=why))
    except UserError as error:
        lacks = isinstance(error, PlanDoesNotFit)
        figures = {"memory_of_ranks_gb": in_gb(error.needed)} if isinstance(error, PlanDoesNotFit) else {}
        return Priced(combination, (_row(combination, combination.profiles[0], fits=not lacks, why_not=str(error), **figures),))
    return Priced(combination, tuple(rows), planned.plan, changes)


def _changes(combination: Combination, planned: Planned) -> dict[str, np.ndarray]:
    """Of each weighed profile that was fitted to such devices."""
    cluster = planned.cluster
    return {
        profile.name: log_changes(responses_of(planned, profile), profile, cluster, combination.sharder, combination.name)
        for profile, weight in zip(combination.profiles, combination.weights)
        if weight and error_on(profile, cluster) is not None
    }


def why_simulated_only(planned: Planned) -> str | None:
    """Why no plan like it trains here on such devices; None where it does."""
    stored = {p.store.kind for p in planned.plan.placements if p.store is not None}
    if stored and planned.cluster.device.kind != "cpu":
        return f"tables {' and '.join(sorted({PLACES[kind] for kind in stored}))} have trained on CPUs alone here"
    return None


def _with_interval(row: Row, changes: np.ndarray | None) -> Row:
    """With the 90 % intervals of `changes`; as it is without."""
    if changes is None or row.ms is None:
        return row
    interval = interval_of(changes, row.ms)
    row = replace(row, ms_interval=(interval.low, interval.high))
    return replace(row, usd_interval=row.cost_interval if row.usd_per_1e9 is not None else None)


def in_gb(sizes: Sequence[int]) -> tuple[float, ...]:
    """To a megabyte, as there are many."""
    return tuple(round(size / GB, 3) for size in sizes)


def fullest_gb(planned: Planned) -> float:
    """What the fullest rank holds, buffers included, in 1e9 bytes."""
    return max(planned.memory.totals) / GB


def priced_row(combination: Combination, planned: Planned, profile: Profile, cluster: Cluster | None = None) -> Row:
    """`planned` under `profile`, on its cluster or on another with as many ranks. Its memory is not counted.

    Raises UserError where the cluster lacks a figure.
    """
    simulated, timeline = price(planned, profile, cluster)
    cluster = planned.cluster if cluster is None else cluster
    return _row(
        combination,
        profile,
        fits=simulated.feasible,
        ms=simulated.iteration_ms,
        samples_per_second=simulated.examples_per_second,
        usd_per_1e9=simulated.cost_per_billion_samples,
        device_hours_per_1e9=1e9 / simulated.examples_per_second / 3600 * cluster.world_size,
        memory_there_gb=min(cluster.device.memory_gb, combination.experiment.sharder.stores.budget_gb or math.inf),
        stores=dict(Counter(p.store.kind for p in planned.plan.placements if p.store is not None)),
        exposed_ms=simulated.phases_ms.get("exposed_embedding_comm"),
        phases_ms=simulated.phases_ms,
        forward_share=forward_share(timeline),
        bound=bound_of(simulated, timeline),
        software=simulated.profile,
        extrapolates=simulated.extrapolates,
    )


def _row(combination: Combination, profile: Profile, **figures: Any) -> Row:
    cluster = combination.experiment.cluster
    own = profile.name == combination.experiment.profile.name
    words = combination.words if own else (*combination.words, f"profile@simulate.profile={profile.name}")
    return Row(
        cluster=combination.cluster,
        sharder=combination.sharder,
        precision=combination.precision,
        optimizer=combination.optimizer,
        profile=profile.name,
        batch=combination.batch,
        batch_per_rank=combination.experiment.batch_size,
        ranks=cluster.world_size,
        price=cluster.price,
        command=as_called(f"python run.py {shlex.join(words)}"),
        **figures,
    )


def forward_share(timeline: Timeline) -> float:
    """Of an iteration, what its forward pass takes with the input before it. The host's work is taken to be divided alike."""
    ends = [event.end_ms for event in timeline.events if event.step.phase == "forward"]
    return max(ends, default=0.0) / max(event.end_ms for event in timeline.events)


def bound_of(simulated: Simulated, timeline: Timeline) -> str:
    """What the iteration waits for most. Of compute, which part of it takes longest."""
    phase = max(simulated.phases_ms, key=lambda name: simulated.phases_ms[name])
    if phase != "compute":
        return PHASES.get(phase, phase.replace("_", " "))
    busy: dict[str, float] = {}
    for event in timeline.events:
        if event.step.kind in COMPUTE:
            busy[event.step.kind] = busy.get(event.step.kind, 0.0) + event.ms
    return COMPUTE[max(busy, key=lambda kind: busy[kind])] if busy else "compute"
