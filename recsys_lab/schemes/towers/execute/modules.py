"""Tower modules (DMT, section 3.2) on the ranks of their site. Their gradients never leave it.

Each rank of a site runs its towers on the samples of its peers. All ranks of a site together see every sample. So the mean of their
gradients over the site is the mean over all samples. DistributedDataParallel over the site makes it during the backward pass.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from recsys_lab.executor.execution import LocalModules, Request
from recsys_lab.executor.formats import average_in
from recsys_lab.executor.groups import own_group
from recsys_lab.schemes.towers.layout import Layout

PATH = "tower_modules"  # in a model


class SiteModules(LocalModules):
    """The towers of this rank's site. `columns`: O of every tower of the model."""

    def __init__(self, modules: Sequence[nn.Module], layout: Layout, request: Request):
        super().__init__()
        sites = layout.sites
        self.columns = [_columns(module, layout, tower) for tower, module in enumerate(modules)]
        self.own = _Towers({str(tower): modules[tower].to(request.device) for tower in sites.towers_of(layout.site)})
        self.writes, self.ranks, self.prefix = sites.place_of_rank(layout.rank) == 0, len(sites.ranks_of(layout.site)), PATH
        group = own_group([sites.ranks_of(site) for site in range(sites.count)])  # beside the exchange of rows
        learns = group is not None and any(p.requires_grad for p in self.own.parameters())
        self._run = DistributedDataParallel(self.own, process_group=group, bucket_cap_mb=request.bucket_mib) if learns else self.own
        average_in(self._run, request.formats.gradients)

    def forward(self, towers: list[torch.Tensor]) -> list[torch.Tensor]:
        """[P, F, D] of each of the site's towers -> [P, O]."""
        return self._run(towers)


class _Towers(nn.ModuleDict):
    def forward(self, rows: list[torch.Tensor]) -> list[torch.Tensor]:
        return [tower(part) for tower, part in zip(self.values(), rows, strict=True)]


def _columns(module: nn.Module, layout: Layout, tower: int) -> int:
    """O: what the module gives for a sample, without computing anything."""
    features = layout.plan.towers[tower]
    rows = torch.empty(2, len(features), layout.dims[features[0]], device="meta")
    with torch.no_grad():
        return copy.deepcopy(module).to("meta", torch.float32)(rows).shape[1]
