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
    """What a plan is made from. `towers`: groups of features, of a sharder that has towers."""

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

    def told(self) -> dict[str, Any]:
        """For people: {sentences, columns, rows}."""


class Sharder(ABC):
    """A planner with its options as fields, the keys of `sharder.planner` in its YAML. Pure: no process group, no GPU."""

    @abstractmethod
    def plan(self, inputs: PlanInputs) -> ShardingPlan:
        """The same inputs give the same plan. Raises UserError for options that cannot be, PlanDoesNotFit."""

    def adapt(self, named: PlanInputs, here: PlanInputs) -> ShardingPlan:
        """The plan for `here`, whose ranks stand in for those of the `named` cluster."""
        return self.plan(here)

    def reasons(self, plan: ShardingPlan, inputs: PlanInputs) -> Reasons | None:
        """Why `plan`, made of `inputs`, is as it is; None where the sharder cannot say."""
        return None
