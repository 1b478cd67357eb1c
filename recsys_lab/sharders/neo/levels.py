"""4D parallelism by level of the hierarchy (Neo, sections 4 and 4.1). There is one rule for the hosts, one for the ranks within a host.

A rule says how what a level is given is divided among its members: `table` gives it to one of them whole, `row` and `column` cut it, `data`
gives all of it to each. Table-row-wise, the paper's example, gives a table to one host and cuts its rows over that host's ranks.
"""

from __future__ import annotations

from recsys_lab.schemes.in_host import GRID_SHARD, TABLE_ROW_WISE
from recsys_lab.schemes.replicated import DATA_PARALLEL
from recsys_lab.schemes.row_blocks import ROW_WISE
from recsys_lab.schemes.tiers import FLEXSHARD
from recsys_lab.schemes.whole import COLUMN_WISE, TABLE_COLUMN_WISE, TABLE_WISE

#: (rule of the hosts, rule of a host's ranks) -> the scheme of the plan. Others have no exchange here.
SCHEME_OF_RULES = {
    ("table", "table"): TABLE_WISE,
    ("table", "row"): TABLE_ROW_WISE,
    ("table", "column"): TABLE_COLUMN_WISE,
    ("column", "column"): COLUMN_WISE,
    ("column", "row"): GRID_SHARD,
    ("row", "row"): ROW_WISE,
    ("data", "data"): DATA_PARALLEL,
    ("data", "row"): FLEXSHARD,  # all rows in the host-sharded tier
}
SCHEMES = tuple(SCHEME_OF_RULES.values())
#: What tables may have where nobody says more.
OF_TORCHREC = tuple(scheme for scheme in SCHEMES if scheme != FLEXSHARD)
RULES_OF_SCHEME = {scheme: rules for rules, scheme in SCHEME_OF_RULES.items()}
#: A piece is a host's, not a rank's: all of its ranks hold a part.
OF_HOSTS = (TABLE_ROW_WISE, TABLE_COLUMN_WISE, GRID_SHARD)
#: There is nothing to place: every rank holds a part.
OF_ALL = (ROW_WISE, DATA_PARALLEL, FLEXSHARD)
#: Sequences are exchanged under these.
OF_SEQUENCES = (TABLE_WISE, COLUMN_WISE, ROW_WISE, DATA_PARALLEL, FLEXSHARD)
