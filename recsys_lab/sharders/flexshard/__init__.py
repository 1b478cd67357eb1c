"""FlexShard's planner (arXiv 2301.02959): which rows are replicated, host-sharded and row-sharded, and why.

`planner`: `FlexShard`: the options, the plan, its tiers on other ranks, and its reasons.
`whole_tables`: places what is not cut by row.
`bandwidths`: table 1: the four that follow from a cluster's links.
`costs`: tables 2 and 3: what rows cost in each tier, and where two tiers cost the same.
`table_costs`: what a whole table costs.
`rows`: the rows of all tables in falling frequency.
`allocate`: how many rows each tier gets.
`exact`: the same for rows in any order, without sorting them.
`pareto`: figure 5: points and curve of the trade-off.
`reasons`: a plan's reasons in words.
`boundaries`: what decided where a tier begins.
`flips`: what would have to change.
"""

from recsys_lab.sharders.flexshard.planner import FlexShard
from recsys_lab.sharders.flexshard.reasons import COLUMNS, Reasons, alternative_rows, sentences

__all__ = ["COLUMNS", "FlexShard", "Reasons", "alternative_rows", "sentences"]
