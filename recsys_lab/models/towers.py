"""Towers of DMT (Disaggregated Multi-Tower, Luo et al. 2024): a model whose features are in groups, each with a tower module.

    dense [B, K] -> bottom MLP ------------------------------------+-> interaction of all -> over MLP -> logit [B]
    tower t: F_t x [B, N] -> tower module t -> [B, O_t] of D each -+

A tower module sees its own features only, so its ranks need no others (section 3.2). N: an embedding's dimension; D: of what modules
give, and of all that interacts after them. A model brings its own module in its own file. Here is what models have in common.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys_lab.errors import UserError
from recsys_lab.models.click_model import ModelInputs
from recsys_lab.models.interaction import InteractionModel
from recsys_lab.models.layers import check_layers, feature_names
from recsys_lab.tables import Table

#: Groups of feature names, one a tower.
Towers = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class TowerModules:
    """Each tower's module, and the `vectors` of `dim` that it makes."""

    modules: list[nn.Module]
    vectors: list[int]
    dim: int


class TowerModel(InteractionModel):
    """A model in which the outputs of tower modules interact instead of the embeddings: `class DLRMWithTowers(TowerModel, DLRM)`.

    The model without towers names it as its `with_towers`, and it is built with the same keys. Its constructor is the model's own,
    which finds the modules' vectors in place of the tables'. An executor may place each module where its tower's tables are, and then
    calls `predict_from_towers`. It needs, of each tower t:

        tower_modules[t]: maps [B, F_t, N], its features in the tower's order, to [B, O_t];
        tower_features[t]: the names of its F_t features;
        tower_widths[t]: O_t, a multiple of D.
    """

    tower_modules: nn.ModuleList
    tower_widths: tuple[int, ...]
    vector_dim: int  # D

    def __init__(self, inputs: ModelInputs, towers: Towers, *, over_layers: list[int], tower: Any, **keys: Any):
        check_layers("model.over_layers", over_layers, 1, "one logit")
        if getattr(tower, "over_layers", None) is not None:
            over_layers = tower.over_layers
            check_layers("model.tower.over_layers", over_layers, 1, "one logit")
        self.tower_features = check_towers(towers, feature_names(inputs.tables))  # no module: torch takes it before its own constructor
        self.carries_first_order = bool(keys.get("first_order"))
        super().__init__(inputs, over_layers=over_layers, tower=tower, **keys)
        if not inputs.dense_width:  # then nothing is left to normalise behind the towers
            self.normalise = nn.Identity()

    def add_vectors(self, tables: Sequence[Table], dim: int, device: torch.device | None, tower: Any, normalise: bool) -> tuple[int, int]:
        towers = self.modules_of(dim, tower, normalise, device)
        modules = [FirstOrderTower(module) for module in towers.modules] if self.carries_first_order else towers.modules
        self.tower_modules = nn.ModuleList(modules)
        self.tower_widths, self.vector_dim = tuple(count * towers.dim for count in towers.vectors), towers.dim
        super().add_vectors(tables, dim, device, tower, normalise)
        return sum(towers.vectors), towers.dim

    def modules_of(self, width: int, tower: Any, normalise: bool, device: torch.device | None) -> TowerModules:
        """A module for each of `tower_features`, of embeddings of `width`. `tower`: the model's key of that name; `normalise`: whether
        each vector is, as it enters its tower. Raises UserError for sizes that cannot be.
        """
        raise NotImplementedError

    def forward(self, dense: Tensor | None, sparse: KeyedJaggedTensor) -> Tensor:
        """dense [B, K] or None, F features of B bags -> logits [B]."""
        return self.predict(dense, self.embeddings(sparse).to_dict())

    def predict(self, dense: Tensor | None, looked_up: Mapping[str, Tensor]) -> Tensor:
        """The model after its tables: dense [B, K] and each feature's [B, N] -> logits [B]."""
        towers = zip(self.tower_modules, self.tower_features)
        return self.predict_from_towers(dense, [module(torch.stack([looked_up[f] for f in own], dim=1)) for module, own in towers])

    def predict_from_towers(self, dense: Tensor | None, outputs: list[Tensor]) -> Tensor:
        """The model after its tower modules: dense [B, K] and each tower's [B, O_t], in the towers' order -> logits [B]."""
        return self.score(dense, self.read_dense(dense), [output.unflatten(1, (-1, self.vector_dim)) for output in outputs])

    def first_of(self, part: Tensor) -> Tensor:
        return part[:, :1, 0]

    def together(self, bottom: Tensor | None, vectors: list[Tensor]) -> Tensor:
        """As InteractionModel's, but only the dense features' vector is normalised: what comes from towers was as it went in.

        Normalising twice costs Frappe 0.001 to 0.002 AUC (experiments/dmt).
        """
        own = [] if bottom is None else [self.normalise(bottom.unsqueeze(1))]
        return torch.cat([*own, *vectors], dim=1)


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


def check_towers(towers: Sequence[Sequence[str]], features: Sequence[str]) -> Towers:
    """`towers` as tuples. Raises UserError unless every feature is in exactly one, and none is empty."""
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


def passes_through(features: int, width: int, vectors: int, dim: int) -> bool:
    """Whether a tower has nothing to compress: one feature of `width`, of which one vector of that width is wanted.

    Without it the 16 towers of DMT's table 4, six of which have one of Criteo's 26 features, would cost 9.34 and not 8.75 MFLOP.
    """
    return features == 1 and (vectors, dim) == (1, width)
