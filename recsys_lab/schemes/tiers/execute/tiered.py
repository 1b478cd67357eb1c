"""Tables whose rows lie in FlexShard's three tiers (arXiv 2301.02959, sections 4.4 and 4.5), in place of a model's collection.

| tier | ids and rows travel | gradients are averaged |
|---|---|---|
| replicated | nowhere | over all ranks |
| host-sharded | between the ranks of a host | over its peers on the other hosts |
| row-sharded | between all ranks | nowhere |

TorchRec's row-wise exchange serves the last two, each over its own process group. All of a pass is under way at once: every
exchange of ids is issued before one is waited for, so is every exchange of rows, and the replicated tier is looked up while they
travel. Autograd runs last what was made first, so in the backward pass, too, all exchanges of gradients are issued first; then the
replicated tier's gradient leaves, then the host-sharded tier's as soon as it is there.

Shapes: B samples, D columns, N ids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torchrec.modules.embedding_configs import EmbeddingBagConfig, PoolingType
from torchrec.sparse.jagged_tensor import JaggedTensor, KeyedJaggedTensor, KeyedTensor

from recsys_lab.executor.ahead import Ahead, ShardedInput
from recsys_lab.executor.execution import Config
from recsys_lab.executor.table_batch import TableBatch
from recsys_lab.schemes.tiers.execute.merge import add_pooled, to_places
from recsys_lab.schemes.tiers.execute.parts import TierParts
from recsys_lab.schemes.tiers.execute.split import TierPart, TierSplit
from recsys_lab.schemes.tiers.execute.watch import TierWatch


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
    """In and out like the unsharded collection of the tables `configs`: a KeyedTensor, or a JaggedTensor a feature."""

    def __init__(self, configs: Sequence[Config], tiers: TierParts, split: TierSplit, watch: TierWatch):
        super().__init__()
        self.__dict__["_tiers"] = tiers  # not searched by torch: its buffers are none of the model's
        self._split, self._watch = split, watch
        self._pooled = isinstance(configs[0], EmbeddingBagConfig)
        self._dims = {f: config.embedding_dim for config in configs for f in config.feature_names}
        self._means = {f for c in configs if isinstance(c, EmbeddingBagConfig) and c.pooling == PoolingType.MEAN for f in c.feature_names}
        self.ahead: Ahead = Ahead(self.begin)

    @property
    def batches(self) -> list[TableBatch]:
        return self._tiers.batches

    def forward(self, sparse: KeyedJaggedTensor) -> KeyedTensor | dict[str, JaggedTensor]:
        return self.issue(self.ahead.take(sparse)).wait()

    def begin(self, sparse: KeyedJaggedTensor) -> Tiered:
        tiered = self._split.chosen(sparse)
        tier, row = self._split.place(tiered)
        parts = self._split.parts(tiered, tier, row)
        exchanged = self._tiers.exchanged.items()
        return Tiered(tiered, tier, parts, {name: ShardedInput(one, parts[name].features) for name, one in exchanged})

    def issue(self, begun: Tiered) -> TiersUnderWay:
        self._watch.see(begun.tiered, begun.tier)
        of = begun.inputs
        rows = {name: one.compute_and_output_dist(of[name].context, of[name].received()) for name, one in self._tiers.exchanged.items()}
        home = {name: one(begun.parts[name].features) for name, one in self._tiers.at_home.items()}
        return TiersUnderWay(self, begun, rows, home)

    def added_up(self, begun: Tiered, home: Mapping[str, torch.Tensor], arrived: Mapping[str, KeyedTensor]) -> KeyedTensor:
        """Pooled rows of all tiers, a mean divided by its bag's length."""
        pooled = [arrived[name].to_dict() for name in arrived]
        for name, matrix in home.items():
            features = begun.parts[name].features.keys()
            pooled.append(dict(zip(features, matrix.split([self._dims[f] for f in features], dim=1))))
        summed = add_pooled(list(self._dims), pooled)
        lengths = begun.tiered.lengths().view(len(self._split.features), -1)
        for position, feature in enumerate(self._split.features):
            if feature in self._means:
                summed[feature] = summed[feature] / lengths[position].clamp(min=1).unsqueeze(1)
        return KeyedTensor(list(summed), list(self._dims.values()), torch.cat(list(summed.values()), dim=1))

    def in_places(self, begun: Tiered, home: Mapping[str, torch.Tensor], arrived: Mapping[str, dict]) -> dict[str, JaggedTensor]:
        """Rows of all tiers, each where its id stands in the sequence."""
        rows = []
        for name, part in begun.parts.items():
            rows.append(home[name] if name in home else torch.cat([arrived[name][f].values() for f in part.features.keys()]))
        merged = to_places([part.order for part in begun.parts.values()], rows).split(begun.tiered.length_per_key())
        lengths = begun.tiered.lengths().view(len(self._split.features), -1)
        sequences = {f: JaggedTensor(merged[i], lengths=lengths[i]) for i, f in enumerate(self._split.features)}
        return {feature: sequences[feature] for feature in self._dims}


@dataclass(frozen=True)
class TiersUnderWay:
    """Rows on their way, those of the tiers at home looked up already."""

    embeddings: TieredEmbeddings
    begun: Tiered
    rows: Mapping[str, Any]
    home: Mapping[str, torch.Tensor]

    def wait(self) -> KeyedTensor | dict[str, JaggedTensor]:
        arrived = {name: waiting.wait() for name, waiting in self.rows.items()}
        merge = self.embeddings.added_up if self.embeddings._pooled else self.embeddings.in_places
        return merge(self.begun, self.home, arrived)
