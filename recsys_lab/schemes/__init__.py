"""Sharding schemes: one folder for each way to lay a table out.

Each has the same faces, which its `__init__` puts together as `SCHEMES`, with its words.

- `placement`: Where shards are, also in reference cases.
- `lower`: The steps of an iteration.
- `execute`: How it really runs, where TorchRec's collection alone does not do it. No other file imports torch.

    replicated   every rank holds the table
    whole        whole tables and column shards, each on one rank
    row_blocks   rows in equal blocks over all ranks
    in_host      rows or columns over the ranks of a host
    tiers        FlexShard: row by row, hot rows in more places than cold ones
    towers       DMT: tables on the hosts of their feature's tower
"""
