"""Every rank holds all the rows, and all gradients are all-reduced. The table is replicated, or in FlexShard's replicated tier."""

from __future__ import annotations

from dataclasses import replace

from recsys_lab.plan.context import Context, collective
from recsys_lab.plan.steps import Step
from recsys_lab.plan.table_work import iteration


def lower_replicated(context: Context) -> tuple[list[Step], list[Step]]:
    """(forward, backward) steps. The gradient has all rows, whatever the table's format."""
    context = replace(context, at_home=True, averaged=True)
    size, after = context.precision.dense_comm_bytes * sum(table.parameters for table, _ in context.placed), ("dense.backward",)
    name = f"{context.prefix}.gradient.all_reduce"
    return iteration(context, [], [], collective(name, "all_reduce", "backward", [context.world], size, after, context.names))
