"""Shards with all rows, each on one rank, or on one of each group of ranks that has a copy.

Pooled outputs, or the rows of a sequence, travel in an all-to-all: TorchRec's TwPooledEmbeddingSharding, its sequence form, and their
column-wise children. Whole tables may travel in scatters instead.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from recsys_lab.plan.context import Context, averaged_gradients, input_distribution, last_of
from recsys_lab.plan.scheme import ALL_TO_ALL
from recsys_lab.plan.steps import Step
from recsys_lab.plan.table_work import iteration
from recsys_lab.tables import Table


def lower_whole(context: Context) -> tuple[list[Step], list[Step]]:
    """(input and forward, backward) steps. A feature goes once to each column shard of its table."""

    def vectors(table: Table) -> float:
        """That come back for a sample: one a feature, or one a look-up of a sequence."""
        return context.asked[table.name].mean_length if context.is_sequence else len(table.features)

    lengths, ids, columns, rows = (context.per_rank() for _ in range(4))
    for table, placement in context.placed:
        for shard in placement.shards:
            ranks = list(shard.ranks)
            lengths[ranks] += len(table.features)
            ids[ranks] += context.asked[table.name].mean_length
            columns[ranks] += vectors(table) * shard.cols
            rows[ranks] = rows[ranks] + vectors(table) if context.is_sequence else 1  # a rank's pooled columns of a sample are one
    everyone, group = context.group_batch, list(context.groups[0])
    lengths_sent, ids_sent = lengths[group].sum() * context.batch, ids[group].sum() * context.batch
    inputs = input_distribution(context, lengths_sent, ids_sent, lengths * everyone, ids * everyone)
    if context.exchange == ALL_TO_ALL:
        sent = columns * everyone, rows * everyone
        received = np.full(len(columns), columns[group].sum() * context.batch), np.full(len(rows), rows[group].sum() * context.batch)
        forward = context.rows_there("all_to_all", context.groups, sent, received)
        backward = context.gradients_back("all_to_all", context.groups, received, sent)
    else:
        forward, backward = scattered(context)
    if context.averaged:
        backward += averaged_gradients(context, last_of(backward, "dense.backward"))
    return iteration(context, inputs, forward, backward)


def scattered(context: Context) -> tuple[list[Step], list[Step]]:
    """(forward, backward) steps of the exchange by scatters, as the CPU DLRM paper does it (Kalamkar et al. 2020, section IV-B).

    A scatter's root puts in the pooled rows of all samples, the others nothing. Each rank takes out those of its own samples. Back, a
    gather: each rank puts in its samples' gradients, and the root takes out all of them.
    """
    forward: list[Step] = []
    backward: list[Step] = []
    for piece, root, columns, tables in _pieces(context):
        of_all, of_own = context.per_rank(), np.full(context.plan.world_size, float(context.batch))
        of_all[root] = context.global_batch
        there, here = (columns * of_all, of_all), (columns * of_own, of_own)
        forward += context.rows_there("scatter", [context.world], there, here, name=f"output.scatter.{piece}", tables=tables)
        backward += context.gradients_back("gather", [context.world], here, there, name=f"gradient.gather.{piece}", tables=tables)
    return forward, backward


def _pieces(context: Context) -> Iterator[tuple[str, int, int, tuple[str, ...]]]:
    """(name, root, columns, tables) of each scatter, rank after rank."""
    for rank in context.world:
        columns_of_table = [(t.name, len(t.features) * s.cols) for t, p in context.placed for s in p.shards if s.ranks[0] == rank]
        if context.exchange == "scatter_list":
            yield from ((name, rank, columns, (name,)) for name, columns in columns_of_table)
        elif columns_of_table:
            yield f"rank_{rank}", rank, sum(columns for _, columns in columns_of_table), tuple(name for name, _ in columns_of_table)
