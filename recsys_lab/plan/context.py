"""What every scheme's lowering needs, and the input distribution that they share. The tables' own work is in table_work.py."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from recsys_lab.plan.sharding_plan import Placement, ShardingPlan
from recsys_lab.plan.steps import EMBEDDING, SIZES, Step, folded
from recsys_lab.plan.workload import Workload
from recsys_lab.precision import Precision
from recsys_lab.tables import AccessStatistics, Table
from recsys_lab.tables.spec import ELEMENT_BYTES, STORED_BYTES

ID_BYTES = ELEMENT_BYTES["int64"]  # values of a KeyedJaggedTensor
LENGTH_BYTES = ELEMENT_BYTES["int32"]
SPLIT_BYTES = ELEMENT_BYTES["int64"]
Groups: TypeAlias = Iterable[tuple[int, ...]]
Figures: TypeAlias = np.ndarray | float  # one a rank, or one for all
Rows: TypeAlias = tuple[Figures, Figures]  # numbers that travel, and in how many rows, which may each have a scale
#: What copies of a table in groups of ranks average: gradients before each update, or weights and optimizer state after it.
SYNCS = GRADIENTS, WEIGHTS = "gradients", "weights"
SPLIT_ROWS = 3  # what TorchRec exchanges first, per rank: how many lengths, how many values, the batch size


@dataclass(frozen=True)
class Context:
    """What `Scheme.lower` gets: the tables of one family of schemes, or a part of their rows.

    Attributes:
        prefix: begins the names of the steps.
        plan: the whole plan.
        placed: the tables to lower, with their placements; of a part, with its rows only.
        access: look-ups of those tables.
        precision: formats on the wire and in compute.
        workload: one iteration of one rank.
        exchange: how pooled rows of whole tables travel, of `EXCHANGES`.
        hot_rows: ranks that hold hot rows serve more look-ups than their share of the rows.
        in_flight: batches whose rows are in use at a time.
        batch_number: how many batches came before this one; inf: the long run, as caches and files are then.
        role: of the steps.
        at_home: every rank looks its own batch up and sends nothing.
        within: the groups of ranks within which ids and rows travel; empty: all ranks are one.
        averaged: several ranks hold the same rows, and gradients of all of them are averaged.
        sync: what copies of tables in groups of ranks average, of `SYNCS`.
    """

    prefix: str
    plan: ShardingPlan
    placed: tuple[tuple[Table, Placement], ...]
    access: AccessStatistics
    precision: Precision
    workload: Workload
    exchange: str = "all_to_all"
    hot_rows: bool = False
    in_flight: int = 1
    batch_number: float = math.inf
    role: str = EMBEDDING
    at_home: bool = False
    within: tuple[tuple[int, ...], ...] = ()
    averaged: bool = False
    sync: str = GRADIENTS

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The ranks among which ids and rows travel."""
        return self.within or (self.world,)

    @property
    def replicas(self) -> tuple[tuple[int, ...], ...]:
        """The ranks with the same place in each of those groups."""
        return tuple(zip(*self.groups))

    @property
    def group_batch(self) -> int:
        """Samples of all the ranks of a group."""
        return self.batch * len(self.groups[0])

    @property
    def is_sequence(self) -> bool:
        return all(table.pooling == "none" for table, _ in self.placed)

    @property
    def world(self) -> tuple[int, ...]:
        return tuple(range(self.plan.world_size))

    @property
    def hosts(self) -> tuple[tuple[int, ...], ...]:
        """The ranks of each host."""
        per_host = self.plan.ranks_per_host
        return tuple(tuple(range(h * per_host, (h + 1) * per_host)) for h in range(self.plan.hosts))

    @property
    def peers(self) -> tuple[tuple[int, ...], ...]:
        """The ranks of each local rank, one a host."""
        per_host = self.plan.ranks_per_host
        return tuple(tuple(range(local, self.plan.world_size, per_host)) for local in range(per_host))

    @property
    def batch(self) -> int:
        return self.workload.batch_size

    @property
    def global_batch(self) -> int:
        return self.batch * self.plan.world_size

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(table.name for table, _ in self.placed)

    @property
    def dedup(self) -> bool:
        """Whether equal ids of a rank's batch travel once. Of bags sums travel, whatever their ids. Nothing leaves a rank that is alone."""
        return self.workload.dedup and self.is_sequence and not self.at_home and len(self.groups[0]) > 1

    @cached_property
    def asked(self) -> AccessStatistics:
        """The look-ups that ranks ask for: all of `access`, or each row once in a rank's batch."""
        if not self.dedup:
            return self.access
        return AccessStatistics({name: self.access[name].once_a_batch(self.batch) for name in self.names})

    @property
    def ids_per_sample(self) -> float:
        return sum(self.asked[table.name].mean_length for table, _ in self.placed)

    @property
    def features(self) -> int:
        return sum(len(table.features) for table, _ in self.placed)

    @property
    def output_columns(self) -> int:
        """Columns of the pooled output of one sample, over all features."""
        return sum(len(table.features) * table.dim for table, _ in self.placed)

    def per_rank(self) -> np.ndarray:
        return np.zeros(self.plan.world_size)

    def in_memory(self, name: str, phase: str, moved: Figures, after: tuple[str, ...], flops: float = 0.0, role: str = EMBEDDING) -> Step:
        """Work of each rank on its own: bytes `moved`, and what it computes."""
        size, compute = folded(np.atleast_1d(moved)), self.precision.compute
        return Step(name, "dense", phase, size, flops=flops, after=after, tables=self.names, number_format=compute, role=role)

    def rows_there(self, kind: str, groups: Groups, sent: Rows, received: Rows | None = None, **where: Any) -> list[Step]:
        """Looked-up rows on their way to the ranks whose samples want them.

        Args:
            kind: the collective, such as "all_to_all".
            groups: the ranks of each group that exchanges.
            sent: (numbers, rows) of each rank, not bytes.
            received: likewise; None: as many as sent.
            where: the step's `name` behind the prefix, what it is `after`, and the `tables` whose rows they are, where they are not
                the usual.

        Returns:
            The step, or nothing where each group is a single rank.
        """
        usual = {"name": f"output.{kind}", "after": (f"{self.prefix}.lookup",), "tables": self.names}
        return self._travel("forward", self.precision.forward_bytes, kind, groups, sent, received, **usual | where)

    def gradients_back(self, kind: str, groups: Groups, sent: Rows, received: Rows | None = None, **where: Any) -> list[Step]:
        """The rows' gradients on their way back to the ranks that hold the rows.

        Args:
            kind: the collective, such as "all_to_all".
            groups: the ranks of each group that exchanges.
            sent: (numbers, rows) of each rank, not bytes.
            received: likewise; None: as many as sent.
            where: as of `rows_there`.

        Returns:
            The step, or nothing where each group is a single rank.
        """
        usual = {"name": f"gradient.{kind}", "after": ("dense.backward",), "tables": self.names}
        return self._travel("backward", self.precision.backward_bytes, kind, groups, sent, received, **usual | where)

    def _travel(self, phase: str, size: Callable, kind: str, groups: Groups, sent: Rows, received: Rows | None, **where: Any) -> list[Step]:
        summed = kind in ("reduce_scatter", "all_gather")
        name, received_bytes = f"{self.prefix}.{where['name']}", None if received is None else size(*received, summed)
        return collective(name, kind, phase, groups, size(*sent, summed), where["after"], where["tables"], received_bytes, self.role)


def behind(first: Step, steps: Sequence[Step]) -> list[Step]:
    """`steps` that wait for `first` where they waited for the dense arch's backward pass."""
    return [replace(step, after=tuple(first.name if name == "dense.backward" else name for name in step.after)) for step in steps]


def last_of(steps: Sequence[Step], otherwise: str) -> tuple[str, ...]:
    """The steps that no other one waits for."""
    return tuple(s.name for s in steps if not any(s.name in other.after for other in steps)) or (otherwise,)


def collective(
    name: str,
    kind: str,
    phase: str,
    groups: Groups,
    bytes_of_rank: Figures,
    after: tuple[str, ...],
    tables: tuple[str, ...],
    received: Figures | None = None,
    role: str = EMBEDDING,
) -> list[Step]:
    """The step, or nothing where no group exchanges anything: there is none, or each is a single rank."""
    groups = tuple(groups)
    if not groups or len(groups[0]) == 1:
        return []
    sent = folded(np.atleast_1d(bytes_of_rank))
    received_of_rank = () if received is None else folded(np.atleast_1d(received))
    differs = () if received_of_rank == sent else received_of_rank
    return [Step(name, kind, phase, sent, groups, after=after, tables=tables, received_of_rank=differs, role=role)]


def averaged_gradients(context: Context, after: tuple[str, ...]) -> list[Step]:
    """The all-reduce of the gradients of all rows among the ranks that hold the same ones. None where each shard is there once."""
    size = context.per_rank()
    for _, placement in context.placed:
        for shard in placement.shards:
            size[list(shard.ranks)] += context.precision.dense_comm_bytes * shard.rows * shard.cols
    name = f"{context.prefix}.gradient.all_reduce"
    return collective(name, "all_reduce", "backward", _holders(context), size, after, context.names, role=context.role)


def averaged_weights(context: Context) -> list[Step]:
    """After the update, in which each of the ranks that hold the same rows has moved them by its own gradients.

    Weights, then optimizer state, are all-reduced as they are stored. Nothing runs beside it (TorchRec's DMPCollection.sync).
    """
    weights, state = context.per_rank(), context.per_rank()
    for table, placement in context.placed:
        for shard in placement.shards:
            weights[list(shard.ranks)] += STORED_BYTES[table.dtype] * shard.rows * shard.cols
            state[list(shard.ranks)] += context.workload.table_state_bytes(shard.rows, shard.cols)
    steps, after = [], (f"{context.prefix}.update",)
    for what, size in (("weights", weights), ("state", state)):
        if size.any():
            name = f"{context.prefix}.{what}.all_reduce"
            steps += collective(name, "all_reduce", "optimizer", _holders(context), size, after, context.names, role=context.role)
            after = (name,)
    return [replace(step, blocks=True) for step in steps]


def input_distribution(
    context: Context,
    lengths_sent: float,
    ids_sent: float,
    lengths_received: np.ndarray,
    ids_received: np.ndarray,
    order: tuple[int, ...] | None = None,
    split_rows: int = SPLIT_ROWS,
) -> list[Step]:
    """Three exchanges in each group: split sizes, then lengths, then ids.

    Args:
        context: the scheme's tables and ranks.
        lengths_sent, ids_sent: numbers that each rank sends.
        lengths_received, ids_received: numbers of each rank [R].
        order: all ranks in the order in which they are one group; None: the context's groups.
        split_rows: rows of split sizes, TorchRec's unless given.

    Returns:
        The steps, in order; none where each group is a single rank.
    """
    prefix, groups, names = f"{context.prefix}.input", context.groups if order is None else (order,), context.names

    def exchange(what: str, sent: Figures, after: tuple[str, ...], received: np.ndarray | None, role: str) -> list[Step]:
        return collective(f"{prefix}.{what}", "all_to_all", "input", groups, sent, after, names, received, role)

    splits = exchange("splits", split_rows * len(groups[0]) * SPLIT_BYTES, (), None, SIZES)
    after = (f"{prefix}.splits",)
    lengths = exchange("lengths", lengths_sent * LENGTH_BYTES, after, lengths_received * LENGTH_BYTES, EMBEDDING)
    return [*splits, *lengths, *exchange("ids", ids_sent * ID_BYTES, after, ids_received * ID_BYTES, EMBEDDING)]


def copy_of_batch(tables: Iterable[Table], access: AccessStatistics, workload: Workload) -> Step:
    """A rank's samples on their way from the host's memory to the device: ids, lengths, dense features and the label."""
    ids = sum(access[table.name].mean_length * ID_BYTES + len(table.features) * LENGTH_BYTES for table in tables)
    sample = ids + (workload.dense_features + 1) * ELEMENT_BYTES["fp32"]
    return Step("input.copy", "host_to_device", "input", (float(workload.batch_size * sample),))


def _holders(context: Context) -> list[tuple[int, ...]]:
    """The groups of ranks that hold the same shards, where they hold any."""
    held = {shard.ranks for _, placement in context.placed for shard in placement.shards}
    return [ranks for ranks in context.replicas if ranks in held]
