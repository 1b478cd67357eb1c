"""Where the tiers of a plan begin, and what decided it."""

from __future__ import annotations

from recsys_lab.sharders.flexshard.allocate import Split, Trade
from recsys_lab.sharders.flexshard.costs import break_point, flex, replication, row_sharding
from recsys_lab.sharders.flexshard.reasons import ALL_ROWS, Boundary
from recsys_lab.tables.tiers import HOST_SHARDED, ROW_SHARDED

Decided = tuple[str, float | None]  # what decided, and the break-point's p if it was one
BUDGET_SPENT: Decided = ("the memory budget is spent", None)


def boundaries_of(trade: Trade, split: Split, aligned: Split, goal: str, optimal: bool) -> tuple[Boundary, ...]:
    """Where the host-sharded tier (if it has rows) and the row-sharded tier begin in `aligned`, which is `split` but for alignment.

    `optimal`: three tiers were chosen for the least communication.
    """
    setting, total = trade.setting, trade.rows.total
    hot, both = split.replicated, split.replicated + split.in_host
    replica_memory: Decided = (
        "from here a replica takes more memory than it saves",
        break_point(replication, row_sharding, "memory_bytes", setting),
    )
    replica_time: Decided = (
        "from here a replica takes longer than row-sharding",
        break_point(replication, row_sharding, "communication_ms", setting),
    )
    flex_time: Decided = (
        "from here host-sharding takes longer than row-sharding",
        break_point(flex, row_sharding, "communication_ms", setting),
    )
    least_time: Decided = "the least communication" + (" within the memory budget" if goal == "memory_neutral" else ""), None
    begins, ends = replica_memory, BUDGET_SPENT
    if optimal:
        begins = ends = least_time
    elif split.in_host:
        if hot > trade.least_memory():
            begins = "the memory budget is spent, or host-sharding takes less time", None
        ends = flex_time if both >= trade.worth_host_sharding() else ("the memory that the replicas save is spent", None)
    elif goal == "max_memory_savings":
        ends = replica_memory
    elif hot == trade.least_communication():
        ends = replica_time

    def boundary(tier: str, row: int, decided: Decided) -> Boundary:
        return Boundary(tier, row, trade.rows.p_of(row), *(decided if row < total else (ALL_ROWS, None)))

    middle = [boundary(HOST_SHARDED, aligned.replicated, begins)] if aligned.in_host else []
    return *middle, boundary(ROW_SHARDED, aligned.replicated + aligned.in_host, ends)
