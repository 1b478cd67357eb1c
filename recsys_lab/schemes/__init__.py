"""Sharding schemes: one folder for each way to lay a table out.

Each has the same files: `placement` (where shards may be, and how they are made), `lower` (the steps of an iteration), `explain` (in words)
and `execute` (how it really runs, alone in importing torch); its `__init__` puts them together as `SCHEMES`.

replicated   every rank holds the table
whole        whole tables and column shards, each on one rank
row_blocks   rows in equal blocks over all ranks
in_host      rows or columns over the ranks of a host
tiers        FlexShard: row by row, hot rows in more places than cold ones
towers       DMT: tables on the hosts of their feature's tower
"""
