"""What other budgets of memory would take, where tables have stores: the report's curve."""

from __future__ import annotations

from collections.abc import Iterator

from recsys_lab.errors import PlanDoesNotFit
from recsys_lab.experiment import Experiment
from recsys_lab.plan import ShardingPlan
from recsys_lab.planning import Planned, lowered, price
from recsys_lab.record.run_folder import CachePoint, StoresFile
from recsys_lab.simulate import Simulated

#: Budgets that are tried beside the chosen one.
CURVE_POINTS = 10
#: Beyond so many ranks a curve takes longer than a run should wait.
MOST_CURVE_RANKS = 1024
#: Of memory, so that a plan fits the least budget in spite of rounding.
ROUNDING = 1e-6


def store_curve(experiment: Experiment, named: Planned, simulated: Simulated) -> StoresFile | None:
    """What other sizes of cache would take: from the least memory that works to all tables in memory.

    None without stores, where a share is named, and where it would take long.
    """
    if not named.plan.has_stores or experiment.sharder.stores.cached_share is not None or named.cluster.world_size > MOST_CURVE_RANKS:
        return None
    plan_gb = experiment.sharder.stores.within(named.inputs).cluster.device.memory_gb
    of_plan = CachePoint(plan_gb, cached_share(named.plan), len(named.stores), simulated.iteration_ms, True)
    points = sorted([of_plan, *_others(experiment, named, plan_gb)], key=lambda point: point.memory_gb)
    return StoresFile(named.cluster.name, simulated.profile, points)


def _others(experiment: Experiment, named: Planned, plan_gb: float) -> Iterator[CachePoint]:
    """Small budgets lie closer together, since there the iteration changes most."""
    stores = experiment.sharder.stores
    least_gb, most_gb = stores.span_gb(named.inputs, named.plan)
    for number in range(CURVE_POINTS):
        memory_gb = (least_gb + (most_gb - least_gb) * (number / (CURVE_POINTS - 1)) ** 1.5) * (1 + ROUNDING)
        try:
            plan = stores.at(named.inputs, named.plan, memory_gb)
        except PlanDoesNotFit:
            continue  # by less than rounding
        planned = lowered(experiment, named.inputs, plan, experiment.simulate.hot_rows)
        ms = price(planned, experiment.profile)[0].iteration_ms
        with_store = sum(placement.store is not None for placement in plan.placements)
        yield CachePoint(memory_gb, cached_share(plan), with_store, ms, False)


def cached_share(plan: ShardingPlan) -> float:
    """Of the rows of all tables, those in the ranks' memory."""
    rows_held = sum(t.rows * (1.0 if p.store is None else p.store.cached_share) for t, p in zip(plan.tables, plan.placements))
    return rows_held / sum(table.rows for table in plan.tables)
