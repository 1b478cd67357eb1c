"""Lower a plan to the steps of one training iteration, as TorchRec and DistributedDataParallel really do it.

The collectives (kinds, groups, bytes per rank) were found by recording them. A test compares the executor's recorded collectives with
these. Formats: ids int64, lengths int32; pooled embeddings travel in `precision.forward_comm` / `backward_comm`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from recsys_lab.errors import UserError
from recsys_lab.plan.context import GRADIENTS, Context, copy_of_batch, last_of
from recsys_lab.plan.dense import ALL_REDUCE, dense_backward, dense_forward, dense_optimizer
from recsys_lab.plan.scheme import ALL_TO_ALL, check_exchange, families, known_schemes, scheme_of
from recsys_lab.plan.sharding_plan import ShardingPlan
from recsys_lab.plan.steps import FETCH, SIZES, Step, Steps
from recsys_lab.plan.workload import Workload
from recsys_lab.precision import Precision
from recsys_lab.tables import AccessStatistics, Table


def lower(
    plan: ShardingPlan,
    access: AccessStatistics,
    precision: Precision,
    workload: Workload,
    *,
    exchange: str = ALL_TO_ALL,
    overlap: bool = True,
    hot_rows: bool = False,
    in_flight: int = 1,
    batch_number: float = math.inf,
    sync: str = GRADIENTS,
    dense_sync: str = ALL_REDUCE,
) -> Steps:
    """One training iteration of `plan` as steps.

    The tables of one family of schemes are exchanged together: one input distribution and one output distribution each. All split sizes are
    exchanged first.

    Args:
        plan: the plan.
        access: access statistics by table name; mean lengths are theirs.
        precision: number formats in memory and on the wire.
        workload: `batch_size` samples a rank, and the dense arch's work.
        exchange: of whole tables' rows, one of `EXCHANGES`.
        overlap: False: collectives of embeddings and dense gradients block.
        hot_rows: whether ranks that hold hot rows serve more than their share of the rows (hot_rows.py).
        in_flight: batches whose rows a store's cache must keep at a time.
        batch_number: how many batches came before this one; inf: the long run.
        sync: what copies of tables in groups of ranks average, one of `SYNCS`.
        dense_sync: by which collectives dense gradients are averaged, one of `DENSE_SYNCS`.

    Returns:
        The steps in a valid order, with kind, group and bytes of each rank.

    Raises:
        UserError: sequence tables under a scheme that pools, or beside pooled tables; an exchange that the plan's tables do not have.
    """
    check_sequences(plan)
    check_exchange(plan, exchange, overlap)
    inputs: list[Step] = []
    forward: list[Step] = []
    backward: list[Step] = []
    for family, placed in families(plan).items():
        context = Context(family, plan, placed, access, precision, workload, exchange, hot_rows, in_flight, batch_number, sync=sync)
        ahead, back = scheme_of(placed[0][1]).lower(context)
        inputs += [step for step in ahead if step.phase == "input"]
        forward += [step for step in ahead if step.phase == "forward"]
        backward = back + backward  # autograd runs backwards through the schemes
    inputs.sort(key=lambda step: step.role != SIZES and step.kind != "dense")
    backward.sort(key=lambda step: step.phase == "optimizer")
    everything = [
        copy_of_batch(plan.tables, access, workload),
        *inputs,
        *sorted(forward, key=lambda step: step.kind not in (FETCH, "lookup")),
        dense_forward(precision, workload, last_of(forward, "input.copy")),
        *dense_backward(plan.world_size, precision, workload, dense_sync),
        *backward,
        dense_optimizer(plan.world_size, workload, dense_sync),
    ]
    if not overlap:
        everything = [replace(step, blocks=step.is_collective and step.phase != "input") for step in everything]
    return Steps(plan.world_size, workload.batch_size, tuple(everything))


def check_kinds(tables: Sequence[Table]) -> None:
    """Raises UserError for sequence tables beside pooled ones, or of several dimensions: TorchRec's EmbeddingCollection has neither."""
    sequences = [table for table in tables if table.pooling == "none"]
    if sequences and len(sequences) < len(tables):
        names = ", ".join(table.name for table in sequences)
        raise UserError("a model's tables are all pooled or all sequences", where="tables", given=f"sequences {names} beside pooled tables")
    if len({table.dim for table in sequences}) > 1:
        given = ", ".join(f"{table.name} {table.dim}" for table in sequences)
        raise UserError("all tables of sequences have one embedding dimension", where="tables", given=given)


def check_sequences(plan: ShardingPlan) -> None:
    """Raises UserError for sequence tables under a scheme that pools, and for what `check_kinds` refuses."""
    check_kinds(plan.tables)
    for table, placement in zip(plan.tables, plan.placements):
        if table.pooling == "none" and not scheme_of(placement).sequences:
            raise UserError(
                "this scheme sums the rows of a bag, and a sequence (pooling none) has none",
                where=f"table {table.name}",
                given=placement.scheme,
                allowed=", ".join(scheme.name for scheme in known_schemes().values() if scheme.sequences),
            )
