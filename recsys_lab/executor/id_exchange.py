"""The ids of pooled tables on their way to the ranks that hold their rows, on CPUs.

What travels is TorchRec's, to the byte: under each sharding type how many, then lengths, then ids. TorchRec takes some forty operations on
tensors to lay ids out by receiver and to put together what came. Here two kernels do it (csrc/ids.cpp). To each shard go the ids that lie
in its rows, counted from its first.

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
from recsys_lab.kernels import native


@dataclass(frozen=True)
class Extent:
    """A shard as a feature sees it: rows [start, stop) of a table, columns from `column` on."""

    feature: str
    table: str
    column: int
    start: int
    stop: int


@dataclass(frozen=True)
class Leg:
    """All shards of one sharding type.

    Attributes:
        of_ranks: by rank, its shards in the order of its look-up's features. Where ids stay on their rank: the shards of this one alone.
        group: the ranks; None where ids stay.
        order: int64 [R]: whose samples a look-up gets first, and so on.
    """

    of_ranks: Sequence[Sequence[Extent]]
    group: dist.ProcessGroup | None
    order: torch.Tensor

    @cached_property
    def keys(self) -> list[str]:
        """The features of this rank's shards."""
        return [extent.feature for extent in self.of_ranks[0 if self.group is None else self.group.rank()]]


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
    """Of batches whose features are `keys`, over all `legs`."""

    def __init__(self, legs: Sequence[Leg], keys: list[str]):
        self.legs, self.keys = legs, keys
        receivers = [(number, extents) for number, leg in enumerate(legs) for extents in leg.of_ranks]
        shards = [(number, extent) for number, extents in receivers for extent in extents]
        cuts: dict[tuple, list[tuple[int, int, int]]] = {}  # what the rows of a table's columns are cut into
        for shard, (number, extent) in enumerate(shards):
            cut = (extent.feature, number, extent.table, extent.column)
            cuts.setdefault(cut, []).append((extent.start, extent.stop, shard))
        blocks = [sorted(of) for of in cuts.values()]
        firsts = accumulate((len(of) for of in blocks), initial=0)
        self.cuts = torch.tensor([(keys.index(feature), first, len(of)) for (feature, *_), first, of in zip(cuts, firsts, blocks)])
        self.blocks = torch.tensor([(shard, start, stop) for of in blocks for start, stop, shard in of])
        self.ends = torch.tensor(list(accumulate(len(extents) for _, extents in receivers)))
        features = [feature for feature, *_ in cuts]
        self.copies = max(map(features.count, features))  # of an id, at most
        self.stays = len(legs) == 1 and legs[0].group is None and legs[0].keys == keys  # as it is

    @staticmethod
    def takes(features: KeyedJaggedTensor) -> bool:
        """Whether such ids can travel here. TorchRec sends others in the same collectives, so ranks may differ."""
        plain = features.weights_or_none() is None and not features.variable_stride_per_key() and features.device().type == "cpu"
        return plain and (features.values().dtype, features.lengths().dtype) == (torch.int64, torch.int32) and kernels.available()

    def begin(self, features: KeyedJaggedTensor) -> Sizes | NoWait:
        """Sends how many ids go where. Collective."""
        return NoWait(NoWait([features])) if self.stays else Sizes(self, features)


class Sizes:
    """Of a batch, on their way: lengths, ids and samples for each receiver, int64 [receivers, 3]."""

    def __init__(self, exchange: IdExchange, features: KeyedJaggedTensor):
        self._exchange, self._samples = exchange, features.stride()
        ids = features.values().contiguous()
        self._lengths = torch.empty(int(exchange.ends[-1]) * self._samples, dtype=torch.int32)
        self._ids = torch.empty(exchange.copies * ids.numel(), dtype=torch.int64)
        self._sizes = torch.empty(exchange.ends.numel(), 3, dtype=torch.int64)
        layout = (exchange.cuts, exchange.blocks, exchange.ends)
        native.ids_to_shards(features.lengths().contiguous(), ids, self._samples, *layout, self._lengths, self._ids, self._sizes)
        self._answers: list[tuple[torch.Tensor, dist.Work | None]] = []
        for leg, sent in zip(exchange.legs, self._sizes.split([len(leg.of_ranks) for leg in exchange.legs])):
            answer = sent if leg.group is None else torch.empty_like(sent)
            work = None if leg.group is None else dist.all_to_all_single(answer.view(-1), sent.view(-1), group=leg.group, async_op=True)
            self._answers.append((answer, work))

    def wait(self) -> Ids:
        """Sends lengths and ids. Collective."""
        sizes, flights = iter(self._sizes.tolist()), []
        lengths, ids = self._lengths, self._ids
        for leg, (answer, work) in zip(self._exchange.legs, self._answers):
            if work is not None:
                work.wait()
            to = list(zip(*(next(sizes) for _ in leg.of_ranks)))
            flights.append(Flight(leg, self._samples, lengths[: sum(to[0])], ids[: sum(to[1])], to, list(zip(*answer.tolist()))))
            lengths, ids = lengths[sum(to[0]) :], ids[sum(to[1]) :]
        return Ids(flights)


class Flight:
    """Lengths and ids of one leg. `to` and `back`: of each rank, how many lengths, ids and samples it gets, and how many come from it."""

    def __init__(self, leg: Leg, samples: int, lengths: torch.Tensor, ids: torch.Tensor, to: list[tuple], back: list[tuple]):
        self._leg, self._samples, self._sent = leg, samples, (lengths, ids)
        self._got: list[torch.Tensor] = []
        self._works = []
        assert set(back[2]) == {samples}, "ranks have as many samples"
        if leg.group is not None:
            for sent, gives, takes in zip(self._sent, to, back):
                self._got.append(sent.new_empty(sum(takes)))
                how = {"output_split_sizes": list(takes), "input_split_sizes": list(gives), "group": leg.group}
                self._works.append(dist.all_to_all_single(self._got[-1], sent, async_op=True, **how))

    def wait(self) -> KeyedJaggedTensor:
        """The ids of all ranks' samples in this rank's shards, feature by feature."""
        keys, samples = self._leg.keys, self._samples
        if self._leg.group is None:
            lengths, ids = self._sent
            return KeyedJaggedTensor(keys, ids, lengths=lengths, stride=samples)
        for work in self._works:
            work.wait()
        lengths, ids = self._got
        lengths, offsets, ids = native.ids_of_ranks(lengths, ids, len(keys), samples, self._leg.order)
        return KeyedJaggedTensor(keys, ids, lengths=lengths, offsets=offsets, stride=samples * self._leg.order.numel())


@dataclass(frozen=True)
class Ids:
    """Of all legs, on their way."""

    flights: list[Flight]

    def wait(self) -> list[KeyedJaggedTensor]:
        """By leg."""
        return [flight.wait() for flight in self.flights]
