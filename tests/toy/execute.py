"""TorchRec exchanges whole tables among the ranks of a host; our look-up averages the gradients of their copies on other hosts."""

from __future__ import annotations

from recsys_lab.errors import UserError
from recsys_lab.executor.collection import shard_collection
from recsys_lab.executor.execution import Execution, Request, Running
from recsys_lab.executor.groups import env_of, own_group
from recsys_lab.executor.torchrec_plan import to_torchrec
from recsys_lab.schemes.whole.placement import TABLE_WISE, on_rank


def run(request: Request) -> Running:
    plan, per_host = request.plan, request.plan.ranks_per_host
    world = list(range(plan.world_size))
    host = own_group([world[first : first + per_host] for first in world[::per_host]])
    peers = own_group([world[local::per_host] for local in range(per_host)])
    if host is None:
        raise UserError("a host of one rank has nobody to exchange with", where="launcher.ranks_per_host", given=1, allowed="2 or more")
    inside = [on_rank(table, placement.ranks[0] % per_host) for table, placement in request.placed]
    parameters = to_torchrec(inside, per_host, request.device.type)
    replicas = {} if peers is None else {TABLE_WISE: peers}
    return Running(shard_collection(request.configs, parameters, env_of(host), request.device, replicas, request.formats))


EXECUTION = Execution(run)
