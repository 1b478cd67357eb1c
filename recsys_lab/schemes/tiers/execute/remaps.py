"""The remappings of a plan's tables, from the hottest rows that the data name."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np
import torch
import torch.distributed as dist

from recsys_lab.errors import UserError
from recsys_lab.executor.execution import Request
from recsys_lab.plan.tiers import tier_rows
from recsys_lab.tables.remap import Remap
from recsys_lab.tables.tiers import HOST_SHARDED, REPLICATED


def remaps_of(request: Request) -> dict[str, Remap]:
    """By table. Collective.

    Raises UserError where the request's hot rows lack a table, do not match the plan or the table, or differ between the ranks.
    """
    remaps, hot_rows = {}, request.hot_rows
    for table, placement in request.placed:
        rows = tier_rows(placement)
        hot = rows[REPLICATED] + rows[HOST_SHARDED]
        if hot and table.name not in hot_rows:
            raise UserError(
                "a table is sharded by row, and its most frequent rows are not known", where=f"table {table.name}", given=f"{hot} hot rows"
            )
        ids = np.asarray(hot_rows[table.name] if hot else [], np.int64)
        remaps[table.name] = Remap.of(table.name, ids, rows[REPLICATED], rows[HOST_SHARDED], request.plan.ranks_per_host, table.rows)
    _check_alike(remaps, request.device)
    return remaps


def _check_alike(remaps: Mapping[str, Remap], device: torch.device) -> None:
    """Ranks that send one id to different places would train nonsense, or wait for ever."""
    digest = hashlib.blake2b(digest_size=7)
    for name, remap in sorted(remaps.items()):
        digest.update(name.encode() + remap.sorted_ids.tobytes() + remap.position.tobytes())
    own = int.from_bytes(digest.digest(), "little")
    lowest_and_negated_highest = torch.tensor([own, -own], device=device)
    dist.all_reduce(lowest_and_negated_highest, dist.ReduceOp.MIN)
    lowest, highest = lowest_and_negated_highest.tolist()
    if lowest != -highest:
        raise UserError("the ranks have different most frequent rows", where="hot rows", remedy="give every rank the same data")
