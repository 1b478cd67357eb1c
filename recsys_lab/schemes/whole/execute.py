"""Whole tables and column shards form a TorchRec collection.

Its exchange of pooled rows may be replaced by that of the CPU DLRM paper (Kalamkar et al. 2020, sections IV-B and IV-C).

    scatter_list    a scatter a table, and a gather of its gradient
    fused_scatter   a scatter a rank, of all its tables' columns at once
    all_to_all      one call

Shapes: R ranks, B samples of one rank, C columns of all tables, O of this rank's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist

from recsys_lab.executor.all_to_all import AllToAll, PendingColumns
from recsys_lab.executor.collection import ShardedBags, run
from recsys_lab.executor.execution import Execution, Part, Request
from recsys_lab.executor.formats import Codec
from recsys_lab.executor.row_exchange import PooledExchange
from recsys_lab.executor.times import Timed
from recsys_lab.executor.torch_private import tables_of_ranks
from recsys_lab.plan.scheme import ALL_TO_ALL, scheme_of
from recsys_lab.schemes.whole.placement import TABLE_WISE


@dataclass(frozen=True)
class Scatters:
    """A scatter of each piece from the rank that looks it up, its root. A gather brings its gradient back there.

    `pieces`: (root, columns), in the order of a sample's pooled row.
    """

    group: dist.ProcessGroup
    pieces: Sequence[tuple[int, int]]

    def forward_dist(self, looked_up: torch.Tensor, codec: Codec) -> PendingColumns:
        """[R * B, O], rank after rank -> parts that make [B, C]."""
        rank, ranks = self.group.rank(), self.group.size()
        widths = [width for root, width in self.pieces if root == rank]
        own = iter(looked_up.split(widths, dim=1) if widths else ())
        works, parts = [], []
        for root, width in self.pieces:
            parts.append(looked_up.new_empty(len(looked_up) // ranks, codec.width(width), dtype=codec.dtype))
            chunks = list(codec.encode(next(own).contiguous()).chunk(ranks)) if root == rank else None
            works.append(dist.scatter(parts[-1], chunks, group=self.group, group_src=root, async_op=True))
        return PendingColumns(works, parts, codec)

    def backward_dist(self, grads: torch.Tensor, codec: Codec) -> PendingColumns:
        """[B, C] -> parts that make [R * B, O]."""
        rank, ranks = self.group.rank(), self.group.size()
        works, parts = [], []
        for (root, width), part in zip(self.pieces, grads.split([width for _, width in self.pieces], dim=1)):
            chunks = None
            if root == rank:
                parts.append(grads.new_empty(len(grads) * ranks, codec.width(width), dtype=codec.dtype))
                chunks = list(parts[-1].chunk(ranks))
            works.append(dist.gather(codec.encode(part.contiguous()), chunks, group=self.group, group_dst=root, async_op=True))
        return PendingColumns(works, parts or [grads.new_empty(len(grads) * ranks, 0, dtype=codec.dtype)], codec)


def exchange_by(embeddings: Part, request: Request) -> None:
    """Has `embeddings` exchange its tables' pooled rows as the request says, if all lie whole on a rank.

    TorchRec's own is all_to_all with overlap.
    """
    if not isinstance(embeddings, ShardedBags) or TABLE_WISE not in embeddings.sharding_types:
        return
    if not all(scheme_of(placement).any_exchange for _, placement in request.placed):
        return
    index, group = embeddings.sharding_types.index(TABLE_WISE), embeddings.env.process_group
    if request.exchange != ALL_TO_ALL or not request.overlap:
        configs_of_rank = tables_of_ranks(embeddings.shardings[index])
        tables = [[t.num_features() * t.local_cols for g in of_rank for t in g.embedding_tables] for of_rank in configs_of_rank]
        columns = [sum(own) for own in tables]
        pieces = [[width] for width in columns] if request.exchange == "fused_scatter" else tables
        scatters = [(rank, width) for rank, own in enumerate(pieces) for width in own if width]
        pooled_dist = AllToAll(group, tuple(columns)) if request.exchange == ALL_TO_ALL else Scatters(group, scatters)
        embeddings.output_dists[index] = PooledExchange(pooled_dist, request.formats, request.overlap)
    embeddings.output_dists[index] = Timed(embeddings.output_dists[index])


EXECUTION = Execution(run, finish=exchange_by)
