"""Towers of DMT (Disaggregated Multi-Tower, Luo et al. 2024): a model whose features are in groups, each with a tower module.

    dense [B, K] -> bottom MLP ------------------------------------+-> interaction of all -> over MLP -> logit [B]
    tower t: F_t x [B, N] -> tower module t -> [B, O_t] of D each -+

A tower module sees its own features only, so its ranks need no others (section 3.2). N: an embedding's dimension; D: of what modules
give, and of all that interacts after them. A model brings its own modules in its own file; interaction.py runs them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from recsys_lab.errors import UserError
from recsys_lab.models.click_model import ModelInputs
from recsys_lab.models.layers import check_layers, feature_names
from recsys_lab.models.options import Towers


@dataclass(frozen=True)
class TowerModules:
    """The `features` of each tower, its module, and the `widths` of what that makes. After them vectors of `dim` interact."""

    features: Towers
    modules: list[nn.Module]
    widths: list[int]
    dim: int


class FirstOrderTower(nn.Module):
    """A tower module whose first output is the sum of its features' first-order weights: the ids' own vectors end at the tower.

    So it costs no byte more on the wire, and the logit has those weights as it has without towers.
    """

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module

    def forward(self, embeddings: Tensor) -> Tensor:
        """[B, F, N] -> [B, O]."""
        output = self.module(embeddings)
        first = embeddings[:, :, 0].sum(1, keepdim=True).to(output.dtype)
        return torch.cat([first, output[:, 1:]], dim=1)


def check_towers(inputs: ModelInputs) -> Towers:
    """The towers of `inputs` as tuples. Raises UserError unless every feature is in exactly one, and none is empty."""
    towers, features = inputs.towers, feature_names(inputs.tables)
    if not towers:
        return ()
    members = [feature for tower in towers for feature in tower]
    if any(not tower for tower in towers):
        raise UserError("a tower has no features", where="towers", given=f"{len(towers)} towers of {len(members)} features")
    if odd := [feature for feature in features if members.count(feature) != 1]:
        raise UserError("a feature must be in one tower", where="towers", given=f"{odd[0]} in {members.count(odd[0])} of {len(towers)}")
    if unknown := [feature for feature in members if feature not in set(features)]:
        raise UserError("a tower has a feature that the data do not", where="towers", given=unknown[0])
    return tuple(tuple(tower) for tower in towers)


def over_layers_of(options: Any, towers: TowerModules | None) -> list[int]:
    """The over MLP's widths: with towers those of `options.tower`, where it names some."""
    if towers is None or options.tower.over_layers is None:
        return options.over_layers
    check_layers("model.tower.over_layers", options.tower.over_layers, 1, "one logit")
    return options.tower.over_layers


def passes_through(features: int, width: int, vectors: int, dim: int) -> bool:
    """Whether a tower has nothing to compress: one feature of `width`, of which one vector of that width is wanted.

    Without it the 16 towers of DMT's table 4, six of which have one of Criteo's 26 features, would cost 9.34 and not 8.75 MFLOP.
    """
    return features == 1 and (vectors, dim) == (1, width)
