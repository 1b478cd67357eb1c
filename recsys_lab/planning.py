"""From an experiment and its data to plans, steps and their price.

There is one set for the named cluster, and one for the processes that train here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from statistics import fmean

import psutil

from recsys_lab.cluster import Cluster
from recsys_lab.config.choices import apart_from_hydra, cluster_here, composed
from recsys_lab.config.options import ExecutorOptions
from recsys_lab.data.capped import capped
from recsys_lab.data.grown import grown
from recsys_lab.data.protocol import DataSet
from recsys_lab.errors import PlanDoesNotFit, UserError
from recsys_lab.experiment import LOCAL, Experiment, Towers
from recsys_lab.experiment_groups import SharderChoice
from recsys_lab.plan import ShardingPlan, Steps, Workload
from recsys_lab.plan.lower import lower
from recsys_lab.plan.memory import RankMemory, bytes_of_ranks, check_fits
from recsys_lab.plan.steps import FETCH, SIZES, WRITE_BACK
from recsys_lab.plan.store_facts import Files, StoreFacts, files_of, store_facts
from recsys_lab.plan.workload import ModelCost
from recsys_lab.sharders.base import PlanInputs
from recsys_lab.simulate import InRun, Profile, Simulated, Timeline, simulate
from recsys_lab.simulate.bounds import HOST_LAUNCHES, bounds_of, saved_ms
from recsys_lab.simulate.posterior import Response, error_on, interval_of, log_changes, responses
from recsys_lab.simulate.simulated import iteration_ms
from recsys_lab.tables import AccessStatistics, Table, TableAccess
from recsys_lab.units import GB

#: The tables that train here may fill this share of the machine's memory, weights and optimizer state together.
TABLES_SHARE_OF_MEMORY = 0.25
#: Steps of a run that are simulated, where they differ.
RUN_POINTS = 8
#: Tables below this share of one device's memory are few for many devices.
SMALL = 0.1
TORCHREC = "torchrec"
#: Of `sharder.dedup`: as the simulator says.
AUTO = "auto"


@dataclass(frozen=True)
class Planned:
    """A plan with its steps, what it was made from, and how it is executed.

    Attributes:
        inputs: tables, access statistics, cluster, precision and workload.
        plan: where every shard lies.
        steps: one iteration in order, with the bytes of each rank.
        executor: the keys of `sharder.executor` that change the steps.
        files: with rows of tables, of each rank; None: there are none.
    """

    inputs: PlanInputs
    plan: ShardingPlan
    steps: Steps
    executor: ExecutorOptions
    files: Files | None = None

    @property
    def cluster(self) -> Cluster:
        return self.inputs.cluster

    @property
    def tables(self) -> tuple[Table, ...]:
        return self.inputs.tables

    @property
    def access(self) -> AccessStatistics:
        return self.inputs.access

    @property
    def workload(self) -> Workload:
        return self.inputs.workload

    @cached_property
    def memory(self) -> RankMemory:
        """Of each rank. It is counted once, as one plan is priced many times."""
        return bytes_of_ranks(self.plan, self.workload)

    @property
    def stores(self) -> tuple[StoreFacts, ...]:
        """What it does with tables that are not in device memory as a whole."""
        return store_facts(self.plan, self.access, self.workload, self.executor.in_flight)


def plan_for(experiment: Experiment, data: DataSet, cluster: Cluster | None = None, batch_size: int | None = None) -> Planned:
    """The plan of the tables of `data`, and its steps. With `sharder.dedup=auto` whether equal ids travel once is decided with it.

    Args:
        experiment: the run, resolved.
        data: the open data set, whose features name the tables.
        cluster: to plan for; None: the experiment's.
        batch_size: samples a rank and step; None: the experiment's.

    Returns:
        The plan with its steps, cluster, access statistics and workload.

    Raises:
        UserError: the combination cannot be planned.
        PlanDoesNotFit: no plan fits the memory.
    """
    if experiment.sharder.dedup == AUTO:
        return _faster(experiment, partial(plan_for, data=data, cluster=cluster, batch_size=batch_size))
    data = _grown(experiment, data)
    cluster = experiment.cluster if cluster is None else cluster
    batch_size = experiment.batch_size if batch_size is None else batch_size
    towers = towers_for(experiment, data, cluster)
    inputs = plan_inputs(experiment, data, cluster, batch_size, towers)
    planner, stores = experiment.sharder.planner, experiment.sharder.stores
    within = stores.within(inputs)
    try:
        plan = planner.plan(within) if stores.cached_share is None else stores.at_share(within, planner.plan)
    except PlanDoesNotFit as refused:
        plan = stores.plan(within, planner.plan, refused)
    if stores.cached_share is not None and not plan.has_stores:
        raise UserError(
            "no table leaves memory: its ranks hold it alike, or the cache is too small for the rows of the batches in flight",
            where="sharder.cached_share",
            given=f"{stores.cached_share:g}",
            remedy="a larger share, smaller batches, or a sharder without replicas",
        )
    return _planned(experiment, inputs, plan, experiment.simulate.hot_rows)


def _faster(experiment: Experiment, plan: Callable[[Experiment], Planned]) -> Planned:
    """What `plan` makes of an experiment that leaves dedup open: the faster of both ways, or the one that fits."""
    off, on = (replace(experiment, sharder=experiment.sharder.with_dedup(dedup)) for dedup in (False, True))
    try:
        without = plan(off)
    except PlanDoesNotFit:
        return plan(on)
    if not any(table.pooling == "none" for table in without.tables):
        return without
    try:
        once = plan(on)
    except PlanDoesNotFit:
        return without
    return min((without, once), key=lambda planned: time_of(planned, experiment.profile, planned.cluster))


def planned_as(experiment: Experiment, data: DataSet, plan: ShardingPlan) -> Planned:
    """`plan`, made before, for what `experiment` now is: another batch, other formats of the dense arch. PlanDoesNotFit."""
    if experiment.sharder.dedup == AUTO:
        return _faster(experiment, partial(planned_as, data=data, plan=plan))
    inputs = plan_inputs(experiment, _grown(experiment, data), experiment.cluster, experiment.batch_size, plan.towers)
    return _planned(experiment, inputs, plan, experiment.simulate.hot_rows)


def _grown(experiment: Experiment, data: DataSet) -> DataSet:
    return grown(data, experiment.simulate.length_growth, experiment.simulate.skew_growth)


def towers_for(experiment: Experiment, data: DataSet, cluster: Cluster) -> Towers:
    """The features of each tower. None where the sharder has no towers.

    Raises UserError for towers that cannot be. One that is to be found on data from which nothing can be learnt is one of them.
    """
    options, tables = experiment.sharder.towers, experiment.tables(data)
    if options is None:
        return ()
    if not options.probes:
        return options.towers(tables, cluster)
    from recsys_lab.partition.kept import towers_of  # with torch, which no other plan needs

    return options.towers(tables, cluster, towers_of(experiment, data, options.count_of(tables, cluster)))


def plan_here(experiment: Experiment, data: DataSet, named: Planned, rows: int | None) -> Planned:
    """The plan that trains here. It is the named cluster's own if the launcher starts that many ranks, else one for this machine.

    Caches that hold the rows of the named cluster's batch may be too small for a larger one: then it is one for this machine, too.
    `rows`: the most that a table may have here, None for no limit.
    """
    launcher = experiment.launcher
    as_many = (named.cluster.hosts, named.cluster.ranks_per_host) == (launcher.hosts, launcher.ranks_per_host) and rows is None
    if as_many and not (named.plan.has_stores and experiment.batch_size_here > named.workload.batch_size):
        return named
    data = data if rows is None else capped(data, rows)
    inputs = plan_inputs(experiment, data, this_machine(experiment), experiment.batch_size_here, named.plan.towers)
    planner, stores = experiment.sharder.planner, experiment.sharder.stores
    within, adapted = stores.within(inputs), partial(planner.adapt, named.inputs)
    try:
        plan = planner.adapt(named.inputs, within) if stores.cached_share is None else stores.at_share(within, adapted)
    except PlanDoesNotFit as refused:
        plan = stores.plan(within, adapted, refused)
    return _planned(experiment, inputs, plan)


def replan(experiment: Experiment, here: Planned, named: Planned, access: AccessStatistics) -> ShardingPlan:
    """What trains here, planned with other access statistics."""
    return experiment.sharder.planner.adapt(named.inputs, replace(here.inputs, access=access))


def price(planned: Planned, profile: Profile, cluster: Cluster | None = None) -> tuple[Simulated, Timeline]:
    """What an iteration of `planned` takes. The input distribution overlaps where the executor's does.

    Args:
        planned: the plan and its steps.
        profile: what the software makes of the hardware.
        cluster: another cluster with as many ranks; None: the plan's.

    Returns:
        The simulated figures (ms, bytes), and the timeline of every step on every rank.
    """
    profile = profile.pipelined if planned.executor.pipeline else profile
    cluster = planned.cluster if cluster is None else cluster
    return simulate(planned.steps, cluster, profile, planned.plan, planned.workload, planned.files, planned.memory)


def sent_bytes(planned: Planned) -> tuple[float, float]:
    """What ids, rows and gradients of sequences put into exchanges, of all ranks, in bytes: with all ids, and with equal ones once."""
    sequences = {table.name for table in planned.tables if table.pooling == "none"}

    def sent(dedup: bool) -> float:
        inputs = replace(planned.inputs, workload=replace(planned.workload, dedup=dedup))
        steps = lower(planned.plan, inputs.access, inputs.precision, inputs.workload, sync=planned.executor.sync)
        own = [step for step in steps.collectives if step.kind == "all_to_all" and sequences.issuperset(step.tables) and step.role != SIZES]
        return sum(step.bytes_on(rank) for step in own for group in step.groups for rank in group)

    return sent(False), sent(True)


def check_calibrated(cluster: Cluster) -> None:
    """Raises UserError for a cluster whose figures are another machine's: nothing that is simulated of it is shown."""
    if not cluster.calibrated:
        raise UserError(
            "not calibrated, so nothing is known of its times", where=f"cluster {cluster.name}", remedy="python -m recsys_lab calibrate"
        )


def responses_of(planned: Planned, profile: Profile) -> dict[str, Response]:
    """What each unknown of the software and of the cluster does to the time of an iteration."""
    return responses(partial(time_of, planned), profile, planned.cluster)


def time_of(planned: Planned, profile: Profile, cluster: Cluster) -> float:
    """The `iteration_ms` of `price` alone."""
    profile = profile.pipelined if planned.executor.pipeline else profile
    return iteration_ms(planned.steps, cluster, profile, planned.plan, planned.workload, planned.files, planned.memory)


def with_interval(simulated: Simulated, planned: Planned, profile: Profile) -> Simulated:
    """`simulated`, the price of `planned`, with its 90 % interval, where the profile was fitted to such devices."""
    if error_on(profile, planned.cluster) is None:
        return simulated
    changes = log_changes(responses_of(planned, profile), profile, planned.cluster, planned.plan.sharder, planned.plan.sharder)
    return replace(simulated, interval_ms=interval_of(changes, simulated.iteration_ms))


def with_bounds(simulated: Simulated, planned: Planned, experiment: Experiment, data: DataSet) -> Simulated:
    """`simulated`, the price of `planned`, with what would shorten it. Of a model far too small for its cluster, with TorchRec's times."""
    saved = saved_ms(partial(time_of, planned), experiment.profile, planned.cluster)
    simulated = replace(simulated, bound_by=saved)
    host_share = 2 * saved.get(HOST_LAUNCHES, 0.0) / simulated.iteration_ms
    if not is_far_too_small(host_share, planned.plan, planned.cluster):
        return simulated
    with apart_from_hydra():
        plain = replace(experiment, sharder=SharderChoice.of(composed("sharder", TORCHREC)).with_dedup(planned.workload.dedup))
    is_torchrec, cluster = experiment.choices.get("sharder") == TORCHREC, planned.cluster
    one_host = cluster.reshaped(1, cluster.ranks_per_host) if cluster.hosts > 1 else None
    return replace(
        simulated,
        torchrec_ms=None if is_torchrec else _time_on(plain, data, cluster, experiment.batch_size),
        torchrec_host_ms=None if one_host is None else _time_on(plain, data, one_host, experiment.batch_size * cluster.hosts),
    )


def _time_on(experiment: Experiment, data: DataSet, cluster: Cluster, batch_size: int) -> float | None:
    """Of an iteration on `cluster` with so many samples a rank; None where it cannot be planned."""
    try:
        return price(plan_for(experiment, data, cluster, batch_size), experiment.profile)[0].iteration_ms
    except UserError:
        return None


def is_far_too_small(host_share: float, plan: ShardingPlan, cluster: Cluster) -> bool:
    """Whether the tables of `plan` would lie on a part of one device, and the iteration is the host's for the most part (`host_share`)."""
    little = sum(table.weight_bytes for table in plan.tables) < SMALL * cluster.device.memory_gb * GB
    return little and cluster.world_size > 1 and host_share > 0.5


def in_run(experiment: Experiment, planned: Planned, steps: int) -> InRun:
    """An iteration of a training of `planned` with so many `steps`, by the experiment's profile: the mean of some, evenly spread."""
    numbers = sorted({int((number + 0.5) / RUN_POINTS * steps) for number in range(RUN_POINTS)})
    early = [lowered(experiment, planned.inputs, planned.plan, experiment.simulate.hot_rows, number) for number in numbers]
    priced = [price(one, experiment.profile)[0] for one in early]
    phases = {name: fmean(one.phases_ms[name] for one in priced) for name in priced[0].phases_ms}
    moved = (fmean(_moved_bytes(one.steps, kind) for one in early) for kind in (FETCH, WRITE_BACK))
    return InRun(steps, fmean(one.iteration_ms for one in priced), phases, *moved)


def _moved_bytes(steps: Steps, kind: str) -> float:
    """By all ranks, to or from stores."""
    return sum(one.bytes_on(rank) for one in steps.steps if one.kind == kind for rank in range(steps.world_size))


def bounds(planned: Planned, profile: Profile, timeline: Timeline) -> dict[str, str]:
    """What bounds each step of `timeline`, as `price` gave it."""
    return bounds_of((event.step for event in timeline.events), planned.cluster, profile, planned.workload)


def plan_inputs(experiment: Experiment, data: DataSet, cluster: Cluster, batch_size: int, towers: Towers = ()) -> PlanInputs:
    """What a plan is made from. Raises UserError where model and data do not go together."""
    tables = experiment.tables(data)
    lengths = {feature.name: feature.mean_length for feature in data.features}
    cost = experiment.model.counted(tables, data.dense_features, experiment.sharder.modules(towers), lengths, experiment.precision.compute)
    workload = workload_of(experiment, cost, data, batch_size, {table.name: data.access[table.name] for table in tables})
    return PlanInputs(tables, data.access, cluster, experiment.precision, workload, towers)


def workload_of(experiment: Experiment, cost: ModelCost, data: DataSet, batch_size: int, access: Mapping[str, TableAccess]) -> Workload:
    """What an iteration of a model of that cost does besides its tables. Its tower modules apart from the rest."""
    return Workload(
        batch_size=batch_size,
        dense_parameters=cost.dense_parameters - sum(t.parameters for t in cost.towers),
        forward_flops_per_sample=cost.forward_flops_per_sample - sum(t.forward_flops_per_sample for t in cost.towers),
        backward_flops_per_sample=cost.backward_flops_per_sample - sum(t.backward_flops_per_sample for t in cost.towers),
        activation_bytes_per_sample=max(cost.activation_bytes_per_sample - sum(t.activation_bytes_per_sample for t in cost.towers), 0.0),
        sparse_optimizer=experiment.table_optimizer.name,
        dense_optimizer=experiment.optimizer.dense.name,
        lengths={name: of_table.mean_length for name, of_table in access.items()},
        towers=cost.towers,
        layers=cost.layers,
        dense_format=experiment.precision.dense,
        replica_format=experiment.precision.dense_comm,
        rows_format=experiment.precision.forward_comm,
        dense_features=data.dense_features,
        access=access,
        dedup=experiment.sharder.dedup is True,
        history=data.history,
        work=experiment.model.work,
        dealt_by=experiment.dealt_by,
        compute_format=experiment.precision.compute,
        sequence=cost.sequence,
    )


def most_rows_here(experiment: Experiment, named: Planned) -> int | None:
    """The most rows a table may have so that all tables, with optimizer state, fit this machine; None if they fit as they are. None also if
    the plan is for this machine and leaves some of them on its disk. A trained model has as many rows where it is judged.
    """
    if experiment.cluster.name == LOCAL and named.plan.has_stores:
        return None
    training = replace(named.workload, sparse_optimizer=experiment.optimizer.sparse.name)
    budget = psutil.virtual_memory().total * TABLES_SHARE_OF_MEMORY

    def size_bytes(most: int) -> int:
        cut = [table.with_rows(min(table.rows, most)) for table in named.tables]
        return sum(t.weight_bytes + training.table_state_bytes(t.rows, t.dim) for t in cut)

    largest = max(table.rows for table in named.tables)
    if size_bytes(largest) <= budget:
        return None
    low, high = 1, largest
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if size_bytes(middle) <= budget else (low, middle)
    return low


def this_machine(experiment: Experiment) -> Cluster:
    """The hosts and ranks of the launcher, with the figures on file."""
    return cluster_here(experiment.launcher.hosts, experiment.launcher.ranks_per_host)


def _planned(experiment: Experiment, inputs: PlanInputs, plan: ShardingPlan, hot_rows: bool = False) -> Planned:
    """`plan` with its steps, if it fits. `hot_rows`: of simulations. What trains here is counted."""
    check_fits(plan, inputs.workload, inputs.cluster)
    return lowered(experiment, inputs, plan, hot_rows)


def lowered(
    experiment: Experiment, inputs: PlanInputs, plan: ShardingPlan, hot_rows: bool = False, batch_number: float = math.inf
) -> Planned:
    """`plan` with its steps, whether it fits or not. `batch_number`: how many came before; inf: as in the long run."""
    executor = experiment.sharder.executor
    steps = lower(
        plan,
        inputs.access,
        inputs.precision,
        inputs.workload,
        exchange=executor.exchange,
        overlap=executor.overlap,
        sync=executor.sync,
        dense_sync=executor.dense_sync,
        hot_rows=hot_rows,
        in_flight=executor.in_flight,
        batch_number=batch_number,
    )
    files = files_of(plan, inputs.access, inputs.workload, executor.in_flight, batch_number) if plan.has_stores else None
    return Planned(inputs, plan, steps, executor, files)
