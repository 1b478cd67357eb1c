"""Lower a plan to the steps of one training iteration, as TorchRec and DistributedDataParallel really do it.

The collectives (kinds, groups, bytes per rank) were found by recording them, and a test holds the executor's recorded collectives
against these. Formats: ids int64, lengths int32; pooled embeddings travel in `precision.forward_comm` / `backward_comm`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from recsys_lab.errors import UserError
from recsys_lab.plan.context import Context, copy_of_batch
from recsys_lab.plan.dense import dense_backward, dense_forward, dense_optimizer
from recsys_lab.plan.sharding_plan import FLAT_SCHEMES, FLEXSHARD, TOWER_SCHEMES, ShardingPlan
from recsys_lab.plan.steps import Step, Steps
from recsys_lab.plan.workload import Workload
from recsys_lab.precision import Precision
from recsys_lab.schemes.in_host.lower import lower_in_host
from recsys_lab.schemes.replicated.lower import lower_replicated
from recsys_lab.schemes.row_blocks.lower import lower_row_blocks
from recsys_lab.schemes.tiers.lower import lower_tiers
from recsys_lab.schemes.towers.lower import lower_towers
from recsys_lab.schemes.whole.lower import lower_whole_rank
from recsys_lab.schemes.whole.scatter import check_exchange
from recsys_lab.tables import AccessStatistics

TOWERS = "towers"  # all of DMT's schemes: their tables share every step
LOWERING: dict[str, Callable[[Context], tuple[list[Step], list[Step]]]] = {
    "data_parallel": lower_replicated,
    "table_wise": lower_whole_rank,
    "column_wise": lower_whole_rank,
    "table_column_wise": lower_whole_rank,
    "row_wise": lower_row_blocks,
    "table_row_wise": lower_in_host,
    "grid_shard": lower_in_host,
    FLEXSHARD: lower_tiers,
    TOWERS: lower_towers,
}
#: There is no exchange of sequences for these.
POOLED_ONLY = ("table_row_wise", "table_column_wise", "grid_shard", *TOWER_SCHEMES)


def lower(
    plan: ShardingPlan,
    access: AccessStatistics,
    precision: Precision,
    workload: Workload,
    *,
    exchange: str = "all_to_all",
    overlap: bool = True,
    hot_rows: bool = False,
) -> Steps:
    """One training iteration of `plan`: `workload.batch_size` samples a rank, mean lengths from `access` (by table name).
    `exchange` of whole tables' rows, see scatter.py; without `overlap` collectives of embeddings and dense gradients block. With `hot_rows`
    ranks that hold hot rows serve more than their share of the rows (hot_rows.py).

    TorchRec treats the tables of one scheme together: one input distribution and one output distribution each. All split sizes are
    exchanged first. Raises UserError for sequence tables under a scheme that pools, or beside pooled tables, and for an exchange that
    the plan's tables do not have.
    """
    _check_sequences(plan)
    check_exchange(plan, exchange, overlap)
    inputs: list[Step] = []
    forward: list[Step] = []
    backward: list[Step] = []
    for scheme in dict.fromkeys(_together(placement.scheme) for placement in plan.placements):
        placed = tuple((t, p) for t, p in zip(plan.tables, plan.placements) if _together(p.scheme) == scheme)
        ahead, back = LOWERING[scheme](Context(scheme, plan, placed, access, precision, workload, exchange, hot_rows))
        inputs += [step for step in ahead if step.phase == "input"]
        forward += [step for step in ahead if step.phase == "forward"]
        backward = back + backward  # autograd runs backwards through the schemes
    inputs.sort(key=lambda step: not step.name.endswith(".splits"))
    embedded = tuple(step.name for step in forward if not any(step.name in other.after for other in forward))
    everything = [
        copy_of_batch(plan.tables, access, workload),
        *inputs,
        *sorted(forward, key=lambda step: step.kind != "lookup"),
        dense_forward(precision, workload, embedded),
        *dense_backward(plan.world_size, precision, workload),
        *backward,
        dense_optimizer(plan.world_size, workload),
    ]
    if not overlap:
        everything = [replace(step, blocks=step.is_collective and step.phase != "input") for step in everything]
    return Steps(plan.world_size, workload.batch_size, tuple(everything))


def _together(scheme: str) -> str:
    """What names the steps of the tables under `scheme`."""
    return TOWERS if scheme in TOWER_SCHEMES else scheme


def _check_sequences(plan: ShardingPlan) -> None:
    kinds = {table.pooling == "none" for table in plan.tables}
    if kinds == {True, False}:
        names = ", ".join(table.name for table in plan.tables if table.pooling == "none")
        raise UserError("a model's tables are all pooled or all sequences", where="tables", given=f"sequences {names} beside pooled tables")
    for table, placement in zip(plan.tables, plan.placements):
        if table.pooling == "none" and placement.scheme in POOLED_ONLY:
            raise UserError(
                "this scheme sums the rows of a bag, and a sequence (pooling none) has none",
                where=f"table {table.name}",
                given=placement.scheme,
                allowed=", ".join(scheme for scheme in FLAT_SCHEMES if scheme not in POOLED_ONLY),
            )
