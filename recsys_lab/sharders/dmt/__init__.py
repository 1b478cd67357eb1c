"""DMT's planner (Luo et al. 2024, arXiv 2403.00877): features into towers, towers onto ranks.

`names`: of the partitioner's choices.
`affinity`: 3.3: how alike features are over a probe of training, and where that puts them in a plane.
`partition`: 3.3: balanced groups of features by constrained K-means, and the naive strided groups.
`partition_file`: a partition saved, loaded, compared.
`towers`: `TowerOptions`: which features make which tower.
`volume`: 3.1.3: what a table moves, by how it is cut.
`place`: the tables of a site on its ranks.
`planner`: `DMT`: the options, the plan from towers on, and its reasons.
`reasons`: what a plan moves, and what other choices would.
"""

from recsys_lab.sharders.dmt.planner import DMT
from recsys_lab.sharders.dmt.reasons import Reasons
from recsys_lab.sharders.dmt.towers import TowerOptions

__all__ = ["DMT", "Reasons", "TowerOptions"]
