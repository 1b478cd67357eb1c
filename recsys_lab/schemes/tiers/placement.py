"""A table row by row (arXiv 2301.02959, section 4.4). Its hottest rows are on every rank, the next once in every host, the others once."""

from __future__ import annotations

from collections.abc import Iterator

from recsys_lab.errors import UserError
from recsys_lab.plan.sharding_plan import Placement, Shard, ShardingPlan, even_blocks
from recsys_lab.tables import Table
from recsys_lab.tables.tiers import HOST_SHARDED, REPLICATED, ROW_SHARDED, TIERS

FLEXSHARD = "flexshard"


def holders(hosts: int, ranks_per_host: int) -> dict[str, list[tuple[int, ...]]]:
    """By tier, the groups of ranks that hold the same rows, block after block."""
    world = tuple(range(hosts * ranks_per_host))
    return {
        REPLICATED: [world],
        HOST_SHARDED: [world[local::ranks_per_host] for local in range(ranks_per_host)],
        ROW_SHARDED: [(rank,) for rank in world],
    }


def in_tiers(table: Table, replicated: int, in_host: int, hosts: int, ranks_per_host: int) -> Placement:
    """`replicated` rows, then `in_host` rows, then the rest, numbered after the remapping. Within a tier, blocks of ceil(rows / holders),
    the last short or empty.
    """
    sizes = {REPLICATED: replicated, HOST_SHARDED: in_host, ROW_SHARDED: table.rows - replicated - in_host}
    shards, begin = [], 0
    for tier, groups in holders(hosts, ranks_per_host).items():
        rows = sizes[tier]
        for ranks, (first, last) in zip(groups, even_blocks(rows, len(groups)) if rows else []):
            shards.append(Shard(ranks, begin + first, begin + last, 0, table.dim, tier))
        begin += rows
    return Placement(table.name, FLEXSHARD, tuple(shards))


def validate(where: str, table: Table, placement: Placement, plan: ShardingPlan) -> None:
    """The tiers lie one after the other, each in equal blocks over the groups of ranks that hold its rows. Raises UserError."""
    shards, groups = placement.shards, holders(plan.hosts, plan.ranks_per_host)
    if unknown := sorted({shard.tier for shard in shards} - set(TIERS)):
        raise UserError("unknown tier", where=where, given=unknown[0] or "none", allowed=", ".join(TIERS))
    begin = 0
    for tier in TIERS:
        own = [shard for shard in shards if shard.tier == tier]
        rows = sum(shard.rows for shard in own)
        if own and [shard.ranks for shard in own] != groups[tier]:
            raise UserError(
                f"the {tier} tier is held by other ranks", where=where, given=[s.ranks for s in own][:4], allowed=groups[tier][:4]
            )
        for number, (shard, (first, last)) in enumerate(zip(own, even_blocks(rows, len(groups[tier])))):
            if (shard.row_start, shard.row_stop) != (begin + first, begin + last) or shard.cols != table.dim:
                raise UserError(
                    f"block {number} of the {tier} tier must hold rows {begin + first} to {begin + last}, all columns",
                    where=where,
                    given=shard.extent,
                )
        begin += rows


def served_ranks(shard: Shard, plan: ShardingPlan) -> int:
    """Of how many ranks a holder of `shard` looks the samples up."""
    return {REPLICATED: 0, HOST_SHARDED: plan.ranks_per_host}.get(shard.tier, plan.world_size)


#: Shares of the replicated and of the host-sharded rows: three tiers, two of them, one alone.
EXAMPLES = ((1 / 5, 1 / 4), (1 / 2, 1 / 2), (1 / 3, 0.0), (0.0, 1.0), (0.0, 0.0), (1.0, 0.0))


def reference_cases(tables: tuple[Table, ...], hosts: int, ranks_per_host: int) -> Iterator[ShardingPlan]:
    """Every table in all tiers. Then tables in fewer, each in others."""

    def example(table: Table, shares: tuple[float, float]) -> Placement:
        replicated = int(table.rows * shares[0])
        in_host = min(int(table.rows * shares[1] + 0.5), table.rows - replicated)
        return in_tiers(table, replicated, in_host, hosts, ranks_per_host)

    for first, step in ((0, 0), (1, 1)):
        placements = tuple(example(t, EXAMPLES[(first + step * i) % len(EXAMPLES)]) for i, t in enumerate(tables))
        yield ShardingPlan("reference", hosts, ranks_per_host, tables, placements)
