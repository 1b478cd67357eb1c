"""Plans with towers by hand, and a small model with tower modules."""

from __future__ import annotations

import math
import os
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys_lab.executor.shard import shard
from recsys_lab.executor.sharded_model import ShardedModel
from recsys_lab.plan import Placement, Shard, ShardingPlan
from recsys_lab.plan.validate import validate
from recsys_lab.precision import Precision
from recsys_lab.schemes.towers.sites import sites_of, tower_of_features
from recsys_lab.tables import Table
from tests.executor import reference
from tests.executor.reference import EPS, LR, SEED, Concat, Outcome, Sample, bags
from tests.executor.sharded import FP32, trained

Towers = tuple[tuple[str, ...], ...]


class TowerConcat(nn.Module):
    """A tower module a tower: [B, F, D] -> [B, O], O its own; their outputs and K dense values through two layers -> logits [B]."""

    def __init__(self, tables: tuple[Table, ...], dense_width: int, device: torch.device, towers: Towers):
        super().__init__()
        self.embeddings = bags(tables, device)
        self.tower_features = towers
        widths = [3 + number for number in range(len(towers))]
        self.tower_modules = nn.ModuleList(
            nn.Sequential(nn.Flatten(), nn.Linear(len(tower) * tables[0].dim, width, device=device), nn.Tanh())
            for tower, width in zip(towers, widths)
        )
        self.hidden = nn.Linear(sum(widths) + dense_width, 8, device=device)
        self.out = nn.Linear(8, 1, device=device)

    def forward(self, dense: Tensor, sparse: KeyedJaggedTensor) -> Tensor:
        return self.predict(dense, self.embeddings(sparse).to_dict())

    def predict(self, dense: Tensor, pooled: dict[str, Tensor]) -> Tensor:
        vectors = [torch.stack([pooled[f] for f in tower], dim=1) for tower in self.tower_features]
        return self.predict_from_towers(dense, [module(rows) for module, rows in zip(self.tower_modules, vectors)])

    def predict_from_towers(self, dense: Tensor, outputs: list[Tensor]) -> Tensor:
        return self.out(torch.tanh(self.hidden(torch.cat([dense, *outputs], dim=1)))).squeeze(1)


def tower_plan(
    tables: tuple[Table, ...], towers: Towers, hosts: int, ranks_per_host: int, schemes: tuple[str, ...], permute: str
) -> ShardingPlan:
    """The tables under `schemes` (table_wise, column_wise, row_wise) in turn, each spread over the ranks of its tower's site."""
    sites, tower_of = sites_of(len(towers), hosts, ranks_per_host), tower_of_features(towers)
    placements = []
    for index, table in enumerate(tables):
        ranks = sites.ranks_of(sites.site_of_tower(tower_of[table.features[0]]))
        placements.append(tower_placement(table, schemes[index % len(schemes)], ranks, index))
    plan = ShardingPlan("by_hand", hosts, ranks_per_host, tables, tuple(placements), towers, permute)
    validate(plan)
    return plan


def tower_placement(table: Table, scheme: str, ranks: tuple[int, ...], index: int) -> Placement:
    """Column shards lie on ranks in turn, from the table's `index` on; the last may be narrower."""
    if scheme == "table_wise":
        shards = [Shard((ranks[index % len(ranks)],), 0, table.rows, 0, table.dim)]
    elif scheme == "column_wise":
        width = math.ceil(table.dim / len(ranks))
        starts = range(0, table.dim, width)
        shards = [Shard((ranks[(index + i) % len(ranks)],), 0, table.rows, a, min(a + width, table.dim)) for i, a in enumerate(starts)]
    else:
        block = math.ceil(table.rows / len(ranks))
        edges = [min(i * block, table.rows) for i in range(len(ranks) + 1)]
        shards = [Shard((rank,), a, b, 0, table.dim) for rank, a, b in zip(ranks, edges, edges[1:])]
    return Placement(table.name, f"tower_{scheme}", tuple(shards))


def plan_here(tables: tuple[Table, ...], towers: Towers, schemes: tuple[str, ...], permute: str) -> ShardingPlan:
    """For the ranks that run."""
    local = int(os.environ["LOCAL_WORLD_SIZE"])
    return tower_plan(tables, towers, dist.get_world_size() // local, local, schemes, permute)


def model_of(plan: ShardingPlan, dense_width: int, with_modules: bool) -> nn.Module:
    if with_modules:
        return TowerConcat(plan.tables, dense_width, torch.device("meta"), plan.towers)
    return Concat(plan.tables, dense_width, torch.device("meta"))


def build(
    plan: ShardingPlan,
    optimizer: str,
    dense_width: int,
    with_modules: bool = False,
    precision: Precision = FP32,
    pipeline: bool = False,
) -> ShardedModel:
    model: Callable = model_of(plan, dense_width, with_modules)
    rule = (optimizer, LR, EPS, 0.0)
    return shard(model, plan, torch.device("cpu"), rule, precision, SEED, pipeline=pipeline)  # type: ignore[arg-type]


def train(
    plan: ShardingPlan,
    batches: list[Sample],
    optimizer: str,
    dense_width: int,
    with_modules: bool = False,
    precision: Precision = FP32,
) -> Outcome:
    """What the reference also says, of this rank."""
    return trained(build(plan, optimizer, dense_width, with_modules, precision), plan.tables, batches)


def train_unsharded(made_for: tuple[Table, ...], towers: Towers, batches: list[Sample], optimizer: str, dense_width: int) -> Outcome:
    """The tower model in one process, whole tables, dense gradients."""
    return reference.train_unsharded(made_for, batches, optimizer, dense_width, lambda *given: TowerConcat(*given, towers))
