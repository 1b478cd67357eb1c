"""Rows in blocks over a group of ranks: all ranks, or, of FlexShard's host-sharded tier, those of each host.

As TorchRec does it. Pooled parts are summed and handed out by a reduce-scatter, whose backward is an all-gather; the rows of a
sequence travel as they are, in an all-to-all each way. Replicas of a block (one a host) all-reduce their gradients.
"""

from __future__ import annotations

from recsys_lab.plan.context import Context, collective, input_distribution, lookups_of_ranks, table_steps
from recsys_lab.plan.steps import Step


def lower_row_blocks(context: Context) -> tuple[list[Step], list[Step]]:
    """(input and forward, backward) steps. Every feature has a length on every rank; each id goes to the rank with its row."""
    batch, prefix, names = context.batch, context.prefix, context.names
    lengths = context.features * context.group_batch
    served = lookups_of_ranks(context)
    inputs = input_distribution(context, lengths, context.ids_per_sample * batch, lengths + context.per_rank(), served)
    exchange = _rows_travel if context.is_sequence else _sums_travel
    forward, backward = exchange(context)
    last = tuple(s.name for s in backward) or ("dense.backward",)
    if context.averaged:
        gradient = context.per_rank()
        for table, placement in context.placed:
            for shard in placement.shards:
                gradient[list(shard.ranks)] += context.precision.dense_comm_bytes * shard.rows * table.dim  # of all rows
        backward += collective(
            f"{prefix}.gradient.all_reduce", "all_reduce", "backward", context.peers, gradient, last, names, role=context.role
        )
        last = tuple(s.name for s in backward[-1:]) or last
    lookup, update = table_steps(context, tuple(s.name for s in inputs[1:]), last)
    return [*inputs, lookup, *forward], [*backward, update]


def _sums_travel(context: Context) -> tuple[list[Step], list[Step]]:
    """Pooled parts of every sample of the group, whatever its ids."""
    prefix, names, precision, columns = context.prefix, context.names, context.precision, context.output_columns
    forward = collective(
        f"{prefix}.output.reduce_scatter",
        "reduce_scatter",
        "forward",
        context.groups,
        columns * context.group_batch * precision.forward_comm_bytes,
        (f"{prefix}.lookup",),
        names,
        role=context.role,
    )
    backward = collective(
        f"{prefix}.gradient.all_gather",
        "all_gather",
        "backward",
        context.groups,
        columns * context.batch * precision.backward_comm_bytes,
        ("dense.backward",),
        names,
        role=context.role,
    )
    return forward, backward


def _rows_travel(context: Context) -> tuple[list[Step], list[Step]]:
    """A row for each look-up: D columns a look-up, which all tables of a sequence model share."""
    prefix, names, precision, dim = context.prefix, context.names, context.precision, context.placed[0][0].dim
    held = lookups_of_ranks(context) * dim
    wanted = context.per_rank() + context.ids_per_sample * context.batch * dim
    forward = collective(
        f"{prefix}.output.all_to_all",
        "all_to_all",
        "forward",
        context.groups,
        held * precision.forward_comm_bytes,
        (f"{prefix}.lookup",),
        names,
        wanted * precision.forward_comm_bytes,
        role=context.role,
    )
    backward = collective(
        f"{prefix}.gradient.all_to_all",
        "all_to_all",
        "backward",
        context.groups,
        wanted * precision.backward_comm_bytes,
        ("dense.backward",),
        names,
        held * precision.backward_comm_bytes,
        role=context.role,
    )
    return forward, backward
