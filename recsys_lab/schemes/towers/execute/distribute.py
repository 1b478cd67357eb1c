"""Step a of SPTT: every feature of every sample goes to the ranks that look it up. One all-to-all over all ranks, ids and lengths apart.

The same for all schemes: a feature goes whole to each column shard of its table, and cut by row to the blocks of a row-wise one.
B, the samples of a rank, is the same on all ranks.

Shapes: R ranks, B samples, F features, K slots of this rank, N ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys_lab.schemes.towers.execute.layout import Layout

#: (lengths int32 [parts, B], ids int64 [N]), part after part.
Bags = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Received:
    """What this rank looks up: for each of its K slots the bags of all ranks' samples, rank after rank in `order`."""

    features: KeyedJaggedTensor
    samples: int  # B


class FeatureDistribution:
    """`group`: all ranks, in the order in which they are numbered there. `order`: in which ranks' samples are looked up.

    Where the two differ, the ids that arrive are permuted: step c, swapped with the look-up (section 3.1.3). That costs nothing more, since
    ids that come rank by rank must be put slot by slot in any case.
    """

    def __init__(self, layout: Layout, features: Sequence[str], group: dist.ProcessGroup, order: Sequence[int], device: torch.device):
        members = dist.get_process_group_ranks(group)
        self._group, self._features = group, list(features)
        self._slots_of = [len(layout.slots(rank)) for rank in members]
        self._buckets = _Buckets(layout, self._features, device) if layout.row_features else None
        pool = {name: i for i, name in enumerate(self._features)}
        rows = {name: j for j, (name, _) in enumerate(layout.row_features)}
        send: list[int] = []
        for rank in members:
            first = len(pool) + layout.sites.place_of_rank(rank) * len(rows)
            send += [pool[slot.feature] for slot in layout.whole[rank]] + [first + rows[slot.feature] for slot in layout.blocks[rank]]
        own = len(layout.slots(dist.get_rank()))
        self._own = own
        arrive = [members.index(rank) * own + slot for slot in range(own) for rank in order]
        self._send = torch.tensor(send, dtype=torch.int32, device=device)
        self._arrive = torch.tensor(arrive, dtype=torch.int32, device=device)
        self._receiver = torch.repeat_interleave(torch.tensor(self._slots_of, device=device))  # of each part that is sent

    def begin(self, batch: KeyedJaggedTensor) -> OnTheWay:
        lengths, ids = self._cut(batch)
        ids_to = torch.zeros(len(self._slots_of), dtype=torch.int64, device=ids.device).index_add_(0, self._receiver, lengths.sum(1))
        return OnTheWay(self, (lengths, ids), ids_to)

    def sizes(self, ids_to: torch.Tensor, ids_from: torch.Tensor) -> list[Any]:
        """`ids_from` each rank, once the works have been waited for."""
        return [dist.all_to_all_single(ids_from, ids_to, group=self._group, async_op=True)]

    def exchange(self, bags: Bags, sent: list[int], taken: list[int]) -> tuple[Bags, list[Any]]:
        """What this rank takes, once the works have been waited for."""
        (lengths, ids), ranks = bags, len(self._slots_of)
        theirs = lengths.new_empty(ranks * self._own, lengths.shape[1]), ids.new_empty(sum(taken))
        works = [
            dist.all_to_all_single(theirs[0], lengths, [self._own] * ranks, self._slots_of, group=self._group, async_op=True),
            dist.all_to_all_single(theirs[1], ids, taken, sent, group=self._group, async_op=True),
        ]
        return theirs, works

    def arrived(self, theirs: Bags) -> Received:
        lengths, ids = _chosen(theirs, self._arrive, len(theirs[1]))
        keys, samples = [str(slot) for slot in range(self._own)], theirs[0].shape[1]
        return Received(KeyedJaggedTensor(keys, ids, lengths=lengths.reshape(-1), stride=len(self._slots_of) * samples), samples)

    def _cut(self, batch: KeyedJaggedTensor) -> Bags:
        """What is sent, part by part in the order of the receivers' slots."""
        keys = batch.keys()
        if keys != self._features:
            batch = batch.permute([keys.index(feature) for feature in self._features])
        bags = batch.lengths().view(len(self._features), batch.stride()), batch.values()
        if self._buckets is not None:
            more = self._buckets(*bags)
            bags = torch.cat([bags[0], more[0]]), torch.cat([bags[1], more[1]])
        return _chosen(bags, self._send)


class OnTheWay:
    """A batch's ids on their way: how many go where, then lengths and ids."""

    def __init__(self, distribution: FeatureDistribution, bags: Bags, ids_to: torch.Tensor):
        self._distribution, self._bags, self._ids = distribution, bags, (ids_to, torch.empty_like(ids_to))
        self._works = distribution.sizes(*self._ids)

    def send(self) -> None:
        self._wait()
        sent, taken = torch.stack(self._ids).tolist()
        self._theirs, self._works = self._distribution.exchange(self._bags, sent, taken)

    def received(self) -> Received:
        self._wait()
        return self._distribution.arrived(self._theirs)

    def _wait(self) -> None:
        for work in self._works:
            work.wait()


class _Buckets:
    """Cuts the ids of row-wise features by the block of rows that they are in: M parts of J features."""

    def __init__(self, layout: Layout, features: list[str], device: torch.device):
        places = layout.sites.ranks
        blocks = [-(-table.rows // places) for _, table in layout.row_features]
        self._places = places
        self._chosen = torch.tensor([features.index(name) for name, _ in layout.row_features], dtype=torch.int32, device=device)
        self._block = torch.tensor(blocks, device=device)

    def __call__(self, lengths: torch.Tensor, ids: torch.Tensor) -> Bags:
        """[M * J, B] lengths and their ids, numbered within the block."""
        lengths, ids = _chosen((lengths, ids), self._chosen)
        bags, samples = lengths.numel(), lengths.shape[1]
        bag = torch.repeat_interleave(lengths.reshape(-1), output_size=len(ids))
        block = self._block[bag // samples]
        place = ids // block
        part, order = (place * bags + bag).sort(stable=True)
        counts = torch.bincount(part, minlength=self._places * bags).to(lengths.dtype)
        return counts.view(-1, samples), (ids - place * block)[order]


def _chosen(bags: Bags, parts: torch.Tensor, total: int | None = None) -> Bags:
    """Those `parts` of `bags`, in their order. `total`: how many ids they have together, if it is known."""
    lengths, ids, _ = torch.ops.fbgemm.permute_2D_sparse_data(parts, bags[0], bags[1], None, total)
    return lengths, ids
