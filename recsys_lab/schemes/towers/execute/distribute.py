"""Step a of SPTT: every feature of every sample goes to the ranks that look it up. One all-to-all over all ranks, ids and lengths apart.

The same for all schemes. A feature goes whole to each column shard of its table. It is cut by row for the blocks of a row-wise table. B,
the samples of a rank, is the same on all ranks.

Shapes: R ranks, B samples, F features, K slots of this rank, N ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys_lab.executor.execution import only
from recsys_lab.schemes.towers.layout import Layout
from recsys_lab.schemes.towers.sites import tower_of_features

#: (lengths int32 [parts, B], ids int64 [N]), part after part.
Bags = tuple[torch.Tensor, torch.Tensor]


class FeatureDistribution:
    """`group`: all ranks, in the order in which they are numbered there. `order`: in which ranks' samples are looked up.

    Where the two differ, the ids that arrive are permuted: step c, swapped with the look-up (section 3.1.3). That costs nothing more, since
    ids that come rank by rank must be put slot by slot in any case.
    """

    def __init__(self, layout: Layout, features: Sequence[str], group: dist.ProcessGroup, order: Sequence[int], device: torch.device):
        members = dist.get_process_group_ranks(group)
        self.group, self._features = group, list(features)
        self.slots_of = [len(layout.slots(rank)) for rank in members]
        self._buckets = _Buckets(layout, self._features, device) if layout.row_features else None
        pool = {name: i for i, name in enumerate(self._features)}
        rows = {name: j for j, (name, _) in enumerate(layout.row_features)}
        send: list[int] = []
        for rank in members:
            first = len(pool) + layout.sites.place_of_rank(rank) * len(rows)
            send += [pool[slot.feature] for slot in layout.whole[rank]] + [first + rows[slot.feature] for slot in layout.blocks[rank]]
        self.own = len(layout.slots(layout.rank))
        arrive = [members.index(rank) * self.own + slot for slot in range(self.own) for rank in order]
        self._send = torch.tensor(send, dtype=torch.int32, device=device)
        self.arrive = torch.tensor(arrive, dtype=torch.int32, device=device)
        self.receiver = torch.repeat_interleave(torch.tensor(self.slots_of, device=device))  # of each part that is sent

    def cut(self, batch: KeyedJaggedTensor) -> Bags:
        """What is sent, part by part in the order of the receivers' slots."""
        batch = only(batch, self._features)
        bags = batch.lengths().view(len(self._features), batch.stride()), batch.values()
        if self._buckets is not None:
            more = self._buckets(*bags)
            bags = torch.cat([bags[0], more[0]]), torch.cat([bags[1], more[1]])
        return _parts_of(bags, self._send)


class PendingFeatures:
    """A batch's ids under way: how many go where, then lengths and ids."""

    def __init__(self, distribution: FeatureDistribution, batch: KeyedJaggedTensor):
        self._to, self._bags = distribution, distribution.cut(batch)
        sizes = torch.zeros(len(distribution.slots_of), dtype=torch.int64, device=batch.device())
        self._sent = sizes.index_add(0, distribution.receiver, self._bags[0].sum(1))
        self._received = torch.empty_like(sizes)
        self._works: list[Any] = [dist.all_to_all_single(self._received, self._sent, group=distribution.group, async_op=True)]

    def send(self) -> None:
        self._complete()
        sent, received = torch.stack([self._sent, self._received]).tolist()
        (lengths, ids), to, own = self._bags, self._to, [self._to.own] * len(sent)
        self._incoming = lengths.new_empty(sum(own), lengths.shape[1]), ids.new_empty(sum(received))
        self._works = [
            dist.all_to_all_single(self._incoming[0], lengths, own, to.slots_of, group=to.group, async_op=True),
            dist.all_to_all_single(self._incoming[1], ids, received, sent, group=to.group, async_op=True),
        ]

    def wait(self) -> KeyedJaggedTensor:
        """What this rank looks up. Each of its K slots has the bags of all ranks' samples, rank after rank in the distribution's order."""
        self._complete()
        lengths, ids = _parts_of(self._incoming, self._to.arrive, len(self._incoming[1]))
        keys = [str(slot) for slot in range(self._to.own)]
        return KeyedJaggedTensor(keys, ids, lengths=lengths.reshape(-1), stride=len(self._to.slots_of) * lengths.shape[1])

    def _complete(self) -> None:
        for work in self._works:
            work.wait()


class _Buckets:
    """Cuts the ids of row-wise features by the block of rows that they are in: M parts of J features. M: of the largest site."""

    def __init__(self, layout: Layout, features: list[str], device: torch.device):
        sites, tower_of = layout.sites, tower_of_features(layout.plan.towers)
        ranks = [len(sites.ranks_of(sites.site_of_tower(tower_of[name]))) for name, _ in layout.row_features]
        self._places = max(ranks)
        self._row_features = torch.tensor([features.index(name) for name, _ in layout.row_features], dtype=torch.int32, device=device)
        self._block = torch.tensor([-(-table.rows // count) for (_, table), count in zip(layout.row_features, ranks)], device=device)

    def __call__(self, lengths: torch.Tensor, ids: torch.Tensor) -> Bags:
        """[M * J, B] lengths and their ids, numbered within the block."""
        lengths, ids = _parts_of((lengths, ids), self._row_features)
        in_blocks, ids, *_ = torch.ops.fbgemm.block_bucketize_sparse_features(  # as a sequence: else a GPU mixes the order within a bag
            lengths.reshape(-1), ids, bucketize_pos=False, sequence=True, block_sizes=self._block, my_size=self._places
        )
        return in_blocks.view(-1, lengths.shape[1]), ids


def _parts_of(bags: Bags, parts: torch.Tensor, total: int | None = None) -> Bags:
    """Those `parts` of `bags`, in their order. `total`: how many ids they have together, if it is known."""
    lengths, ids, _ = torch.ops.fbgemm.permute_2D_sparse_data(parts, bags[0], bags[1], None, total)
    return lengths, ids
