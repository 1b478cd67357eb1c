"""The rows of a table, or of its column shards, split over the ranks of one host.

Pooled parts are reduce-scattered within the host, then travel between peers in an all-to-all. The backward pass goes in the opposite order,
with an all-gather. TorchRec's TwRwPooledEmbeddingSharding and GridPooledEmbeddingSharding do the same.
"""

from __future__ import annotations

import numpy as np

from recsys_lab.plan.context import Context, input_distribution, last_of
from recsys_lab.plan.steps import Step
from recsys_lab.plan.table_work import iteration, lookups_of_ranks


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
    of_host = columns[on_rank]  # columns that the rank's host holds
    holds, samples = (columns > 0).astype(float), hosts * batch
    summed, own = (
        (of_host * samples, holds[on_rank] * samples),
        (np.full(len(of_host), context.output_columns * batch), holds.sum() * batch),
    )
    reduced = context.rows_there("reduce_scatter", context.hosts, (of_host * context.global_batch, context.global_batch))
    spread = context.rows_there("all_to_all", context.peers, summed, own, after=last_of(reduced, f"{context.prefix}.lookup"))
    returned = context.gradients_back("all_to_all", context.peers, own, summed)
    gathered = context.gradients_back("all_gather", context.hosts, summed, after=last_of(returned, "dense.backward"))
    return iteration(context, inputs, [*reduced, *spread], [*returned, *gathered])
