"""From a model and a plan with towers to SPTT in place of the model's tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from recsys_lab.errors import UserError
from recsys_lab.executor.execution import Request, Running
from recsys_lab.executor.groups import own_group
from recsys_lab.executor.lookup import BatchedLookup, ToHold
from recsys_lab.executor.table_batch import HeldShard
from recsys_lab.models.table_configs import format_of
from recsys_lab.plan import ShardingPlan
from recsys_lab.schemes.towers.execute.layout import Layout, Slot
from recsys_lab.schemes.towers.execute.modules import PATH, SiteModules
from recsys_lab.schemes.towers.execute.sptt import SPTT, TowerGroups
from recsys_lab.schemes.towers.sites import sites_of_plan


def run(request: Request) -> Running:
    """SPTT in place of the model's tables. Collective.

    A model with tower modules loses them to it, and its forward pass becomes `predict_from_towers` of what they give.
    Raises UserError where the model has other towers than the plan.
    """
    model, plan, device, formats = request.model, request.plan, request.device, request.formats
    layout, groups = Layout(plan), _groups(plan, modules=bool(getattr(model, PATH, None)))
    configs = request.configs
    stored = {config.name: format_of(config) for config in configs}
    lookup = BatchedLookup(_to_hold(layout, dist.get_rank(), stored), device, None)
    modules = None
    given: Any = model
    if tower_modules := getattr(model, PATH, None):
        if tuple(map(tuple, given.tower_features)) != plan.towers:
            raise UserError("the model has other towers than the plan", where="towers", given=given.tower_features, allowed=plan.towers)
        modules = SiteModules(list(tower_modules), layout, groups.gradients, device, request.bucket_mib, formats)
        setattr(model, PATH, nn.ModuleList())
    sptt = SPTT(layout, [f for config in configs for f in config.feature_names], lookup, groups, modules, device, formats)
    if modules is not None:
        model.forward = partial(_predict, sptt, given.predict_from_towers)
    return Running(sptt, local_modules=modules)


def _predict(sptt: SPTT, predict_from_towers: Callable, dense: torch.Tensor | None, sparse: Any) -> torch.Tensor:
    """A tower model's forward pass: dense [B, K] or None, the features of B samples -> logits [B]."""
    return predict_from_towers(dense, sptt(sparse))


def _to_hold(layout: Layout, rank: int, formats: dict[str, str]) -> list[ToHold]:
    """The shards behind this rank's slots, in their order."""
    held = []
    for slots, summed in ((layout.whole[rank], False), (layout.blocks[rank], True)):
        for slot in _first_of_each_shard(slots):
            table, shard = slot.table, slot.shard
            here = HeldShard(table.name, shard.row_start, shard.row_stop, shard.col_start, shard.col_stop, len(table.features), 0)
            held.append(ToHold(here, formats[table.name], "sum" if summed else table.pooling))
    return held


def _first_of_each_shard(slots: Sequence[Slot]) -> list[Slot]:
    return [slot for slot in slots if slot.feature == slot.table.features[0]]


def _groups(plan: ShardingPlan, modules: bool) -> TowerGroups:
    """Every rank makes all groups, in one order, its own or not."""
    sites = sites_of_plan(plan)
    of_site = [sites.ranks_of(site) for site in range(sites.count)]
    world = None
    if plan.permute == "none" and sites.peer_order != tuple(range(plan.world_size)):
        world = own_group([sites.peer_order])
    return TowerGroups(
        world=world or _everyone(),
        site=own_group(of_site),
        peers=own_group([sites.peers_at(place) for place in range(sites.ranks)]),
        gradients=own_group(of_site) if modules else None,
    )


def _everyone() -> dist.ProcessGroup:
    world = dist.group.WORLD
    assert world is not None
    return world
