"""The ids of pooled tables on their way to the ranks that hold their rows, on CPUs.

The collectives and their bytes are TorchRec's: for each sharding type the sizes, then lengths, then ids. TorchRec takes some forty tensor
operations to order ids by receiver, and to put together what arrives. Here two kernels do it (csrc/ids.cpp). A shard gets the ids of its
rows, counted from its first row.

RECSYS_LAB_POOLED_EXCHANGE=torchrec leaves ids and pooled rows to TorchRec.

Shapes: F features, B samples of each of R ranks, N ids, S shards of this rank under one sharding type.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import torch
import torch.distributed as dist
from torchrec.distributed.embedding_types import GroupedEmbeddingConfig
from torchrec.distributed.types import NoWait
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys_lab import kernels
from recsys_lab.base.environment import POOLED_EXCHANGE, TORCHREC, word_of
from recsys_lab.executor.torch_private import OpenCollection, group_in_host, tables_of_ranks
from recsys_lab.kernels import native
from recsys_lab.plan.scheme import known_schemes


@dataclass(frozen=True)
class Extent:
    """A shard as a feature sees it: rows [start, stop) of a table, columns from `column` on."""

    feature: str
    table: str
    column: int
    start: int
    stop: int


@dataclass(frozen=True)
class ShardingInput:
    """Where the ids of one sharding type go.

    Attributes:
        shards_of_ranks: by rank, its shards in the order of its look-up's features. Where ids stay on their rank: this rank's alone.
        group: the ranks; None where ids stay.
        order: int64 [R]: in which order of ranks a look-up gets the samples.
    """

    shards_of_ranks: Sequence[Sequence[Extent]]
    group: dist.ProcessGroup | None
    order: torch.Tensor

    @cached_property
    def keys(self) -> list[str]:
        """The features of this rank's shards."""
        return [extent.feature for extent in self.shards_of_ranks[0 if self.group is None else self.group.rank()]]


def sharding_inputs(collection: OpenCollection) -> list[ShardingInput]:
    """One for each sharding type of TorchRec's collection."""
    group, inputs = collection.env.process_group, []
    for kind, sharding in zip(collection.sharding_types, collection.shardings):
        tables = tables_of_ranks(sharding)
        if known_schemes()[kind].at_home:
            inputs.append(ShardingInput([extents_of(tables[collection.env.rank])], None, order_of(1, 1)))
            continue
        in_host = group_in_host(sharding)
        stagger = 1 if in_host is None else group.size() // in_host.size()
        inputs.append(ShardingInput([extents_of(own) for own in tables], group, order_of(group.size(), stagger)))
    return inputs


def extents_of(groups: Iterable[GroupedEmbeddingConfig]) -> list[Extent]:
    """The shards that TorchRec has grouped for a rank, in the order of its look-up's features."""
    extents = []
    for table in (table for group in groups for table in group.embedding_tables):
        row, column = table.local_metadata.shard_offsets if table.local_metadata else (0, 0)
        extents += [Extent(feature, table.name, column, row, row + table.local_rows) for feature in table.feature_names]
    return extents


def order_of(ranks: int, stagger: int) -> torch.Tensor:
    """int64 [R]: TorchRec's order of samples. Those of ranks that are the first of their hosts come first, `stagger` hosts in turns."""
    return torch.arange(ranks).view(stagger, -1).T.ravel().contiguous()


class IdExchange:
    """Of batches whose features are `keys`, under all sharding types."""

    def __init__(self, inputs: Sequence[ShardingInput], keys: list[str]):
        self.inputs, self.keys = inputs, keys
        receivers = [(number, extents) for number, one in enumerate(inputs) for extents in one.shards_of_ranks]
        shards = [(number, extent) for number, extents in receivers for extent in extents]
        cuts: dict[tuple, list[tuple[int, int, int]]] = {}  # what the rows of a table's columns are cut into
        for shard, (number, extent) in enumerate(shards):
            cut = (extent.feature, number, extent.table, extent.column)
            cuts.setdefault(cut, []).append((extent.start, extent.stop, shard))
        blocks = [sorted(own) for own in cuts.values()]
        firsts = accumulate((len(own) for own in blocks), initial=0)
        self.cuts = torch.tensor([(keys.index(feature), first, len(own)) for (feature, *_), first, own in zip(cuts, firsts, blocks)])
        self.blocks = torch.tensor([(shard, start, stop) for own in blocks for start, stop, shard in own])
        self.ends = torch.tensor(list(accumulate(len(extents) for _, extents in receivers)))
        features = [feature for feature, *_ in cuts]
        self.copies = max(map(features.count, features))  # of an id, at most
        self.stays = len(inputs) == 1 and inputs[0].group is None and inputs[0].keys == keys  # as it is

    @staticmethod
    def takes(features: KeyedJaggedTensor) -> bool:
        """Whether such ids can travel here. TorchRec sends others in the same collectives, so ranks may differ."""
        plain = features.weights_or_none() is None and not features.variable_stride_per_key() and features.device().type == "cpu"
        dtypes = (features.values().dtype, features.lengths().dtype)
        return plain and dtypes == (torch.int64, torch.int32) and word_of(POOLED_EXCHANGE) != TORCHREC and kernels.available()

    def start(self, features: KeyedJaggedTensor) -> PendingSizes | NoWait:
        """Sends how many ids go where. Collective."""
        return NoWait(NoWait([features])) if self.stays else PendingSizes(self, features)


class PendingSizes:
    """Of a batch, under way: how many lengths, ids and samples each receiver gets, int64 [receivers, 3]."""

    def __init__(self, exchange: IdExchange, features: KeyedJaggedTensor):
        self._exchange, self._samples = exchange, features.stride()
        ids = features.values().contiguous()
        self._lengths = torch.empty(int(exchange.ends[-1]) * self._samples, dtype=torch.int32)
        self._ids = torch.empty(exchange.copies * ids.numel(), dtype=torch.int64)
        self._sizes = torch.empty(exchange.ends.numel(), 3, dtype=torch.int64)
        layout = (exchange.cuts, exchange.blocks, exchange.ends)
        native.ids_to_shards(features.lengths().contiguous(), ids, self._samples, *layout, self._lengths, self._ids, self._sizes)
        self._received: list[tuple[torch.Tensor, dist.Work | None]] = []
        for one, sent in zip(exchange.inputs, self._sizes.split([len(one.shards_of_ranks) for one in exchange.inputs])):
            received = sent if one.group is None else torch.empty_like(sent)
            work = None if one.group is None else dist.all_to_all_single(received.view(-1), sent.view(-1), group=one.group, async_op=True)
            self._received.append((received, work))

    def wait(self) -> PendingBatches:
        """Sends lengths and ids. Collective."""
        sizes, batches = iter(self._sizes.tolist()), []
        lengths, ids = self._lengths, self._ids
        for one, (received, work) in zip(self._exchange.inputs, self._received):
            if work is not None:
                work.wait()
            to = list(zip(*(next(sizes) for _ in one.shards_of_ranks)))
            parts = lengths[: sum(to[0])], ids[: sum(to[1])]
            batches.append(PendingBatch(one, self._samples, *parts, to, list(zip(*received.tolist()))))
            lengths, ids = lengths[sum(to[0]) :], ids[sum(to[1]) :]
        return PendingBatches(batches)


class PendingBatch:
    """Lengths and ids of one sharding type, under way. `to`, `back`: lengths, ids and samples to each rank, and from each."""

    def __init__(self, where: ShardingInput, samples: int, lengths: torch.Tensor, ids: torch.Tensor, to: list[tuple], back: list[tuple]):
        self._where, self._samples, self._sent = where, samples, (lengths, ids)
        self._received: list[torch.Tensor] = []
        self._works = []
        assert set(back[2]) == {samples}, "ranks have as many samples"
        if where.group is not None:
            for sent, input_splits, output_splits in zip(self._sent, to, back):
                self._received.append(sent.new_empty(sum(output_splits)))
                splits = list(output_splits), list(input_splits)
                self._works.append(dist.all_to_all_single(self._received[-1], sent, *splits, group=where.group, async_op=True))

    def wait(self) -> KeyedJaggedTensor:
        """The ids of all ranks' samples in this rank's shards, feature by feature."""
        keys, samples, order = self._where.keys, self._samples, self._where.order
        if self._where.group is None:
            lengths, ids = self._sent
            return KeyedJaggedTensor(keys, ids, lengths=lengths, stride=samples)
        for work in self._works:
            work.wait()
        lengths, ids = self._received
        lengths, offsets, ids = native.ids_of_ranks(lengths, ids, len(keys), samples, order)
        return KeyedJaggedTensor(keys, ids, lengths=lengths, offsets=offsets, stride=samples * order.numel())


@dataclass(frozen=True)
class PendingBatches:
    """Of all sharding types, under way."""

    batches: list[PendingBatch]

    def wait(self) -> list[KeyedJaggedTensor]:
        """By sharding type."""
        return [batch.wait() for batch in self.batches]
