"""The plan: which rows and columns of which table live on which ranks. Frozen data, no modules, tensors or costs."""

from recsys_lab.plan.sharding_plan import Placement, Shard, ShardingPlan
from recsys_lab.plan.steps import Step, Steps
from recsys_lab.plan.workload import Workload

__all__ = ["Placement", "Shard", "ShardingPlan", "Step", "Steps", "Workload"]
