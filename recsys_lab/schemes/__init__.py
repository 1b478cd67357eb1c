"""Sharding schemes: one folder for each way to lay a table out.

Each has the same faces: `placement` says where shards are, also in reference cases. `lower` gives the steps of an iteration. `execute` runs
it where TorchRec's collection alone does not; no other file imports torch. Words explain it. Its `__init__` puts them together as
`SCHEMES`.

    replicated   every rank holds the table
    whole        whole tables and column shards, each on one rank
    row_blocks   rows in equal blocks over all ranks
    in_host      rows or columns over the ranks of a host
    tiers        FlexShard: row by row, hot rows in more places than cold ones
    towers       DMT: tables on the hosts of their feature's tower
"""
