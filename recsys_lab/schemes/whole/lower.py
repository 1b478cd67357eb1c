"""Shards with all rows, each on one rank.

Pooled outputs, or the rows of a sequence, travel in an all-to-all: TorchRec's TwPooledEmbeddingSharding, its sequence form, and their
column-wise children. Whole tables may travel in scatters instead (scatter.py).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from recsys_lab.plan.context import Context, collective, input_distribution, table_steps
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
    forward, backward = _all_to_all(context, columns, vectors) if context.exchange == ALL_TO_ALL else scattered(context)
    lookup, update = table_steps(context, tuple(s.name for s in inputs[1:]), tuple(s.name for s in backward) or ("dense.backward",))
    return [*inputs, lookup, *forward], [*backward, update]


def _all_to_all(context: Context, columns: np.ndarray, vectors: Callable[[Table], float]) -> tuple[list[Step], list[Step]]:
    """(forward, backward). `columns` that each rank has for a sample; `vectors` of a table that come back for one."""
    prefix, names, precision = context.prefix, context.names, context.precision
    held = columns * context.global_batch
    wanted = context.per_rank() + context.batch * sum(vectors(table) * table.dim for table, _ in context.placed)
    forward = collective(
        f"{prefix}.output.all_to_all",
        "all_to_all",
        "forward",
        [context.world],
        held * precision.forward_comm_bytes,
        (f"{prefix}.lookup",),
        names,
        wanted * precision.forward_comm_bytes,
    )
    backward = collective(
        f"{prefix}.gradient.all_to_all",
        "all_to_all",
        "backward",
        [context.world],
        wanted * precision.backward_comm_bytes,
        ("dense.backward",),
        names,
        held * precision.backward_comm_bytes,
    )
    return forward, backward
