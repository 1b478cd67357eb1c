"""SPTT with tower modules against TorchRec's EmbeddingTowerCollection, which is the same on one host a tower."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torchrec.distributed.embedding_tower_sharding as ets
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torchrec.distributed import sharding_plan
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.types import EmbeddingModuleShardingPlan, ParameterSharding, ShardingEnv, ShardingPlan
from torchrec.modules.embedding_tower import EmbeddingTower, EmbeddingTowerCollection
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward
from torchrec.optim.optimizers import in_backward_optimizer_filter
from torchrec.sparse.jagged_tensor import KeyedTensor

from recsys_lab.models.initial import initialise_dense
from recsys_lab.models.table_weights import initial_weight
from recsys_lab.tables import Table
from tests.executor.reference import LR, SEED, Sample, bags, samples
from tests.executor.sharded import dense_optimizer_of, step
from tests.executor.test_sharded_equals_unsharded import DENSE
from tests.executor.tower_cases import TowerConcat, Towers, build, plan_here
from tests.ranks import run_ranks

STEPS, ROWS = 6, 16
TABLES = tuple(Table(f"t{i}", 20 + i, 8, (f"f{i}",)) for i in range(5))
TOWERS: Towers = (("f0", "f1"), ("f2", "f3", "f4"))


class Interaction(nn.Module):
    """A tower module of ours on what TorchRec gives it."""

    def __init__(self, module: nn.Module, features: tuple[str, ...]):
        super().__init__()
        self.module, self.features = module, features

    def forward(self, pooled: KeyedTensor) -> torch.Tensor:
        return self.module(torch.stack([pooled[f] for f in self.features], dim=1))


class Theirs(nn.Module):
    def __init__(self, model: TowerConcat):
        super().__init__()
        own = [tuple(t for t in TABLES if t.features[0] in tower) for tower in TOWERS]
        self.towers = EmbeddingTowerCollection(
            [
                EmbeddingTower(bags(tables, torch.device("cpu")), Interaction(module, tower))
                for tables, module, tower in zip(own, model.tower_modules, TOWERS)
            ]
        )
        self.hidden, self.out = model.hidden, model.out

    def forward(self, dense: torch.Tensor, sparse: Any) -> torch.Tensor:
        return self.out(torch.tanh(self.hidden(torch.cat([dense, self.towers(sparse)], dim=1)))).squeeze(1)


def by_torchrec(batches: list[Sample]) -> list[torch.Tensor]:
    """This rank's logits in each step."""
    wrapper = ets.DistributedDataParallel  # which refuses device_ids on CPU
    ets.DistributedDataParallel = lambda module, device_ids=None, **options: wrapper(module=module, **options)
    tower_model = TowerConcat(TABLES, DENSE, torch.device("cpu"), TOWERS)
    initialise_dense(tower_model, SEED, torch.device("cpu"))  # type: ignore[arg-type]
    model, sharder = Theirs(tower_model), ets.EmbeddingTowerCollectionSharder()
    for tower in model.towers.towers:
        apply_optimizer_in_backward(torch.optim.SGD, tower.embedding.parameters(), {"lr": LR})
    plan = {name: _in_its_host(name, parameter, sharder) for name, parameter in sharder.shardable_parameters(model.towers).items()}
    sharded = DistributedModelParallel(
        model,
        env=ShardingEnv.from_process_group(dist.group.WORLD),
        device=torch.device("cpu"),
        plan=ShardingPlan({"towers": EmbeddingModuleShardingPlan(plan)}),
        sharders=[sharder],
        init_parameters=False,
    )
    for name, tensor in sharded.state_dict().items():
        if type(tensor).__name__ == "ShardedTensor":
            table = next(t for t in TABLES if f".{t.name}." in name)
            for part in tensor.local_shards():
                (row, col), (rows, cols) = part.metadata.shard_offsets, part.metadata.shard_sizes
                part.tensor.copy_(initial_weight(table, row, row + rows, col, col + cols, SEED))
    dense = torch.optim.SGD([p for _, p in in_backward_optimizer_filter(sharded.named_parameters()) if p.numel()], lr=LR)
    losses = []
    for batch in batches:
        part = batch.part(dist.get_rank(), dist.get_world_size())
        dense.zero_grad()
        logits = sharded(part.dense, part.sparse)
        binary_cross_entropy_with_logits(logits, part.labels).backward()
        dense.step()
        losses.append(logits.detach())
    return losses


def _in_its_host(name: str, parameter: nn.Parameter, sharder: Any) -> ParameterSharding:
    """Rows in blocks over the ranks of the host that has the table's tower."""
    local = int(os.environ["LOCAL_WORLD_SIZE"])
    host = next(number for number, tower in enumerate(TOWERS) if name.replace("t", "f") in tower)
    rows, cols = parameter.shape
    block = -(-rows // local)
    shards = [([min(block, rows - k * block), cols], [k * block, 0], host * local + k) for k in range(local)]
    return sharding_plan._get_parameter_sharding(parameter, "table_row_wise", shards, local, "cpu", sharder, compute_kernel="fused")


def by_us(batches: list[Sample]) -> list[torch.Tensor]:
    sharded = build(plan_here(TABLES, TOWERS, ("row_wise",), "none"), "sgd", DENSE, True)
    dense = dense_optimizer_of(sharded)
    return [step(sharded, dense, batch) for batch in batches]


def both(batches: list[Sample]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    return by_us(batches), by_torchrec(batches)


@pytest.mark.timeout(120)
def test_tower_modules_give_what_torchrecs_tower_collection_gives() -> None:
    for ours, theirs in run_ranks(both, 2, 2, samples(TABLES, STEPS, ROWS, DENSE)):
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
