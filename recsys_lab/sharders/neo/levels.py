"""4D parallelism by level of the hierarchy (Neo, sections 4 and 4.1): one rule for the hosts, one for the ranks within a host.

A rule says how what a level is given is divided among its members: `table` gives it to one of them whole, `row` and `column` cut it, `data`
gives all of it to each. Table-row-wise, the paper's example, gives a table to one host and cuts its rows over that host's ranks.
"""

from __future__ import annotations

#: (rule of the hosts, rule of a host's ranks) -> the scheme of the plan. Others have no exchange in TorchRec.
SCHEME_OF_RULES = {
    ("table", "table"): "table_wise",
    ("table", "row"): "table_row_wise",
    ("table", "column"): "table_column_wise",
    ("column", "column"): "column_wise",
    ("column", "row"): "grid_shard",
    ("row", "row"): "row_wise",
    ("data", "data"): "data_parallel",
}
SCHEMES = tuple(SCHEME_OF_RULES.values())
RULES_OF_SCHEME = {scheme: rules for rules, scheme in SCHEME_OF_RULES.items()}
#: A piece is a host's, not a rank's: all of its ranks hold a part.
OF_HOSTS = ("table_row_wise", "table_column_wise", "grid_shard")
#: There is nothing to place: every rank holds a part.
OF_ALL = ("row_wise", "data_parallel")
#: TorchRec exchanges sequences under these.
OF_SEQUENCES = ("table_wise", "row_wise", "data_parallel")
