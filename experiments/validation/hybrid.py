"""HugeCTR's hybrid embedding: frequent rows on every rank, their gradients averaged with the dense ones, the others exchanged alone.

A row is frequent if a rank's own samples look it up at least once in an iteration. Sending it would take as many bytes as adding up its
gradient. Every rank reads the ids of the whole batch, so that none are exchanged.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from experiments.validation.models import Model
from recsys_lab.cluster import Cluster
from recsys_lab.plan import Step, Steps, Workload
from recsys_lab.plan.context import collective, copy_of_batch
from recsys_lab.plan.dense import dense_backward, dense_forward, dense_optimizer
from recsys_lab.precision import Precision
from recsys_lab.tables import TableAccess
from recsys_lab.tables.spec import ELEMENT_BYTES

FP32_BYTES = ELEMENT_BYTES["fp32"]


def steps_of(found: Model, cluster: Cluster, precision: Precision, work: Workload) -> Steps:
    """One iteration of one-hot tables, all of the same dimension."""
    ranks, batch, dim = cluster.world_size, work.batch_size, found.tables[0].dim
    tables = [found.access[table.name] for table in found.tables]
    frequent = {access.table: frequent_rows(access, batch) for access in tables}
    sent = batch * sum(access.mean_length * (1 - access.share_of_hottest(frequent[access.table])) for access in tables)
    looked_up = batch * sum(access.mean_length for access in tables)
    rare = [access.between(frequent[access.table], sum(access.bucket_rows)) for access in tables]
    touched = sum(frequent.values()) + sum(access.distinct_rows(batch * ranks) for access in rare) / ranks
    state = work.table_state_bytes(1, dim)
    names, world = tuple(table.name for table in found.tables), (cluster.ranks,)
    served = {"tables": names, "rows_of_rank": (looked_up,), "shards_of_rank": (1.0,)}
    lookup = Step("hybrid.lookup", "lookup", "forward", (looked_up * dim * FP32_BYTES,), **served)
    rows_out = collective(
        "hybrid.output.all_to_all", "all_to_all", "forward", world, precision.forward_bytes(sent * dim, sent), (lookup.name,), names
    )
    rows_back = collective(
        "hybrid.gradient.all_to_all",
        "all_to_all",
        "backward",
        world,
        precision.backward_bytes(sent * dim, sent),
        ("dense.backward",),
        names,
    )
    backward, *averaged = dense_backward(ranks, precision, work)
    shared = sum(frequent.values()) * dim * precision.dense_comm_bytes
    averaged = [replace(step, bytes_of_rank=(step.max_bytes + shared,)) for step in averaged]
    moved = looked_up * dim * FP32_BYTES + 2 * touched * (dim * FP32_BYTES + state)
    after = tuple(step.name for step in (*rows_back, *averaged)) or ("dense.backward",)
    steps = (
        copy_of_batch(found.tables, found.access, work),
        lookup,
        *rows_out,
        dense_forward(precision, work, tuple(step.name for step in rows_out) or (lookup.name,)),
        backward,
        *rows_back,
        *averaged,
        Step("hybrid.update", "update", "backward", (moved,), after=after, **served),
        dense_optimizer(ranks, work),
    )
    return Steps(ranks, batch, steps)


def frequent_rows(access: TableAccess, batch: int) -> int:
    """Rows that `batch` samples look up once or more often on average."""
    often = np.asarray(access.bucket_p) * batch >= 1
    return int(np.asarray(access.bucket_rows)[often].sum())
