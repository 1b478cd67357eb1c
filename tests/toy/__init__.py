"""A scheme and a sharder in one folder of their own, as a user's package has them: nothing inside recsys_lab knows them.

Every host has each table once, whole on one of its ranks: ids and pooled rows stay inside the host, and the copies average their gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from recsys_lab.errors import UserError
from recsys_lab.plan.context import Context, collective, input_distribution, last_of
from recsys_lab.plan.scheme import Scheme, examples, register
from recsys_lab.plan.sharding_plan import Placement, Shard, ShardingPlan
from recsys_lab.plan.steps import Step
from recsys_lab.plan.table_work import iteration
from recsys_lab.tables import Table
from recsys_lab.tables.tiers import HOST_SHARDED

ONCE_A_HOST = "once_a_host"


def on_local_rank(table: Table, local: int, hosts: int, ranks_per_host: int) -> Placement:
    holders = tuple(range(local, hosts * ranks_per_host, ranks_per_host))
    return Placement(table.name, ONCE_A_HOST, (Shard(holders, 0, table.rows, 0, table.dim),))


def validate(where: str, table: Table, placement: Placement, plan: ShardingPlan) -> None:
    local = placement.shards[0].ranks[0] % plan.ranks_per_host
    if placement != on_local_rank(table, local, plan.hosts, plan.ranks_per_host):
        raise UserError("the table must be whole on the same local rank of every host", where=where, given=placement.ranks)


def lower(context: Context) -> tuple[list[Step], list[Step]]:
    per_host, batch = context.plan.ranks_per_host, context.batch
    features, ids, columns, gradient = (context.per_rank() for _ in range(4))
    for table, placement in context.placed:
        ranks = list(placement.shards[0].ranks)
        features[ranks] += len(table.features)
        ids[ranks] += context.access[table.name].mean_length
        columns[ranks] += len(table.features) * table.dim
        gradient[ranks] += context.precision.dense_comm_bytes * table.parameters
    inside = replace(context, within=context.hosts, averaged=context.plan.hosts > 1)
    inputs = input_distribution(
        inside, context.features * batch, context.ids_per_sample * batch, features * batch * per_host, ids * batch * per_host
    )
    pieces = (columns > 0).astype(float)  # a rank's columns of a sample are one row
    wanted_rows = pieces.reshape(context.plan.hosts, per_host).sum(axis=1).repeat(per_host) * batch
    held = columns * batch * per_host, pieces * batch * per_host
    wanted = context.per_rank() + context.output_columns * batch, wanted_rows
    forward = inside.rows_there("all_to_all", context.hosts, held, wanted)
    backward = inside.gradients_back("all_to_all", context.hosts, wanted, held)
    if context.plan.hosts > 1:
        with_tables = [peers for peers in context.peers if gradient[list(peers)].any()]
        name, after = f"{context.prefix}.gradient.all_reduce", last_of(backward, "dense.backward")
        backward += collective(name, "all_reduce", "backward", with_tables, gradient, after, context.names)
    return iteration(inside, inputs, forward, backward)


def words(table: Table, placement: Placement, most_bytes: str, plan: ShardingPlan) -> tuple[str, str]:
    return f"whole on local rank {placement.ranks[0] % plan.ranks_per_host} of every host", f"rows stay inside a host; {most_bytes} a rank"


def check_execution(placed: Sequence[tuple[Table, Placement]]) -> None:
    for table, _ in placed:
        if table.pooling == "none":
            raise UserError("pooled tables only", where=f"table {table.name}")


SCHEME = Scheme(
    name=ONCE_A_HOST,
    travels="ids to the rank of the host that has the table, pooled rows back; gradients between the hosts' copies",
    execution="tests.toy.execute:EXECUTION",
    lower=lower,
    words=words,
    reference_cases=examples(lambda table, number, hosts, per_host: on_local_rank(table, number % per_host, hosts, per_host)),
    rules=None,
    tier=HOST_SHARDED,
    validate=validate,
    served_ranks=lambda shard, plan: plan.ranks_per_host,
    check_execution=check_execution,
)
register(SCHEME)
