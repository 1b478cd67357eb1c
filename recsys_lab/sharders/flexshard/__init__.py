"""FlexShard's planner (arXiv 2301.02959): which rows are replicated, host-sharded and row-sharded, and why.

bandwidths  table 1: the four that follow from a cluster's links
costs       tables 2 and 3: what rows cost in each tier, and where two tiers cost the same
rows        the rows of all tables in falling frequency
allocate    how many rows each tier gets; exact does the same for rows in any order, without sorting them
pareto      figure 5: points and curve of the trade-off
planner     `plan`, from tables to a ShardingPlan; whole_tables places those that are not cut by row
reasons     `reasons`: what decided, what else would cost (table_costs), what would flip it (flips); told: the same in words
"""

from recsys_lab.sharders.flexshard.planner import plan, same_tiers
from recsys_lab.sharders.flexshard.reasons import reasons
from recsys_lab.sharders.flexshard.told import COLUMNS, Reasons, alternative_rows, sentences

__all__ = ["COLUMNS", "Reasons", "alternative_rows", "plan", "reasons", "same_tiers", "sentences"]
