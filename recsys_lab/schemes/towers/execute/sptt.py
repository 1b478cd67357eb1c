"""SPTT: the semantic-preserving tower transform (DMT, section 3.1.1), in place of a model's tables.

Two sites of two ranks; Vxr is the pooled row of feature x for the samples of rank r. What rank 0 holds of its site's features x and y:

    a  distribute   the ids of feature x of all ranks' samples
    b  look up      Vx0 Vx1 Vx2 Vx3                  x is this rank's, y is rank 1's
    c  permute      Vx0 Vx2 | Vx1 Vx3                peer order: first what place 0 of each site wants, then place 1
    d  inside       Vx0 Vx2, Vy0 Vy2                 from each rank of the site, for this rank and its peer
    e  shuffle      Vx0 Vy0 | Vx2 Vy2                (features, peers) -> (peers, features); tower modules work here
    f  peers        Vx0 Vy0, Vu0 Vv0                 all features of this rank's own samples

Shapes: B samples a rank, S sites, M ranks of a site, P = S * B samples that the peers of one place have together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor, KeyedTensor

from recsys_lab.executor.ahead import Ahead
from recsys_lab.executor.formats import WireFormats
from recsys_lab.executor.lookup import BatchedLookup
from recsys_lab.executor.table_batch import TableBatch
from recsys_lab.schemes.towers.execute.distribute import FeatureDistribution, OnTheWay, Received
from recsys_lab.schemes.towers.execute.exchange import Inside, between_peers, inside_site, peer_order
from recsys_lab.schemes.towers.execute.layout import Layout, columns
from recsys_lab.schemes.towers.execute.modules import SiteModules


@dataclass(frozen=True)
class TowerGroups:
    """Of this rank. None where the group would have one member."""

    world: dist.ProcessGroup  # in peer order where the plan's permute is `none`
    site: dist.ProcessGroup | None
    peers: dist.ProcessGroup | None
    gradients: dist.ProcessGroup | None  # the site again: of its tower modules' gradients, beside the exchange of rows


@dataclass(frozen=True)
class Arrived:
    """What nobody needs to wait for."""

    rows: KeyedTensor | list[torch.Tensor]

    def wait(self) -> KeyedTensor | list[torch.Tensor]:
        return self.rows


class SPTT(nn.Module):
    """A batch's features -> with tower modules what each tower gives [B, O], in the towers' order; else a KeyedTensor, as the unsharded
    collection of `features`. Has no torch parameters: tables are in `batches`, tower modules in `modules_here`.
    """

    _lookup: BatchedLookup
    modules_here: SiteModules | None

    def __init__(
        self,
        layout: Layout,
        features: Sequence[str],
        lookup: BatchedLookup,
        groups: TowerGroups,
        modules: SiteModules | None,
        device: torch.device,
        formats: WireFormats,
    ):
        super().__init__()
        self._layout, self._features, self._groups, self._formats = layout, list(features), groups, formats
        # In plain attributes, which torch does not search: their parameters are not the global dense part's.
        self.__dict__["_lookup"], self.__dict__["modules_here"] = lookup, modules
        sites, rank = layout.sites, dist.get_rank()
        self._sites, self._site = sites, sites.site_of_rank(rank)
        in_order = sites.peer_order if layout.plan.permute != "rows" else tuple(range(layout.plan.world_size))
        self.begin = FeatureDistribution(layout, features, groups.world, in_order, device).begin
        self.ahead = Ahead(self.begin)
        own = layout.slots(rank)
        self._averaged = [i for i, slot in enumerate(own) if slot in layout.blocks[rank] and slot.table.pooling == "mean"]
        self._own_columns = [columns(layout.whole[rank]), columns(layout.blocks[rank])]
        self._inside = _inside(layout, groups.site, rank, len(self._averaged), formats)
        self._shuffle = _Shuffle(layout, self._site)
        self._columns = [columns_of(layout, site, modules) for site in range(sites.count)]

    @property
    def batches(self) -> list[TableBatch]:
        return self._lookup.batches

    def issue(self, begun: OnTheWay) -> Arrived:
        return Arrived(self._pass(begun.received()))

    def forward(self, sparse: KeyedJaggedTensor) -> KeyedTensor | list[torch.Tensor]:
        return self._pass(self.ahead.take(sparse).received())  # a

    def _pass(self, received: Received) -> KeyedTensor | list[torch.Tensor]:
        rows, counts = self._look_up(received)  # b
        if self._layout.plan.permute == "rows":
            rows, counts = (peer_order(part, self._sites.count, self._sites.ranks) for part in (rows, counts))  # c
        pooled = self._exchange(rows, counts)  # d
        towers = self._shuffle(*pooled)  # e
        if self.modules_here is not None:
            towers = self.modules_here(towers)
        return self._gather(torch.cat([tower.flatten(1) for tower in towers], dim=1))  # f

    def train(self, mode: bool = True) -> SPTT:
        if self.modules_here is not None:
            self.modules_here.train(mode)
        return super().train(mode)

    def _look_up(self, received: Received) -> tuple[torch.Tensor, torch.Tensor]:
        """Pooled rows [R * B, columns of this rank's slots], and the lengths [R * B, n] of the bags that are divided after their sum."""
        rows = self._lookup(received.features)
        lengths = received.features.lengths().view(-1, rows.shape[0])[self._averaged]
        return rows, lengths.t().to(rows.dtype)

    def _exchange(self, rows: torch.Tensor, counts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """[P, columns of whole rows], place after place, and [P, columns of row blocks], summed, and divided where the mean is wanted."""
        if self._inside is None:
            whole, parts = rows.split(self._own_columns, dim=1)
        else:
            whole, parts, counts = inside_site(self._inside, rows, counts)
        return whole, self._shuffle.averaged(parts, counts)

    def _gather(self, rows: torch.Tensor) -> KeyedTensor | list[torch.Tensor]:
        """From each site what its towers give for this rank's samples."""
        found = [rows]
        if self._groups.peers is not None:
            found = between_peers(self._groups.peers, rows, [sum(of_site) for of_site in self._columns], self._formats)
        parts = [part for of_site, rows in zip(self._columns, found) for part in rows.split(of_site, dim=1)]
        if self.modules_here is not None:
            return parts
        names = [f for site in range(self._sites.count) for f in self._layout.features_of(site)]
        pooled = dict(zip(names, parts))
        dims = [self._layout.dims[feature] for feature in self._features]
        return KeyedTensor(self._features, dims, torch.cat([pooled[feature] for feature in self._features], dim=1))


def columns_of(layout: Layout, site: int, modules: SiteModules | None) -> list[int]:
    """Of what comes from `site` in step f: of each of its towers' outputs, or of each of its features."""
    if modules is not None:
        return [modules.columns[tower] for tower in layout.sites.towers_of(site)]
    return [layout.dims[feature] for feature in layout.features_of(site)]


def _inside(layout: Layout, group: dist.ProcessGroup | None, rank: int, counts: int, formats: WireFormats) -> Inside | None:
    if group is None:
        return None
    site, place = layout.sites.site_of_rank(rank), layout.sites.place_of_rank(rank)
    whole = tuple(columns(layout.whole[other]) for other in layout.sites.ranks_of(site))
    return Inside(group, place, whole, columns(layout.blocks[rank]), counts, formats)


class _Shuffle:
    """Step e: what came from the ranks of `site` to its towers' features."""

    def __init__(self, layout: Layout, site: int):
        ranks = layout.sites.ranks_of(site)
        whole = [slot for rank in ranks for slot in layout.whole[rank]]
        blocks = layout.blocks[ranks[0]]
        self._widths = [slot.shard.cols for slot in whole], [slot.table.dim for slot in blocks]
        self._mean = [slot.table.pooling == "mean" for slot in blocks]
        places: dict[str, list[tuple[int, int]]] = {}
        for i, slot in enumerate(whole):
            places.setdefault(slot.feature, []).append((slot.shard.col_start, i))
        for i, slot in enumerate(blocks, start=len(whole)):
            places[slot.feature] = [(0, i)]
        #: Of each tower, the pieces that its features are made of, in order.
        self._pieces = [
            [i for feature in layout.plan.towers[tower] for _, i in sorted(places[feature])] for tower in layout.sites.towers_of(site)
        ]
        of_tower = [[layout.dims[f] for f in layout.plan.towers[tower]] for tower in layout.sites.towers_of(site)]
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
