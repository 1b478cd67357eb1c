"""What every sharder is: a frozen dataclass of its options. It plans, adapts a plan to other ranks, and gives its reasons."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol

from recsys_lab.cluster import Cluster
from recsys_lab.plan import ShardingPlan, Workload
from recsys_lab.precision import Precision
from recsys_lab.tables import AccessStatistics, Table


@dataclass(frozen=True)
class PlanInputs:
    """What a plan is made from.

    Attributes:
        tables: rows, columns and formats, in the model's order.
        access: look-ups a sample of each table, and how they fall over its rows.
        cluster: every figure of hardware; there are no defaults.
        precision: formats of storage, compute and exchanges.
        workload: one iteration of one rank, with the batch size.
        towers: groups of features, for a sharder that has towers.
    """

    tables: tuple[Table, ...]
    access: AccessStatistics
    cluster: Cluster
    precision: Precision
    workload: Workload
    towers: tuple[tuple[str, ...], ...] = ()


class Reasons(Protocol):
    """Why a plan is as it is."""

    def to_json(self) -> dict[str, Any]:
        """Every figure behind it."""

    def explanation(self) -> dict[str, Any]:
        """For people.

        Returns:
            {sentences, columns, rows, note}: sentences, a table of what was compared, and what its columns are.
        """


class Sharder(ABC):
    """A planner with its options as fields, the keys of `sharder.planner` in its YAML. Pure: no process group, no GPU."""

    @abstractmethod
    def plan(self, inputs: PlanInputs) -> ShardingPlan:
        """Places every table. The same inputs give the same plan.

        Args:
            inputs: all that it may depend on.

        Returns:
            A plan with one placement for each table, in their order.

        Raises:
            UserError: for options that cannot be.
            PlanDoesNotFit: where a rank lacks memory (`recsys_lab.plan.memory.check_fits`).
        """

    def adapt(self, named: PlanInputs, here: PlanInputs) -> ShardingPlan:
        """A plan for the ranks that train here. By default it is `plan(here)`.

        Args:
            named: the inputs of the plan that was asked for.
            here: those of the ranks that stand in for the named cluster.

        Returns:
            A plan for the ranks of `here`.
        """
        return self.plan(here)

    def reasons(self, plan: ShardingPlan, inputs: PlanInputs) -> Reasons | None:
        """Why a plan is as it is, for `show RUN --plan`.

        Args:
            plan: one of this sharder's.
            inputs: those that it was made from.

        Returns:
            The reasons; None where the sharder cannot say.
        """
        return None
