"""From a model and a plan with towers to SPTT in place of the model's tables."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from recsys_lab.errors import UserError
from recsys_lab.executor.execution import Request, Running
from recsys_lab.executor.groups import own_group
from recsys_lab.schemes.towers.execute.layout import Layout
from recsys_lab.schemes.towers.execute.modules import PATH, SiteModules
from recsys_lab.schemes.towers.execute.sptt import SPTT, TowerGroups


def run(request: Request) -> Running:
    """SPTT in place of the model's tables. Collective.

    A model with tower modules loses them to it, and its forward pass becomes `predict_from_towers` of what they give.
    Raises UserError where the model has other towers than the plan.
    """
    model: Any = request.model
    plan, tower_modules = request.plan, getattr(model, PATH, None)
    layout, modules = Layout(plan, dist.get_rank()), None
    groups = _groups(layout, modules=bool(tower_modules))
    if tower_modules:
        if tuple(map(tuple, model.tower_features)) != plan.towers:
            raise UserError("the model has other towers than the plan", where="towers", given=model.tower_features, allowed=plan.towers)
        modules = SiteModules(list(tower_modules), layout, groups.gradients, request)
        setattr(model, PATH, nn.ModuleList())
    sptt = SPTT(request, layout, groups, modules)
    if modules is not None:
        model.forward = partial(_predict, sptt, model.predict_from_towers)
    return Running(sptt, local_modules=modules)


def _predict(sptt: SPTT, predict_from_towers: Callable, dense: torch.Tensor | None, sparse: Any) -> torch.Tensor:
    """A tower model's forward pass: dense [B, K] or None, the features of B samples -> logits [B]."""
    return predict_from_towers(dense, sptt(sparse))


def _groups(layout: Layout, modules: bool) -> TowerGroups:
    """Every rank makes all groups, in one order, its own or not."""
    plan, sites = layout.plan, layout.sites
    of_site = [sites.ranks_of(site) for site in range(sites.count)]
    permuted = plan.permute == "none" and sites.peer_order != tuple(range(plan.world_size))
    world = own_group([sites.peer_order]) if permuted else dist.group.WORLD
    assert world is not None
    return TowerGroups(
        world=world,
        site=own_group(of_site),
        peers=own_group([sites.peers_at(place) for place in range(sites.ranks)]),
        gradients=own_group(of_site) if modules else None,
    )
