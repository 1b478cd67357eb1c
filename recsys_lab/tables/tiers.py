"""FlexShard's words for where a row lives (arXiv 2301.02959, section 4.4): on every rank, once a host, or once.

Every plan is summed up in them. A row of a replicated table is in the first tier. A row of any other table that is placed whole is in the
last.
"""

REPLICATED = "replicated"
HOST_SHARDED = "host_sharded"
ROW_SHARDED = "row_sharded"
#: Rows of a table lie tier after tier, in this order.
TIERS = (REPLICATED, HOST_SHARDED, ROW_SHARDED)
