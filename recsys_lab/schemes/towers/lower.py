"""Tables in towers: SPTT's steps a to f (DMT, section 3.1.1), with tower modules between e and f.

    a  towers.input.*                                  over all ranks
    b  towers.lookup
    c  towers.permute                                  in memory, where the plan permutes rows; ids are permuted as they are unpacked
    d  towers.exchange.all_to_all, .reduce_scatter     inside each site: whole rows or columns, parts of row blocks
    e  towers.shuffle, towers.module                   in memory; dense work
    f  towers.output.all_to_all                        between peers

Backward in the opposite order under `towers.gradient.`; tower modules' gradients are all-reduced inside each site.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from recsys_lab.plan.context import Context, Rows, collective, folded, input_distribution, last_of
from recsys_lab.plan.dense import activation_share, optimizer_bytes
from recsys_lab.plan.scheme import ModuleMemory
from recsys_lab.plan.sharding_plan import ShardingPlan
from recsys_lab.plan.steps import MODULE, MODULE_SYNC, Step
from recsys_lab.plan.table_work import iteration, lookups_of_ranks
from recsys_lab.plan.workload import TowerWork, Workload
from recsys_lab.schemes.towers.layout import Layout, columns_of
from recsys_lab.schemes.towers.placement import TOWER_ROW_WISE
from recsys_lab.tables.spec import READ_BYTES

#: Names the steps of all tables in towers: they are exchanged together.
FAMILY = "towers"
FP32_BYTES = 4


def lower_towers(context: Context) -> tuple[list[Step], list[Step]]:
    """(input and forward, backward) steps of all tables: they are in towers, or none is."""
    volume = _Volume(context)
    forward = _permuted(volume, "towers.permute", "forward", "towers.lookup")
    forward += _inside_forward(volume, last_of(forward, "towers.lookup"))
    forward += _shuffled(volume, last_of(forward, "towers.lookup"))
    forward += context.rows_there("all_to_all", volume.peers, *volume.of_peers, after=last_of(forward, "towers.lookup"))
    return iteration(context, _inputs(volume), forward, _backward(volume), _module_update(volume))


class _Volume:
    """How many numbers each rank sends and takes. Arrays [R] have a figure a rank."""

    def __init__(self, context: Context):
        self.context, self.plan, self.layout = context, context.plan, Layout(context.plan)
        self.sites = self.layout.sites
        self.works: tuple[TowerWork, ...] = context.workload.towers
        self.whole = np.array([columns_of(slots) for slots in self.layout.whole], float)
        self.parts = np.array([columns_of(slots) for slots in self.layout.blocks], float)
        self.counts = np.array([sum(slot.table.pooling == "mean" for slot in slots) for slots in self.layout.blocks], float)
        self.slots = np.array([len(self.layout.slots(rank)) for rank in context.world], float)

    @cached_property
    def site_of(self) -> np.ndarray:
        """[R]: each rank's site."""
        return np.array([self.sites.site_of_rank(rank) for rank in self.context.world])

    @cached_property
    def peer_samples(self) -> np.ndarray:
        """[R]: P, of a rank's peers."""
        return np.array([self.sites.peers_of(site) for site in range(self.sites.count)])[self.site_of] * self.context.batch

    def of_site(self, figures: np.ndarray) -> np.ndarray:
        """[R] -> [R]: the sum over the ranks of each rank's site."""
        return np.bincount(self.site_of, figures)[self.site_of]

    def per_site(self, figures: list[float]) -> np.ndarray:
        """A figure a tower -> [R]: the sum over the towers of each rank's site."""
        sites = [self.sites.site_of_tower(tower) for tower in range(len(figures))]
        return np.bincount(sites, figures, minlength=self.sites.count)[self.site_of]

    @cached_property
    def several(self) -> np.ndarray:
        """[R]: 1 where the rank's site has others, 0 where it is alone and sends nothing inside."""
        return (np.bincount(self.site_of) > 1).astype(float)[self.site_of]

    def groups_with(self, figures: np.ndarray) -> list[tuple[int, ...]]:
        """The sites whose ranks exchange something."""
        sites = map(self.sites.ranks_of, range(self.sites.count))
        return [group for group in sites if figures[list(group)].any()]

    @property
    def peers(self) -> list[tuple[int, ...]]:
        return list(self.sites.exchanges)

    @property
    def of_peers(self) -> tuple[Rows, Rows]:
        """What a site's rank gives its peers, itself among them, and what it takes from all sites."""
        of_sites = self.outputs[[self.sites.ranks_of(site)[0] for site in range(self.sites.count)]]
        sent = self.outputs * self.peer_samples, (self.outputs > 0) * self.peer_samples
        return sent, (np.full(len(self.outputs), of_sites.sum() * self.context.batch), (of_sites > 0).sum() * self.context.batch)

    @property
    def of_inside(self) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
        """What a rank gives the ranks of its site, of whole rows for all samples, and what it takes for its peers' samples."""
        whole = self.whole * self.several
        rows, samples = (whole > 0).astype(float), self.context.global_batch
        return (whole * samples, rows * samples), (self.of_site(whole) * self.peer_samples, self.of_site(rows) * self.peer_samples)

    @cached_property
    def module_bytes(self) -> np.ndarray:
        """[R]: of tower modules, weights as they are read, and activations in the format that they compute in."""
        weights = READ_BYTES[self.context.workload.dense_format] * self.per_site([work.parameters for work in self.works])
        activations = self.per_site([work.activation_bytes_per_sample for work in self.works])
        return weights + self.peer_samples * activations * activation_share(self.context.precision)

    @cached_property
    def pooled(self) -> np.ndarray:
        """[R]: columns of the pooled rows of each rank's site."""
        return np.array([float(self.layout.columns_at(site)) for site in range(self.sites.count)])[self.site_of]

    @cached_property
    def outputs(self) -> np.ndarray:
        """[R]: columns that each rank's site hands to step f."""
        return self.per_site([work.columns for work in self.works]) if self.works else self.pooled


def _inputs(volume: _Volume) -> list[Step]:
    """A feature goes once to each column shard of its table. It is cut by row for the blocks of a row-wise table."""
    context, order = volume.context, volume.sites.peer_order if volume.plan.permute == "none" else volume.context.world
    ids = 0.0
    for table, placement in context.placed:
        ids += context.access[table.name].mean_length * (1 if placement.scheme == TOWER_ROW_WISE else len(placement.shards))
    lengths, their_lengths = volume.slots.sum() * context.batch, volume.slots * context.global_batch
    return input_distribution(context, lengths, ids * context.batch, their_lengths, lookups_of_ranks(context), order, split_rows=1)


def _permuted(volume: _Volume, name: str, phase: str, after: str) -> list[Step]:
    """Rows are read and written once."""
    if volume.plan.permute != "rows" or volume.sites.in_order:
        return []
    moved = 2 * FP32_BYTES * (volume.whole + volume.parts) * volume.context.global_batch
    return [volume.context.in_memory(name, phase, moved, (after,))]


def _inside_forward(volume: _Volume, after: tuple[str, ...]) -> list[Step]:
    context, sites_with = volume.context, volume.groups_with
    sent, received = volume.of_inside
    parts, samples = (volume.parts + volume.counts) * volume.several * context.global_batch, context.global_batch
    return [
        *context.rows_there("all_to_all", sites_with(sent[0]), sent, received, name="exchange.all_to_all", after=after),
        *context.rows_there("reduce_scatter", sites_with(parts), (parts, samples), name="exchange.reduce_scatter", after=after),
    ]


def _shuffled(volume: _Volume, after: tuple[str, ...]) -> list[Step]:
    """Step e, and the tower modules' work on it."""
    moved = 2 * FP32_BYTES * volume.pooled * volume.peer_samples
    steps = [volume.context.in_memory("towers.shuffle", "forward", moved, after)]
    if volume.works:
        flops = (volume.peer_samples * volume.per_site([work.forward_flops_per_sample for work in volume.works])).max()
        steps.append(volume.context.in_memory("towers.module", "forward", volume.module_bytes, ("towers.shuffle",), flops, MODULE))
    return steps


def _backward(volume: _Volume) -> list[Step]:
    back, sites_with = volume.context.gradients_back, volume.groups_with
    received, sent = volume.of_peers
    steps = back("all_to_all", volume.peers, sent, received, name="gradient.output.all_to_all")
    steps += _module_backward(volume, last_of(steps, "dense.backward"))
    after = last_of([step for step in steps if step.role != MODULE_SYNC], "dense.backward")
    received, sent = volume.of_inside
    parts = volume.parts * volume.several * volume.peer_samples
    inside = [
        *back("all_to_all", sites_with(sent[0]), sent, received, name="gradient.exchange.all_to_all", after=after),
        *back("all_gather", sites_with(parts), (parts, volume.peer_samples), name="gradient.exchange.all_gather", after=after),
    ]
    permuted = _permuted(volume, "towers.gradient.permute", "backward", last_of(inside, after[0])[0])
    return [*steps, *inside, *permuted]


def _module_backward(volume: _Volume, after: tuple[str, ...]) -> list[Step]:
    """Tower modules read weights and activations and write gradients, which are then averaged inside their site."""
    if not volume.works:
        return []
    flops = (volume.peer_samples * volume.per_site([work.backward_flops_per_sample for work in volume.works])).max()
    module = volume.context.in_memory("towers.gradient.module", "backward", 2 * volume.module_bytes, after, flops, MODULE)
    gradients = volume.per_site([volume.context.precision.dense_comm_bytes * work.parameters for work in volume.works]) * volume.several
    name, groups = "towers.module.all_reduce", volume.groups_with(gradients)
    return [module, *collective(name, "all_reduce", "backward", groups, gradients, (module.name,), (), role=MODULE_SYNC)]


def _module_update(volume: _Volume) -> list[Step]:
    """The tower modules' part of the dense optimizer's step."""
    if not volume.works:
        return []
    moved = volume.per_site([optimizer_bytes(volume.context.workload) * work.parameters for work in volume.works])
    alone = not (moved * volume.several).any()
    after = ("towers.gradient.module",) if alone else ("towers.module.all_reduce",)
    return [Step("towers.module.update", "update", "optimizer", folded(moved), after=after)]


def module_memory(plan: ShardingPlan, workload: Workload) -> ModuleMemory:
    """Each rank's site's tower modules, and what passes through them, for the samples of its peers.

    Buffers in FP32, each with its gradient: pooled rows before the modules, what they give, and their activations.
    """
    layout = Layout(plan)
    sites = layout.sites
    lasting: list[int] = []
    buffers: list[float] = []
    for site in range(sites.count):
        works = [workload.towers[tower] for tower in sites.towers_of(site)] if workload.towers else []
        columns = layout.columns_at(site) + sum(work.columns for work in works)
        a_sample = 2 * 4 * columns + sum(work.activation_bytes_per_sample for work in works)
        ranks = len(sites.ranks_of(site))
        lasting += [sum(workload.dense_bytes_of(work.parameters) for work in works)] * ranks
        buffers += [a_sample * sites.peers_of(site) * workload.batch_size] * ranks
    received = sum(work.columns for work in workload.towers) if workload.towers else None
    return ModuleMemory(tuple(lasting), tuple(buffers), received)
