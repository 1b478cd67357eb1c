"""The executor of DMT (arXiv 2403.00877): SPTT's steps a to f in place of a model's tables, and tower modules between e and f.

`sptt`: the walk-through of section 3.1.1, step by step.
`distribute`: step a, and step c of ids.
`exchange`: steps c, d and f: the permute of rows, and what travels inside a site and between peers.
`modules`: tower modules, their gradients averaged within their site.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from recsys_lab.errors import UserError
from recsys_lab.executor.execution import Execution, Request, Running
from recsys_lab.schemes.towers.execute.modules import PATH, SiteModules
from recsys_lab.schemes.towers.execute.sptt import SPTT
from recsys_lab.schemes.towers.layout import Layout


def run(request: Request) -> Running:
    """SPTT in place of the model's tables. Collective.

    A model with tower modules loses them to it, and its forward pass becomes `predict_from_towers` of what they give.
    Raises UserError where the model has other towers than the plan.
    """
    model: Any = request.model
    plan, tower_modules = request.plan, getattr(model, PATH, None)
    layout, modules = Layout(plan, dist.get_rank()), None
    if tower_modules:
        if tuple(map(tuple, model.tower_features)) != plan.towers:
            raise UserError("the model has other towers than the plan", where="towers", given=model.tower_features, allowed=plan.towers)
        modules = SiteModules(list(tower_modules), layout, request)
        setattr(model, PATH, nn.ModuleList())
    sptt = SPTT(request, layout, modules)
    if modules is not None:
        model.forward = partial(_predict, sptt, model.predict_from_towers)
    return Running(sptt, local_modules=modules)


def _predict(sptt: SPTT, predict_from_towers: Callable, dense: torch.Tensor | None, sparse: Any) -> torch.Tensor:
    """A tower model's forward pass: dense [B, K] or None, the features of B samples -> logits [B]."""
    return predict_from_towers(dense, sptt(sparse))


EXECUTION = Execution(run)
