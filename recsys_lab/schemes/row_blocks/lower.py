"""Rows in blocks over a group of ranks: all ranks, or those of each group that has a copy, such as a host (FlexShard's host-sharded tier).

As TorchRec does it. Pooled parts are summed and handed out by a reduce-scatter, whose backward is an all-gather. The rows of a sequence
travel as they are, in an all-to-all each way. Replicas of a block (one a group) all-reduce their gradients.
"""

from __future__ import annotations

import numpy as np

from recsys_lab.plan.context import Context, averaged_gradients, input_distribution, last_of
from recsys_lab.plan.steps import Step
from recsys_lab.plan.table_work import iteration, lookups_of_ranks


def lower_row_blocks(context: Context) -> tuple[list[Step], list[Step]]:
    """(input and forward, backward) steps. Every feature has a length on every rank. Each id goes to the rank with its row."""
    served, lengths = lookups_of_ranks(context), context.features * context.group_batch
    inputs = input_distribution(context, lengths, context.ids_per_sample * context.batch, np.full(len(served), lengths), served)
    forward, backward = _rows_travel(context) if context.is_sequence else _sums_travel(context)
    if context.averaged:
        backward += averaged_gradients(context, last_of(backward, "dense.backward"))
    return iteration(context, inputs, forward, backward)


def _sums_travel(context: Context) -> tuple[list[Step], list[Step]]:
    """Pooled parts of every sample of the group, whatever its ids."""
    columns = context.output_columns
    forward = context.rows_there("reduce_scatter", context.groups, (columns * context.group_batch, context.group_batch))
    return forward, context.gradients_back("all_gather", context.groups, (columns * context.batch, context.batch))


def _rows_travel(context: Context) -> tuple[list[Step], list[Step]]:
    """A row for each look-up: D columns a look-up, which all tables of a sequence model share."""
    dim, served = context.placed[0][0].dim, lookups_of_ranks(context)
    own = np.full(len(served), context.ids_per_sample * context.batch)
    sent, received = (served * dim, served), (own * dim, own)
    forward = context.rows_there("all_to_all", context.groups, sent, received)
    return forward, context.gradients_back("all_to_all", context.groups, received, sent)
