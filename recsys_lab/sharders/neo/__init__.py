"""Neo's 4D parallelism (Mudigere et al. 2022, arXiv 2104.05158, section 4): table-, row-, column-wise and data-parallel, table by table.

`planner`: `Neo4D`: the options, the plan and its reasons.
`levels`: 4, 4.1: a rule for the hosts and one for the ranks within a host make a scheme.
`costs`: 4.1: what a shard costs its rank, from communication volume and from the rows that it looks up.
`cuts`: the ways to cut a table, each with its pieces and their costs.
`choose`: which way a table is cut, when no piece may cost more than a limit.
`assign`: all pieces on their ranks: the plan of chosen cuts, with its costs.
`placement`: 4.1: pieces to ranks, by the greedy heuristic and by the largest differencing method (Karmarkar-Karp).
`repair`: pieces moved off ranks that would lack memory, and so that look-up and exchange are each even.
`bound`: what no placement, and no plan at all, can be better than.
`reasons`: the costs of the plan, its bounds, and what other choices would cost.
"""

from recsys_lab.sharders.neo.planner import Neo4D
from recsys_lab.sharders.neo.reasons import Reasons

__all__ = ["Neo4D", "Reasons"]
