"""Rows in blocks over a group of ranks: row_wise and FlexShard's row-sharded tier over all ranks, its host-sharded tier within each host.

As TorchRec does it. Pooled parts are summed and handed out by a reduce-scatter, whose backward is an all-gather; the rows of a
sequence travel as they are, in an all-to-all each way. Replicas of a block (one a host) all-reduce their gradients.
"""

from __future__ import annotations

from recsys_lab.plan.context import Context, collective, input_distribution, lookups_of_ranks, table_steps
from recsys_lab.plan.steps import Step


def lower_row_blocks(context: Context) -> tuple[list[Step], list[Step]]:
    """(input and forward, backward) steps. Every feature has a length on every rank; each id goes to the rank with its row."""
    batch, scheme, names = context.batch, context.scheme, context.names
    lengths = context.features * context.group_batch
    served = lookups_of_ranks(context)
    inputs = input_distribution(context, lengths, context.ids_per_sample * batch, lengths + context.per_rank(), served)
    exchange = _rows_travel if context.is_sequence else _sums_travel
    forward, backward = exchange(context)
    last = tuple(s.name for s in backward) or ("dense.backward",)
    if scheme == "host_sharded":
        gradient = context.per_rank()
        for table, placement in context.placed:
            for shard in placement.shards:
                gradient[list(shard.ranks)] += context.precision.dense_comm_bytes * shard.rows * table.dim  # of all rows
        backward += collective(f"{scheme}.gradient.all_reduce", "all_reduce", "backward", context.peers, gradient, last, names)
        last = tuple(s.name for s in backward[-1:]) or last
    lookup, update = table_steps(context, tuple(s.name for s in inputs[1:]), last)
    return [*inputs, lookup, *forward], [*backward, update]


def _sums_travel(context: Context) -> tuple[list[Step], list[Step]]:
    """Pooled parts of every sample of the group, whatever its ids."""
    scheme, names, precision, columns = context.scheme, context.names, context.precision, context.output_columns
    forward = collective(
        f"{scheme}.output.reduce_scatter",
        "reduce_scatter",
        "forward",
        context.groups,
        columns * context.group_batch * precision.forward_comm_bytes,
        (f"{scheme}.lookup",),
        names,
    )
    backward = collective(
        f"{scheme}.gradient.all_gather",
        "all_gather",
        "backward",
        context.groups,
        columns * context.batch * precision.backward_comm_bytes,
        ("dense.backward",),
        names,
    )
    return forward, backward


def _rows_travel(context: Context) -> tuple[list[Step], list[Step]]:
    """A row for each look-up: D columns a look-up, which all tables of a sequence model share."""
    scheme, names, precision, dim = context.scheme, context.names, context.precision, context.placed[0][0].dim
    held = lookups_of_ranks(context) * dim
    wanted = context.per_rank() + context.ids_per_sample * context.batch * dim
    forward = collective(
        f"{scheme}.output.all_to_all",
        "all_to_all",
        "forward",
        context.groups,
        held * precision.forward_comm_bytes,
        (f"{scheme}.lookup",),
        names,
        wanted * precision.forward_comm_bytes,
    )
    backward = collective(
        f"{scheme}.gradient.all_to_all",
        "all_to_all",
        "backward",
        context.groups,
        wanted * precision.backward_comm_bytes,
        ("dense.backward",),
        names,
        held * precision.backward_comm_bytes,
    )
    return forward, backward
