"""FlexShard's planner (arXiv 2301.02959): which rows are replicated, host-sharded and row-sharded, and why.

costs       tables 2 and 3: what rows cost in each tier, and where two tiers cost the same
rows        the rows of all tables in falling frequency
allocate    how many rows each tier gets
planner     `plan`, from tables to a ShardingPlan
"""

from recsys_lab.planners.flexshard.planner import plan

__all__ = ["plan"]
