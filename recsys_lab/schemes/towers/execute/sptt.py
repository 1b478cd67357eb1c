"""SPTT: the semantic-preserving tower transform (DMT, section 3.1.1), in place of a model's tables.

Two sites of two ranks; Vxr is the pooled row of feature x for the samples of rank r. What rank 0 holds of its site's features x and y:

    a  distribute   the ids of feature x of all ranks' samples
    b  look up      Vx0 Vx1 Vx2 Vx3                  x is this rank's, y is rank 1's
    c  permute      Vx0 Vx2 | Vx1 Vx3                peer order: first what place 0 of each site wants, then place 1
    d  inside       Vx0 Vx2, Vy0 Vy2                 from each rank of the site, for this rank and its peer
    e  shuffle      Vx0 Vy0 | Vx2 Vy2                (features, peers) -> (peers, features); tower modules work here
    f  peers        Vx0 Vy0, Vu0 Vv0                 all features of this rank's own samples

Shapes: B samples a rank, S sites, M ranks of a site, P samples that the peers of one place have together: S * B where sites are even.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor, KeyedTensor

from recsys_lab.executor.all_to_all import AllToAll
from recsys_lab.executor.execution import Part, Request, keyed
from recsys_lab.executor.groups import own_group
from recsys_lab.executor.lookup import BatchedLookup
from recsys_lab.executor.table_batch import HeldShard, TableBatch
from recsys_lab.models.table_configs import format_of
from recsys_lab.schemes.towers.execute.distribute import FeatureDistribution, PendingFeatures
from recsys_lab.schemes.towers.execute.exchange import BetweenPeers, Inside, InsideSite, peer_order, peers_of
from recsys_lab.schemes.towers.execute.modules import SiteModules
from recsys_lab.schemes.towers.layout import Layout, columns_of


class SPTT(Part):
    """A batch's features -> with tower modules the output of each tower [B, O], in the towers' order.

    Else a KeyedTensor, as the unsharded collection of the request's tables gives. Has no torch parameters: tables are in `batches`, tower
    modules in `modules_here`. Collective.
    """

    _lookup: BatchedLookup
    modules_here: SiteModules | None

    def __init__(self, request: Request, layout: Layout, modules: SiteModules | None):
        super().__init__()
        self._layout, self._dims, self._formats = layout, request.dims, request.formats
        # In plain attributes, which torch does not search: their parameters are not the global dense arch's.
        self.__dict__["_lookup"], self.__dict__["modules_here"] = BatchedLookup(_to_hold(request, layout), request.device, None), modules
        sites, whole, blocks = layout.sites, layout.whole[layout.rank], layout.blocks[layout.rank]
        in_order = sites.order_of(layout.site) if layout.plan.permute != "rows" else sites.world
        permuted = layout.plan.permute == "none" and sites.peer_order != tuple(sites.world)
        world = own_group([sites.peer_order]) if permuted else dist.group.WORLD
        assert world is not None
        self._distribution = FeatureDistribution(layout, list(self._dims), world, in_order, request.device)
        self._averaged = [i for i, slot in enumerate(blocks, start=len(whole)) if slot.table.pooling == "mean"]
        self._own_columns = [columns_of(whole), columns_of(blocks)]
        self._inside, self._peers = None, None  # where a site, or the ranks of one place, have one member
        if (group := own_group([sites.ranks_of(site) for site in range(sites.count)])) is not None:
            of_places = tuple(columns_of(layout.whole[rank]) for rank in sites.ranks_of(layout.site))
            self._inside = Inside(AllToAll(group, of_places), columns_of(blocks), len(self._averaged), self._formats)
        #: Of what comes from each site in step f: of each of its towers' outputs, or of each of its features.
        self._columns = [
            [modules.columns[tower] for tower in sites.towers_of(site)] if modules else [self._dims[f] for f in layout.features_of(site)]
            for site in range(sites.count)
        ]
        if (group := own_group(sites.exchanges)) is not None:
            self._peers = peers_of(layout, group, list(map(sum, self._columns)))
        self._shuffle = _Shuffle(layout)

    @property
    def batches(self) -> list[TableBatch]:
        return self._lookup.batches

    def start_input_dist(self, sparse: KeyedJaggedTensor) -> PendingFeatures:
        return PendingFeatures(self._distribution, sparse)  # a

    def start_output_dist(self, pending: PendingFeatures) -> Callable[[], KeyedTensor | list[torch.Tensor]]:
        """Nobody needs to wait: the last exchange does."""
        rows, counts = self._look_up(pending.wait())  # b
        if self._layout.plan.permute == "rows":
            sites = self._layout.sites
            rows, counts = (peer_order(part, sites.count, len(sites.ranks_of(0))) for part in (rows, counts))  # c
        pooled = self._exchange(rows, counts)  # d
        towers = self._shuffle(*pooled)  # e
        if self.modules_here is not None:
            towers = self.modules_here(towers)
        gathered = self._gather(torch.cat([tower.flatten(1) for tower in towers], dim=1))  # f
        return lambda: gathered

    def train(self, mode: bool = True) -> SPTT:
        if self.modules_here is not None:
            self.modules_here.train(mode)
        return super().train(mode)

    def _look_up(self, features: KeyedJaggedTensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Pooled rows [R * B, columns of this rank's slots]. Also the lengths [R * B, n] of the bags that are divided after their sum."""
        rows = self._lookup(features)
        lengths = features.lengths().view(-1, rows.shape[0])[self._averaged]
        return rows, lengths.t().to(rows.dtype)

    def _exchange(self, rows: torch.Tensor, counts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """[P, columns of whole rows], place after place, and [P, columns of row blocks].

        The latter are summed, and divided where the mean is wanted.
        """
        if self._inside is None:
            whole, parts = rows.split(self._own_columns, dim=1)
        else:
            whole, parts, counts = InsideSite.apply(self._inside, rows, counts)
        return whole, self._shuffle.averaged(parts, counts)

    def _gather(self, rows: torch.Tensor) -> KeyedTensor | list[torch.Tensor]:
        """From each site what its towers give for this rank's samples."""
        arrived = (rows,) if self._peers is None else BetweenPeers.apply(self._peers, rows, self._formats)
        parts = [part for of_site, rows in zip(self._columns, arrived) for part in rows.split(of_site, dim=1)]
        if self.modules_here is not None:
            return parts
        names = [feature for site in range(self._layout.sites.count) for feature in self._layout.features_of(site)]
        return keyed(dict(zip(names, parts)), self._dims)


def _to_hold(request: Request, layout: Layout) -> list[HeldShard]:
    """The shards behind this rank's slots, in their order. Of row blocks the sum is wanted, whatever the table's pooling."""
    formats = {config.name: format_of(config) for config in request.configs}
    shards = []
    for slots, summed in ((layout.whole[layout.rank], False), (layout.blocks[layout.rank], True)):
        for t, s in [(slot.table, slot.shard) for slot in slots if slot.feature == slot.table.features[0]]:
            extent, mode = (s.row_start, s.row_stop, s.col_start, s.col_stop), "sum" if summed else t.pooling
            how = (len(t.features), formats[t.name], mode)
            shards.append(HeldShard(t.name, *extent, *how, store=request.stores.get(t.name)))
    return shards


class _Shuffle:
    """Step e: what came from the ranks of this one's site to its towers' features."""

    def __init__(self, layout: Layout):
        ranks, towers = layout.sites.ranks_of(layout.site), [layout.plan.towers[tower] for tower in layout.sites.towers_of(layout.site)]
        whole = [slot for rank in ranks for slot in layout.whole[rank]]
        blocks = layout.blocks[ranks[0]]
        self._widths = [slot.shard.cols for slot in whole], [slot.table.dim for slot in blocks]
        self._mean = [slot.table.pooling == "mean" for slot in blocks]
        pieces_of: dict[str, list[tuple[int, int]]] = {}
        for i, slot in enumerate(whole):
            pieces_of.setdefault(slot.feature, []).append((slot.shard.col_start, i))
        for i, slot in enumerate(blocks, start=len(whole)):
            pieces_of[slot.feature] = [(0, i)]
        #: Of each tower, the pieces that its features are made of, in order.
        self._pieces = [[i for feature in tower for _, i in sorted(pieces_of[feature])] for tower in towers]
        of_tower = [[layout.dims[feature] for feature in tower] for tower in towers]
        self._features = [len(dims) if len(set(dims)) == 1 else 0 for dims in of_tower]

    def __call__(self, whole: torch.Tensor, parts: torch.Tensor) -> list[torch.Tensor]:
        """Of each tower [P, F, D]; [P, columns] where its features' D differ."""
        pieces = [*whole.split(self._widths[0], dim=1), *parts.split(self._widths[1], dim=1)]
        towers = [torch.cat([pieces[i] for i in of_tower], dim=1) for of_tower in self._pieces]
        return [rows.unflatten(1, (features, -1)) if features else rows for rows, features in zip(towers, self._features)]

    def averaged(self, parts: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        """Sums of row blocks with those that are means divided by their bags' lengths."""
        if not any(self._mean):
            return parts
        pieces, column = list(parts.split(self._widths[1], dim=1)), 0
        for i, is_mean in enumerate(self._mean):
            if is_mean:
                pieces[i] = pieces[i] / counts[:, column : column + 1].clamp(min=1)
                column += 1
        return torch.cat(pieces, dim=1)
