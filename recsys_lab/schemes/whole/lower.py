"""Shards with all rows, each on one rank.

Pooled outputs, or the rows of a sequence, travel in an all-to-all: TorchRec's TwPooledEmbeddingSharding, its sequence form, and their
column-wise children. Whole tables may travel in scatters instead (scatter.py).
"""

from __future__ import annotations

from recsys_lab.plan.context import Context, input_distribution, iteration
from recsys_lab.plan.scheme import ALL_TO_ALL
from recsys_lab.plan.steps import Step
from recsys_lab.schemes.whole.scatter import scattered
from recsys_lab.tables import Table


def lower_whole(context: Context) -> tuple[list[Step], list[Step]]:
    """(input and forward, backward) steps. A feature goes once to each column shard of its table."""

    def vectors(table: Table) -> float:
        """That come back for a sample: one a feature, or one a look-up of a sequence."""
        return context.access[table.name].mean_length if context.is_sequence else len(table.features)

    lengths, ids, columns = context.per_rank(), context.per_rank(), context.per_rank()
    for table, placement in context.placed:
        for shard in placement.shards:
            rank = shard.ranks[0]
            lengths[rank] += len(table.features)
            ids[rank] += context.access[table.name].mean_length
            columns[rank] += vectors(table) * shard.cols
    everyone = context.global_batch
    inputs = input_distribution(context, lengths.sum() * context.batch, ids.sum() * context.batch, lengths * everyone, ids * everyone)
    if context.exchange == ALL_TO_ALL:
        held = columns * context.global_batch
        wanted = context.per_rank() + context.batch * sum(vectors(table) * table.dim for table, _ in context.placed)
        forward = context.rows_there("all_to_all", [context.world], held, wanted)
        backward = context.gradients_back("all_to_all", [context.world], wanted, held)
    else:
        forward, backward = scattered(context)
    return iteration(context, inputs, forward, backward)
