"""Whole tables exchanged by scatters, as the CPU DLRM paper does (Kalamkar et al. 2020, section IV-B), in place of an all-to-all.

A scatter's root puts in the pooled rows of all samples, the others nothing; each takes out those of its own samples. Back, a gather: each
rank puts in its samples' gradients, and the root takes out all of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from recsys_lab.errors import UserError
from recsys_lab.plan.context import Context, collective
from recsys_lab.plan.sharding_plan import ShardingPlan
from recsys_lab.plan.steps import Step

#: How pooled rows of whole tables travel: TorchRec's way, a scatter a table, a scatter a rank.
EXCHANGES = ("all_to_all", "scatter_list", "fused_scatter")
WHOLE_TABLES = ("table_wise", "data_parallel")


def check_exchange(plan: ShardingPlan, exchange: str, overlap: bool) -> None:
    """Raises UserError for an exchange that does not exist, or that is not for this plan's tables."""
    if exchange not in EXCHANGES:
        raise UserError("no such exchange", where="sharder.executor.exchange", given=exchange, allowed=", ".join(EXCHANGES))
    if (exchange == "all_to_all" and overlap) or plan.world_size == 1:
        return
    for table, placement in plan.by_table.values():
        if placement.scheme not in WHOLE_TABLES or table.pooling == "none":
            raise UserError(
                "this exchange is for pooled tables that lie whole on a rank",
                where=f"sharder.executor.{'overlap' if exchange == 'all_to_all' else 'exchange'}",
                given=f"table {table.name} is {'a sequence' if table.pooling == 'none' else placement.scheme}",
                allowed=", ".join(WHOLE_TABLES),
                remedy="sharder=torchrec 'sharder.planner.sharding_types=[table_wise,data_parallel]', or exchange all_to_all with overlap",
            )


def scattered(context: Context) -> tuple[list[Step], list[Step]]:
    """(forward, backward) steps of the exchange."""
    scheme, precision = context.scheme, context.precision
    forward: list[Step] = []
    backward: list[Step] = []
    for piece, root, columns, tables in _pieces(context):
        all_rows, own_rows = context.per_rank(), context.per_rank() + columns * context.batch
        all_rows[root] = columns * context.global_batch
        forward += collective(
            f"{scheme}.output.scatter.{piece}",
            "scatter",
            "forward",
            [context.world],
            all_rows * precision.forward_comm_bytes,
            (f"{scheme}.lookup",),
            tables,
            own_rows * precision.forward_comm_bytes,
        )
        backward += collective(
            f"{scheme}.gradient.gather.{piece}",
            "gather",
            "backward",
            [context.world],
            own_rows * precision.backward_comm_bytes,
            ("dense.backward",),
            tables,
            all_rows * precision.backward_comm_bytes,
        )
    return forward, backward


def _pieces(context: Context) -> Iterator[tuple[str, int, int, tuple[str, ...]]]:
    """(name, root, columns, tables) of each scatter, rank after rank."""
    for rank in context.world:
        held = [(t.name, len(t.features) * s.cols) for t, p in context.placed for s in p.shards if s.ranks[0] == rank]
        if context.exchange == "scatter_list":
            yield from ((name, rank, columns, (name,)) for name, columns in held)
        elif held:
            yield f"rank_{rank}", rank, sum(columns for _, columns in held), tuple(name for name, _ in held)
