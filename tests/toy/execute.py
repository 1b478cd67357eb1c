"""TorchRec exchanges whole tables among the ranks of a host; our look-up averages the gradients of their copies on other hosts."""

from __future__ import annotations

from torchrec.distributed.types import ParameterSharding

from recsys_lab.errors import UserError
from recsys_lab.executor.collection import shard_collection
from recsys_lab.executor.execution import Execution, Request, Running
from recsys_lab.executor.groups import env_of, own_group
from recsys_lab.executor.torchrec_plan import shards_spec
from recsys_lab.plan import Shard
from recsys_lab.schemes.whole import TABLE_WISE


def run(request: Request) -> Running:
    plan, per_host = request.plan, request.plan.ranks_per_host
    world = list(range(plan.world_size))
    host = own_group([world[first : first + per_host] for first in world[::per_host]])
    peers = own_group([world[local::per_host] for local in range(per_host)])
    if host is None:
        raise UserError("a host of one rank has nobody to exchange with", where="launcher.ranks_per_host", given=1, allowed="2 or more")
    parameters = {}
    for table, placement in request.placed:
        shard = Shard((placement.ranks[0] % per_host,), 0, table.rows, 0, table.dim)
        spec = shards_spec([shard], request.device.type, per_host)
        parameters[table.name] = ParameterSharding(TABLE_WISE, "dense", list(shard.ranks), spec)
    replicas = {} if peers is None else {TABLE_WISE: peers}
    return Running(shard_collection(request.configs, parameters, env_of(host), request.device, replicas, request.formats))


EXECUTION = Execution(run)
