"""Whole tables exchanged by scatters, as the CPU DLRM paper does (Kalamkar et al. 2020, section IV-B), in place of an all-to-all.

A scatter's root puts in the pooled rows of all samples, the others nothing; each takes out those of its own samples. Back, a gather: each
rank puts in its samples' gradients, and the root takes out all of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from recsys_lab.plan.context import Context
from recsys_lab.plan.steps import Step


def scattered(context: Context) -> tuple[list[Step], list[Step]]:
    """(forward, backward) steps of the exchange."""
    forward: list[Step] = []
    backward: list[Step] = []
    for piece, root, columns, tables in _pieces(context):
        all_rows, own_rows = context.per_rank(), context.per_rank() + columns * context.batch
        all_rows[root] = columns * context.global_batch
        forward += context.rows_there("scatter", [context.world], all_rows, own_rows, name=f"output.scatter.{piece}", tables=tables)
        backward += context.gradients_back("gather", [context.world], own_rows, all_rows, name=f"gradient.gather.{piece}", tables=tables)
    return forward, backward


def _pieces(context: Context) -> Iterator[tuple[str, int, int, tuple[str, ...]]]:
    """(name, root, columns, tables) of each scatter, rank after rank."""
    for rank in context.world:
        held = [(t.name, len(t.features) * s.cols) for t, p in context.placed for s in p.shards if s.ranks[0] == rank]
        if context.exchange == "scatter_list":
            yield from ((name, rank, columns, (name,)) for name, columns in held)
        elif held:
            yield f"rank_{rank}", rank, sum(columns for _, columns in held), tuple(name for name, _ in held)
