"""TorchRec exchanges the tables within a group of ranks. Copies in other groups average their gradients, in our look-up's backward pass, or
their weights, at the end of the optimizer's step.
"""

from __future__ import annotations

from recsys_lab.executor.collection import shard_collection
from recsys_lab.executor.execution import Execution, Request, Running
from recsys_lab.executor.groups import env_of, own_group
from recsys_lab.executor.torchrec_plan import to_torchrec
from recsys_lab.plan.context import GRADIENTS, WEIGHTS
from recsys_lab.schemes.replica_groups.lower import check_sync
from recsys_lab.schemes.replica_groups.placement import NAMES, SUFFIX, ReplicaGroups, within_group


def run(request: Request) -> Running:
    """All tables of the request as one collection, over the ranks of a group. Collective."""
    groups = ReplicaGroups.of(request.plan)
    group, replicas = own_group(groups.groups), own_group(groups.replicas)
    assert group is not None, "a group of one rank exchanges nothing"
    check_sync(request.placed, request.sync)
    parameters = to_torchrec([within_group(p, groups) for _, p in request.placed], groups.size, request.device.type)
    averaged = [name.removesuffix(SUFFIX) for name in NAMES if request.sync == GRADIENTS]
    of_schemes = {} if replicas is None else dict.fromkeys(averaged, replicas)
    part = shard_collection(request.configs, parameters, env_of(group), request.device, of_schemes, request.formats, dedup=request.dedup)
    for batch in part.batches if request.sync == WEIGHTS else []:
        batch.copies = replicas
    return Running(part)


EXECUTION = Execution(run)
