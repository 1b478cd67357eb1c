"""row_wise: the rows of a table are split over all ranks. Pooled parts are summed and handed out by a reduce-scatter.

As TorchRec's RwPooledEmbeddingSharding does it; its backward is an all-gather.
"""

from __future__ import annotations

from recsys_lab.plan.lower.context import Context, collective, input_distribution, lookups_of_ranks, table_steps
from recsys_lab.plan.steps import Step


def lower_all_ranks(context: Context) -> tuple[list[Step], list[Step]]:
    """(input and forward, backward) steps. Every feature has a length on every rank; each id goes to the rank with its row."""
    world, batch = len(context.world), context.batch
    lengths = context.features * world * batch
    inputs = input_distribution(context, lengths, context.ids_per_sample * batch, lengths + context.per_rank(), lookups_of_ranks(context))
    scheme, names, precision = context.scheme, context.names, context.precision
    forward = collective(
        f"{scheme}.output.reduce_scatter",
        "reduce_scatter",
        "forward",
        [context.world],
        context.output_columns * context.global_batch * precision.forward_comm_bytes,
        (f"{scheme}.lookup",),
        names,
    )
    backward = collective(
        f"{scheme}.gradient.all_gather",
        "all_gather",
        "backward",
        [context.world],
        context.output_columns * batch * precision.backward_comm_bytes,
        ("dense.backward",),
        names,
    )
    lookup, update = table_steps(context, tuple(s.name for s in inputs[1:]), tuple(s.name for s in backward) or ("dense.backward",))
    return [*inputs, lookup, *forward], [*backward, update]
