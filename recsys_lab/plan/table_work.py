"""The tables' own work on the ranks that hold them: look-up, update, rows that come from stores, and equal ids once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from recsys_lab.plan.context import ID_BYTES, Context, behind, last_of
from recsys_lab.plan.sharding_plan import Placement
from recsys_lab.plan.steps import FETCH, Step, folded
from recsys_lab.plan.store import HOST
from recsys_lab.plan.store_steps import Held, store_steps
from recsys_lab.plan.workload import STATE_PER_ROW, STATE_PER_WEIGHT
from recsys_lab.tables import Table
from recsys_lab.tables.hot_rows import shares_of
from recsys_lab.tables.spec import ELEMENT_BYTES, READ_BYTES, STORED_BYTES

#: How often making ids distinct reads or writes a number as large as an id: each of the eight passes of a radix sort moves ids with their
#: places, then equal neighbours are found and the way back is written.
UNIQUE_PASSES = 8 * 4 + 6


def lookups_of_ranks(context: Context) -> np.ndarray:
    """Look-ups that each rank serves in an iteration.

    Ids are hashed, so hot rows lie anywhere. A row shard serves its share of the rows. Where `context.hot_rows`, it serves the look-ups
    that fall to it (hot_rows.py).
    """
    served = context.per_rank()
    for table, placement in context.placed:
        np.add.at(served, placement.copies.rank, _looked_up(context, table, placement))
    return served


def iteration(
    context: Context, inputs: list[Step], forward: list[Step], backward: list[Step], after: list[Step] | None = None
) -> tuple[list[Step], list[Step]]:
    """The steps of a scheme with the tables' look-up and update among them.

    Args:
        context: the scheme's tables and ranks.
        inputs: the exchanges of ids.
        forward: what the rows do after the look-up.
        backward: what gradients do before the update.
        after: what follows the update.

    Returns:
        (input and forward, backward) steps.
    """
    ids = tuple(s.name for s in inputs[1:])
    if context.dedup:
        inputs, forward, backward = _with_copies(context, inputs, forward, backward)
    fetch, back = _store_steps(context, ids)
    lookup, update = table_steps(context, (*ids, *(s.name for s in fetch if s.kind == FETCH)), last_of(backward, "dense.backward"))
    return [*inputs, *fetch, lookup, *forward], [*backward, update, *back, *(after or [])]


def _with_copies(context: Context, inputs: list[Step], forward: list[Step], backward: list[Step]) -> tuple[list[Step], ...]:
    """The three lists with what a rank does on its own about equal ids.

    It makes ids distinct before they leave, copies rows to all places of their ids, and sums the gradients of those places.
    """
    places, distinct, row_bytes = 0.0, 0.0, ELEMENT_BYTES["fp32"] * context.placed[0][0].dim
    for name in context.names:
        places += context.access[name].mean_length * context.batch
        distinct += context.asked[name].mean_length * context.batch
    moved = row_bytes * (distinct + places) + ID_BYTES * places
    prefix, served = context.prefix, last_of(forward, f"{context.prefix}.lookup")
    unique = context.in_memory(f"{prefix}.input.unique", "input", UNIQUE_PASSES * ID_BYTES * places, ())
    copies = context.in_memory(f"{prefix}.output.copies", "forward", moved, served)
    sums = context.in_memory(f"{prefix}.gradient.sums", "backward", moved, ("dense.backward",))
    inputs = [unique, *(step if step.after else replace(step, after=(unique.name,)) for step in inputs)]
    return inputs, [*forward, copies], [sums, *behind(sums, backward)]


def table_steps(context: Context, after_lookup: tuple[str, ...], after_update: tuple[str, ...]) -> tuple[Step, Step]:
    """The look-up (bytes read: look-ups x row bytes; made: FP32 rows) and the update of the scheme's tables.

    The update reads one gradient row for each look-up. It reads and writes weights and optimizer state of each distinct row once. Where
    gradients were summed over replicas, it does so for every row. Rows in the host's memory, without a cache, are not the device's to read.

    Tables of one data type and one pooling are one kernel, as TorchRec groups them for FBGEMM's (`group_tables`): widths and stores mix.
    """
    read_bytes, repeated_reads, update_bytes, repeated_sums, rows, pieces, output_bytes = (context.per_rank() for _ in range(7))
    optimizer, samples = context.workload.sparse_optimizer, _samples(context)
    of_weight, of_row = STATE_PER_WEIGHT[optimizer], STATE_PER_ROW[optimizer]
    for table, placement in context.placed:
        rank, shard_rows, cols, *_ = placement.copies
        held, looked_up = shard_rows > 0, _looked_up(context, table, placement)
        different = context.access[table.name].distinct_rows(samples) * (shard_rows / table.rows)
        touched = shard_rows if context.averaged else different
        state = 4 * (cols * of_weight + of_row)
        update = looked_up * cols * 4 + 2 * touched * (cols * STORED_BYTES[table.dtype] + state)
        vectors = looked_up if table.pooling == "none" else held * (samples * len(table.features))
        store = placement.store
        near = 0 if store is not None and store.kind == HOST else 1
        for figures, of_copy in (
            (pieces, held),
            (rows, looked_up),
            (output_bytes, vectors * cols * 4),
            (read_bytes, near * looked_up * cols * READ_BYTES[table.dtype]),
            (repeated_reads, near * np.maximum(looked_up - different, 0.0) * cols * READ_BYTES[table.dtype]),
            (update_bytes, near * update),
            (repeated_sums, near * np.maximum(looked_up - vectors, 0.0) * cols * 4),
        ):
            np.add.at(figures, rank, of_copy)
    prefix, names, role = context.prefix, context.names, context.role
    kernels = len({(table.dtype, table.pooling) for table, _ in context.placed})
    work: dict[str, Any] = {
        "tables": names,
        "rows_of_rank": folded(rows),
        "shards_of_rank": folded(pieces),
        "role": role,
        "kernels": kernels,
    }
    of_lookup = {"written_of_rank": folded(output_bytes), "repeated_of_rank": folded(repeated_reads), **work}
    of_update = {"repeated_of_rank": folded(repeated_sums), **work}
    lookup = Step(f"{prefix}.lookup", "lookup", "forward", folded(read_bytes), after=after_lookup, **of_lookup)
    return lookup, Step(f"{prefix}.update", "update", "backward", folded(update_bytes), after=after_update, **of_update)


def _store_steps(context: Context, ids: tuple[str, ...]) -> tuple[list[Step], list[Step]]:
    """Before the look-up, which waits for `ids`, and after the update: none where no table has a store."""
    if all(placement.store is None for _, placement in context.placed):
        return [], []
    size = context.plan.world_size
    how = context.in_flight, context.batch_number
    return store_steps(context.prefix, _held(context), context.access, context.workload, size, ids, *how)


def _samples(context: Context) -> int:
    """That ranks look up in a shard: their own batch where it is replicated, else that of the group."""
    return context.batch if context.at_home else context.group_batch


def _looked_up(context: Context, table: Table, placement: Placement) -> np.ndarray:
    """Look-ups that each copy of a shard serves, as `placement.copies` has them."""
    served = _served(context, table, placement)[placement.copies.shard]
    return _samples(context) * context.asked[table.name].mean_length * served


def _served(context: Context, table: Table, placement: Placement) -> np.ndarray:
    """Of a table's look-ups, the share that falls to each shard: by its rows, or, where `context.hot_rows`, by what lies there."""
    if not context.hot_rows or context.at_home:
        return placement.rows_of_shards / table.rows
    return shares_of(context.asked[table.name], [(shard.row_start, shard.rows) for shard in placement.shards])


def _held(context: Context) -> Iterable[Held]:
    """Each shard with rows."""
    samples = _samples(context)
    for table, placement in context.placed:
        all_ids = context.access[table.name].mean_length
        of_ids = context.asked[table.name].mean_length / all_ids if all_ids else 1.0
        for shard, served in zip(placement.shards, _served(context, table, placement).tolist()):
            if shard.rows:
                yield Held(table, shard, placement.store, samples, served * of_ids)
