"""The rows of a table, or of its column shards, split over the ranks of one host.

Pooled parts are reduce-scattered within the host, then travel between peers in an all-to-all, as TorchRec's
TwRwPooledEmbeddingSharding and GridPooledEmbeddingSharding do it; backward in the opposite order, with an all-gather.
"""

from __future__ import annotations

import numpy as np

from recsys_lab.plan.context import Context, collective, input_distribution, lookups_of_ranks, table_steps
from recsys_lab.plan.steps import Step


def lower_in_host(context: Context) -> tuple[list[Step], list[Step]]:
    """(input and forward, backward) steps. A feature goes once to each column shard of its table, bucketed over the host's ranks."""
    hosts, per_host, batch = context.plan.hosts, context.plan.ranks_per_host, context.batch
    features, columns, ids_sent = np.zeros(hosts), np.zeros(hosts), 0.0
    for table, placement in context.placed:
        for host, col_start, cols in {(s.ranks[0] // per_host, s.col_start, s.cols) for s in placement.shards}:
            del col_start  # in the set only to tell two column shards on one host apart
            features[host] += len(table.features)
            columns[host] += len(table.features) * cols
            ids_sent += context.access[table.name].mean_length * batch
    on_rank = np.repeat(np.arange(hosts), per_host)  # rank -> host
    inputs = input_distribution(
        context, features.sum() * per_host * batch, ids_sent, features[on_rank] * context.global_batch, lookups_of_ranks(context)
    )
    prefix, names, precision = context.prefix, context.names, context.precision
    of_host = columns[on_rank]  # columns that the rank's host holds
    of_all = context.output_columns + context.per_rank()

    def exchange(name: str, phase: str, sent: np.ndarray, received: np.ndarray, element: int, after: str) -> list[Step]:
        return collective(name, "all_to_all", phase, context.peers, sent * element, (after,), names, received * element)

    reduced = collective(
        f"{prefix}.output.reduce_scatter",
        "reduce_scatter",
        "forward",
        context.hosts,
        of_host * context.global_batch * precision.forward_comm_bytes,
        (f"{prefix}.lookup",),
        names,
    )
    after = reduced[-1].name if reduced else f"{prefix}.lookup"
    spread = exchange(
        f"{prefix}.output.all_to_all", "forward", of_host * hosts * batch, of_all * batch, precision.forward_comm_bytes, after
    )
    returned = exchange(
        f"{prefix}.gradient.all_to_all",
        "backward",
        of_all * batch,
        of_host * hosts * batch,
        precision.backward_comm_bytes,
        "dense.backward",
    )
    gathered = collective(
        f"{prefix}.gradient.all_gather",
        "all_gather",
        "backward",
        context.hosts,
        of_host * hosts * batch * precision.backward_comm_bytes,
        (returned[-1].name if returned else "dense.backward",),
        names,
    )
    backward = [*returned, *gathered]
    lookup, update = table_steps(context, tuple(s.name for s in inputs[1:]), tuple(s.name for s in backward[-1:]) or ("dense.backward",))
    return [*inputs, lookup, *reduced, *spread], [*backward, update]
