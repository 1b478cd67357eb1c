"""What training under another plan does to the bits of a run.

Most differences are the order in which numbers are added, so a last bit of a sum. Three are more than that: what row-wise optimizers take
from the other columns of a shard, what is rounded on its way, and what is drawn at random.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import Any

from recsys_lab.config.options import ExecutorOptions
from recsys_lab.plan import Placement, ShardingPlan
from recsys_lab.precision import Precision
from recsys_lab.tables import Table
from recsys_lab.units import counted

#: Under these the gradients of a row are added in the order of the global batch, wherever the row lies. Under the second on one host.
IN_ORDER = ("table_wise", "column_wise", "table_column_wise", "row_wise")
IN_ORDER_ON_A_HOST = (*IN_ORDER, "table_row_wise")
#: Optimizers to which the other columns of a row's shard matter.
BY_ROW = ("row_wise_adagrad", "lamb")
#: Of `sharder.executor`, what changes the order of sums.
ORDERS = ("dense_bucket_mib", "dense_sync", "sync", "row_update")


@dataclass(frozen=True)
class OtherBits:
    """Why bits differ: in the `last` ones of a sum, or by `more` than that."""

    last: tuple[str, ...] = ()
    more: tuple[str, ...] = ()

    def sentence(self) -> str:
        """Of a run that has moved."""
        if not self.last and not self.more:
            return "elsewhere, to the same bits as if it had stayed"
        parts = [f"{how}: {', '.join(why)}" for how, why in (("last bits differ", self.last), ("other numbers", self.more)) if why]
        return f"elsewhere; {'; '.join(parts)}"


def other_bits(before: ShardingPlan, now: ShardingPlan, one_id: Collection[str], precision: Precision, optimizer: str) -> OtherBits:
    """What training under `now` does otherwise than under `before`, plans of the same tables.

    Args:
        one_id: the tables whose features have one id a sample, or are sequences. Of the others the rows of a bag are added.
        precision: of both.
        optimizer: the tables'.
    """
    if before.world_size != now.world_size:
        ranks = f"{counted(now.world_size, 'rank')}, {before.world_size} before"
        return OtherBits((f"each rank adds its own samples first ({ranks})",), ("dropout draws others",))
    pairs = [(now.by_table[p.table][0], p, now.by_table[p.table][1]) for p in before.placements]
    moved = [(table, old, new) for table, old, new in pairs if (old.scheme, old.shards) != (new.scheme, new.shards)]
    in_order = IN_ORDER_ON_A_HOST if before.hosts == now.hosts == 1 else IN_ORDER
    gradients = [table for table, old, new in moved if not {old.scheme, new.scheme} <= set(in_order)]
    bags = [table for table, old, new in moved if table.name not in one_id and _rows_cut(table, old) != _rows_cut(table, new)]
    columns = [table for table, old, new in moved if optimizer in BY_ROW and _columns_cut(old) != _columns_cut(new)]
    last, more = [], []
    if gradients:
        last.append(f"replicas or hosts add gradients first of {counted(len(gradients), 'table')}")
    if bags:
        last.append(f"ranks add the rows of bags first of {counted(len(bags), 'table')}")
    if now.world_size > 2 and (before.hosts, before.ranks_per_host) != (now.hosts, now.ranks_per_host):
        last.append("averages over ranks are added in another order")
    if columns:
        more.append(f"{optimizer} has other column shards of {counted(len(columns), 'table')}")
    on_its_way = {precision.forward_comm, precision.backward_comm}
    if moved and "fp8" in on_its_way or (gradients or bags) and on_its_way != {"fp32"}:  # FP8 has a scale for numbers that go together
        more.append("others are rounded on their way")
    if moved and precision.rounding == "stochastic":
        more.append("rows are rounded at random by where they lie")
    return OtherBits(tuple(last), tuple(more))


def of_machine(before: Mapping[str, Any], now: Mapping[str, Any], ranks: int) -> list[str]:
    """The same of two plain configs of `ranks` each: what another device, number of threads or way of averaging does to last bits."""
    defaults = {field.name: field.default for field in fields(ExecutorOptions)}

    def told(config: Mapping[str, Any]) -> dict[str, Any]:
        executor = config["sharder"]["executor"]
        orders = {f"sharder.executor.{key}": executor.get(key, defaults[key]) for key in ORDERS}
        launcher = {"the launcher": config["choices"]["launcher"]} if ranks > 2 else {}  # two numbers have one sum
        threads = {"launcher.threads_per_rank": config["launcher"].get("threads_per_rank")}
        equal_ids = {"sharder.dedup": config["sharder"].get("dedup", False)}
        return orders | equal_ids | launcher | threads | {"trainer.device": config["trainer"].get("device")}

    old, new = told(before), told(now)
    return [f"{key} was {old[key]}" for key in new if old[key] != new[key]]


def _rows_cut(table: Table, placement: Placement) -> set[tuple[int, int]]:
    """Of ranks that each look up a part of a bag. A copy of the whole table is no part."""
    return {(s.row_start, s.row_stop) for s in placement.shards if s.rows} - {(0, table.rows)}


def _columns_cut(placement: Placement) -> set[tuple[int, int]]:
    return {(shard.col_start, shard.col_stop) for shard in placement.shards if shard.rows}
