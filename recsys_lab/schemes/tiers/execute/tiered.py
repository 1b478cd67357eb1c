"""Tables whose rows lie in FlexShard's three tiers (arXiv 2301.02959, sections 4.4 and 4.5), in place of a model's collection.

| tier | ids and rows travel | gradients are averaged |
|---|---|---|
| replicated | nowhere | over all ranks |
| host_sharded | between the ranks of a host | over its peers on the other hosts |
| row_sharded | between all ranks | nowhere |

TorchRec's row-wise exchange serves the last two, each over its own process group. All of a pass is under way at once: every
exchange of ids is issued before one is waited for, so is every exchange of rows, and the replicated tier is looked up while they
travel. Autograd runs last what was made first, so in the backward pass, too, all exchanges of gradients are issued first; then the
replicated tier's gradient leaves, then the host-sharded tier's as soon as it is there.

Shapes: B samples, D columns, N ids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torchrec.modules.embedding_configs import EmbeddingBagConfig, PoolingType
from torchrec.sparse.jagged_tensor import JaggedTensor, KeyedJaggedTensor, KeyedTensor

from recsys_lab.executor.ahead import Ahead, ShardedInput
from recsys_lab.executor.collection import Config, Sharded
from recsys_lab.executor.table_batch import TableBatch
from recsys_lab.schemes.tiers.execute.merge import add_pooled, to_places
from recsys_lab.schemes.tiers.execute.parts import TierParts
from recsys_lab.schemes.tiers.execute.split import TierPart, TierSplit, only
from recsys_lab.schemes.tiers.execute.watch import TierWatch

WHOLE = "whole"  # stands beside the tiers' names for the tables that the plan places as a whole


@dataclass(frozen=True)
class Tiered:
    """A batch cut by tier (`tier` of each of its ids), and the ids of those tiers that are exchanged on their way."""

    tiered: KeyedJaggedTensor
    tier: torch.Tensor
    parts: dict[str, TierPart]
    inputs: dict[str, ShardedInput]

    def send(self) -> None:
        for one in self.inputs.values():
            one.send()


class TieredEmbeddings(nn.Module):
    """In and out like the unsharded collection of the tables `configs`: a KeyedTensor, or a JaggedTensor a feature.

    `tiers` and `split` are of the tables that are sharded by row, `whole` of the others (None if there are none).
    """

    def __init__(self, configs: Sequence[Config], tiers: TierParts, split: TierSplit, watch: TierWatch, whole: Sharded | None):
        super().__init__()
        # In plain attributes, which torch does not search: their buffers are none of the model's.
        self._parts = ({} if whole is None else {WHOLE: whole}) | tiers.exchanged, tiers.at_home
        self._split, self._watch = split, watch
        self._pooled = isinstance(configs[0], EmbeddingBagConfig)
        self._dims = {f: config.embedding_dim for config in configs for f in config.feature_names}
        self._means = {f for c in configs if isinstance(c, EmbeddingBagConfig) and c.pooling == PoolingType.MEAN for f in c.feature_names}
        self._of_whole = [f for config in configs if config.name not in split.tables for f in config.feature_names]
        self.ahead = Ahead(self._begin)

    @property
    def batches(self) -> list[TableBatch]:
        return [batch for parts in self._parts for part in parts.values() for batch in part.batches]

    def forward(self, sparse: KeyedJaggedTensor) -> KeyedTensor | dict[str, JaggedTensor]:
        exchanged, at_home = self._parts
        begun = self.ahead.take(sparse)
        self._watch.see(begun.tiered, begun.tier)
        of = begun.inputs
        rows = {name: one.compute_and_output_dist(of[name].context, of[name].received()) for name, one in exchanged.items()}
        home = {name: one(begun.parts[name].features) for name, one in at_home.items()}
        found = {name: waiting.wait() for name, waiting in rows.items()}
        put_together = self._add if self._pooled else self._place
        return put_together(begun.tiered, begun.parts, home, found)

    def _begin(self, sparse: KeyedJaggedTensor) -> Tiered:
        tiered = self._split.chosen(sparse)
        tier, row = self._split.place(tiered)
        parts = self._split.parts(tiered, tier, row)
        given = {name: part.features for name, part in parts.items()}
        if self._of_whole:
            given[WHOLE] = only(sparse, self._of_whole)
        return Tiered(tiered, tier, parts, {name: ShardedInput(one, given[name]) for name, one in self._parts[0].items()})

    def _add(self, tiered: KeyedJaggedTensor, parts: Mapping[str, TierPart], home: dict, found: dict) -> KeyedTensor:
        pooled = [found[name].to_dict() for name in found]
        for name, matrix in home.items():
            features = parts[name].features.keys()
            pooled.append(dict(zip(features, matrix.split([self._dims[f] for f in features], dim=1))))
        summed = add_pooled(list(self._dims), pooled)
        lengths = tiered.lengths().view(len(self._split.features), -1)
        for position, feature in enumerate(self._split.features):
            if feature in self._means:
                summed[feature] = summed[feature] / lengths[position].clamp(min=1).unsqueeze(1)
        return KeyedTensor(list(summed), list(self._dims.values()), torch.cat(list(summed.values()), dim=1))

    def _place(self, tiered: KeyedJaggedTensor, parts: Mapping[str, TierPart], home: dict, found: dict) -> dict[str, JaggedTensor]:
        rows = []
        for name, part in parts.items():
            rows.append(home[name] if name in home else torch.cat([found[name][f].values() for f in part.features.keys()]))
        merged = to_places([part.order for part in parts.values()], rows).split(tiered.length_per_key())
        lengths = tiered.lengths().view(len(self._split.features), -1)
        made = {f: JaggedTensor(merged[i], lengths=lengths[i]) for i, f in enumerate(self._split.features)}
        if WHOLE in found:
            made |= {f: found[WHOLE][f] for f in self._of_whole}
        return {feature: made[feature] for feature in self._dims}
