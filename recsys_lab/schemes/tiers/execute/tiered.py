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

Shapes: B samples, D columns, N ids of all tiers, n of one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torchrec.modules.embedding_configs import EmbeddingBagConfig, PoolingType
from torchrec.sparse.jagged_tensor import JaggedTensor, KeyedJaggedTensor, KeyedTensor

from recsys_lab.executor.collection import InputDistribution
from recsys_lab.executor.execution import Part, Request, keyed
from recsys_lab.executor.table_batch import TableBatch
from recsys_lab.schemes.tiers.execute.parts import TierParts
from recsys_lab.schemes.tiers.execute.split import TierPart, TierSplit
from recsys_lab.schemes.tiers.execute.watch import TierWatch


@dataclass(frozen=True)
class Tiered:
    """A batch cut by tier (`tier` of each of its ids), and the ids of those tiers that are exchanged on their way."""

    batch: KeyedJaggedTensor
    tier: torch.Tensor
    parts: dict[str, TierPart]
    begun: dict[str, InputDistribution]

    def send(self) -> None:
        for one in self.begun.values():
            one.send()

    def lengths(self, features: list[str]) -> dict[str, torch.Tensor]:
        """[B] by feature."""
        return dict(zip(features, self.batch.lengths().view(len(features), -1)))


class TieredEmbeddings(Part):
    """All tables of the request."""

    _tiers: TierParts

    def __init__(self, request: Request, tiers: TierParts, split: TierSplit, watch: TierWatch):
        super().__init__()
        self.__dict__["_tiers"] = tiers  # not searched by torch: its buffers are none of the model's
        self._split, self._watch = split, watch
        self._pooled, self._dims, bags = request.pooled, request.dims, (c for c in request.configs if isinstance(c, EmbeddingBagConfig))
        self._means = [feature for config in bags if config.pooling == PoolingType.MEAN for feature in config.feature_names]

    @property
    def batches(self) -> list[TableBatch]:
        return self._tiers.batches

    def begin(self, sparse: KeyedJaggedTensor) -> Tiered:
        batch = self._split.chosen(sparse)
        tier, row = self._split.place(batch)
        parts = self._split.parts(batch, tier, row)
        return Tiered(batch, tier, parts, {name: one.begin(parts[name].features) for name, one in self._tiers.exchanged.items()})

    def issue(self, begun: Tiered) -> Callable[[], Any]:
        self._watch.see(begun.batch, begun.tier)
        under_way = {name: part.issue(begun.begun[name]) for name, part in self._tiers.exchanged.items()}
        home = {name: look_up(begun.parts[name].features) for name, look_up in self._tiers.at_home.items()}
        return partial(self._added_up if self._pooled else self._in_places, begun, home, under_way)

    def _added_up(self, begun: Tiered, home: Mapping[str, torch.Tensor], under_way: Mapping[str, Callable[[], KeyedTensor]]) -> KeyedTensor:
        """Pooled rows of all tiers, a mean divided by its bag's length."""
        pooled = [wait().to_dict() for wait in under_way.values()]
        for name, matrix in home.items():
            features = begun.parts[name].features.keys()
            pooled.append(dict(zip(features, matrix.split([self._dims[f] for f in features], dim=1))))
        summed: dict[str, torch.Tensor] = {}
        for tier in pooled:
            summed |= {feature: summed[feature] + rows if feature in summed else rows for feature, rows in tier.items()}
        lengths = begun.lengths(self._split.features)
        summed |= {feature: summed[feature] / lengths[feature].clamp(min=1).unsqueeze(1) for feature in self._means}
        return keyed(summed, self._dims)

    def _in_places(self, begun: Tiered, home: Mapping[str, torch.Tensor], under_way: Mapping[str, Callable[[], dict]]) -> dict:
        """Rows of all tiers, each where its id stands in the sequence."""
        rows = dict(home)
        for name, wait in under_way.items():
            arrived = wait()
            rows[name] = torch.cat([arrived[feature].values() for feature in begun.parts[name].features.keys()])
        merged = to_places([part.order for part in begun.parts.values()], [rows[name] for name in begun.parts])
        sequences = dict(zip(self._split.features, merged.split(begun.batch.length_per_key())))
        lengths = begun.lengths(self._split.features)
        return {feature: JaggedTensor(sequences[feature], lengths=lengths[feature]) for feature in self._dims}


def to_places(places: Sequence[torch.Tensor], rows: Sequence[torch.Tensor]) -> torch.Tensor:
    """[N, D] with `rows[k]` [n, D] at `places[k]` [n]. Together the places are 0 to N - 1, each once."""
    return _ToPlaces.apply(len(places), *places, *rows)


class _ToPlaces(torch.autograd.Function):
    """One copy each way, and the same bits every time: no two rows go to one place."""

    @staticmethod
    def forward(ctx, parts: int, *both: torch.Tensor) -> torch.Tensor:
        places, rows = both[:parts], both[parts:]
        ctx.save_for_backward(*places)
        merged = rows[0].new_empty(sum(len(part) for part in places), rows[0].shape[1])
        for place, part in zip(places, rows):
            merged.index_copy_(0, place, part)
        return merged

    @staticmethod
    def backward(ctx, grad: torch.Tensor):
        places = ctx.saved_tensors
        return (None, *(None for _ in places), *(grad.index_select(0, place) for place in places))
