"""TorchRec's own 2D parallelism (DMPCollection) on four processes sends what our steps say, weights and optimizer state included.

DMPCollection asserts a GPU, and nothing else in it needs one: here that assertion is left out.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.remote_device import _remote_device
from torchrec.distributed import model_parallel
from torchrec.distributed import types as tr
from torchrec.distributed.model_parallel import DMPCollection
from torchrec.optim import RowWiseAdagrad
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward

from recsys_lab.executor.recorded import register, start_recording, stop_recording
from recsys_lab.executor.torchrec_plan import to_torchrec
from recsys_lab.lightning.torchrec_executor import BagSharder
from recsys_lab.plan import ShardingPlan
from recsys_lab.plan.lower import lower
from recsys_lab.schemes.replica_groups.placement import ReplicaGroups, in_each_group, within_group
from recsys_lab.schemes.row_blocks.placement import in_row_blocks
from recsys_lab.schemes.whole.placement import on_rank
from tests.executor.reference import LR, Concat
from tests.plan.plans import FP32, workload
from tests.plan.test_volume import in_order_of_kind
from tests.ranks import run_ranks
from tests.schemes.generated import BATCH, DENSE, POOLED, _access, _batch

CPU = torch.device("cpu")
OPTIMIZERS: dict[str, Any] = {"sgd": torch.optim.SGD, "row_wise_adagrad": RowWiseAdagrad}
register()  # before a rank joins its process group


def plan_of(between_hosts: bool) -> ShardingPlan:
    """The last table by rows, the others whole."""
    groups, last = ReplicaGroups(4, 2, between_hosts), len(POOLED) - 1
    inner = [in_row_blocks(table, range(2)) if n == last else on_rank(table, n) for n, table in enumerate(POOLED)]
    return ShardingPlan("by_hand", 2, 2, POOLED, tuple(in_each_group(placement, groups) for placement in inner))


class OnCpu(DMPCollection):
    """DMPCollection without its assertion, and with shards on CPUs where it numbers the devices of a host."""

    def _remap_sharding_plan(self, plan: tr.ShardingPlan, *args: Any, **options: Any) -> None:
        super()._remap_sharding_plan(plan, *args, **options)
        for sharding in plan.plan["embeddings"].values():
            for shard in sharding.sharding_spec.shards:
                shard.placement = _remote_device(f"rank:{shard.placement.rank()}/cpu")


def _init_on_cpu() -> Callable[..., None]:
    source = textwrap.dedent(inspect.getsource(DMPCollection.__init__))
    changes = {'device.type == "cuda"': 'device.type == "cpu"', "super().__init__(": "DistributedModelParallel.__init__(self, "}
    for now, then in changes.items():
        assert source.count(now) == 1, "TorchRec has changed it"
        source = source.replace(now, then)
    names: dict[str, Any] = {}
    exec(source, vars(model_parallel), names)
    return names["__init__"]


OnCpu.__init__ = _init_on_cpu()


def _recorded(plan: ShardingPlan, optimizer: str) -> list[tuple[str, tuple[int, ...], int]]:
    """The collectives of the fourth step, with TorchRec's sync at its end."""
    groups, model = ReplicaGroups.of(plan), Concat(POOLED, DENSE, CPU)
    apply_optimizer_in_backward(OPTIMIZERS[optimizer], model.embeddings.parameters(), {"lr": LR})
    of_group = to_torchrec([within_group(placement, groups) for placement in plan.placements], groups.size, "cpu")
    for sharding in of_group.values():
        sharding.compute_kernel = "fused"
    torchrec_plan = tr.ShardingPlan({"embeddings": of_group})
    how = {"world_size": 4, "sharding_group_size": groups.size, "use_inter_host_allreduce": groups.between_hosts}
    sharded = OnCpu(model, CPU, torchrec_plan, global_pg=dist.group.WORLD, sharders=[BagSharder()], **how)
    for step in range(4):
        if step == 3:
            start_recording()
        sharded(torch.rand(BATCH, DENSE), _batch(plan, times=1)).sum().backward()
        sharded.sync()
    return [(one.kind, one.group, one.bytes) for one in stop_recording()]


def _recorded_all(cases: list[tuple[ShardingPlan, str]]) -> list[list[tuple[str, tuple[int, ...], int]]]:
    return [_recorded(*case) for case in cases]


def test_it_sends_what_our_steps_say() -> None:
    cases = [(plan_of(between_hosts), optimizer) for between_hosts in (True, False) for optimizer in OPTIMIZERS]
    ranks = run_ranks(_recorded_all, 2, 2, cases, backend="recorded")
    model = Concat(POOLED, DENSE, torch.device("meta"))
    dense = sum(p.numel() for name, p in model.named_parameters() if not name.startswith("embeddings."))
    for number, (plan, optimizer) in enumerate(cases):
        steps = lower(plan, _access(plan, times=1), FP32, workload(BATCH, dense, sparse_optimizer=optimizer), sync="weights")
        for rank, recorded in enumerate(ranks):
            expected = in_order_of_kind([(kind, group, round(size)) for kind, group, size in steps.collectives_of(rank)])
            assert in_order_of_kind(recorded[number]) == expected, f"{plan.placements[0].shards[0].ranks}, {optimizer}, rank {rank}"
