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

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from recsys_lab.plan.context import ID_BYTES, LENGTH_BYTES, SPLIT_BYTES, Context, collective, folded, iteration, last_of, lookups_of_ranks
from recsys_lab.plan.dense import activation_share, optimizer_bytes
from recsys_lab.plan.scheme import ModuleMemory
from recsys_lab.plan.sharding_plan import ShardingPlan
from recsys_lab.plan.steps import EMBEDDING, MODULE, MODULE_SYNC, SIZES, Step
from recsys_lab.plan.workload import TowerWork, Workload
from recsys_lab.schemes.towers.placement import TOWER_ROW_WISE
from recsys_lab.schemes.towers.sites import Sites, sites_of_plan, tower_of_features
from recsys_lab.tables.spec import READ_BYTES

#: Names the steps of all tables in towers: they are exchanged together.
FAMILY = "towers"
FP32_BYTES = 4


def lower_towers(context: Context) -> tuple[list[Step], list[Step]]:
    """(input and forward, backward) steps of all tables: they are in towers, or none is."""
    volume = _Volume(context)
    inputs = _inputs(context, volume)
    forward = [*_permuted(volume, "towers.permute", "forward", "towers.lookup")]
    forward += _inside_forward(context, volume, last_of(forward, "towers.lookup"))
    forward += _shuffled(volume, last_of(forward, "towers.lookup"))
    forward += _between_peers(context, volume)
    backward = _backward(context, volume)
    return iteration(context, inputs, forward, backward, _module_update(context, volume))


class _Volume:
    """How many numbers each rank sends and takes. Arrays [R] have a figure a rank."""

    def __init__(self, context: Context):
        self.context, self.plan = context, context.plan
        self.sites: Sites = sites_of_plan(context.plan)
        self.works: tuple[TowerWork, ...] = context.workload.towers
        self.whole, self.parts, self.counts, self.slots = (context.per_rank() for _ in range(4))
        self.ids_sent, tower_of = 0.0, tower_of_features(self.plan.towers)
        for table, placement in context.placed:
            features, by_rows = len(table.features), placement.scheme == TOWER_ROW_WISE
            self.ids_sent += context.access[table.name].mean_length * (1 if by_rows else len(placement.shards))
            if by_rows:
                ranks = list(self.sites.ranks_of(self.sites.site_of_tower(tower_of[table.features[0]])))
                self.parts[ranks] += features * table.dim
                self.counts[ranks] += features * (table.pooling == "mean")
                self.slots[ranks] += features
            for shard in placement.shards if not by_rows else ():
                self.whole[shard.ranks[0]] += features * shard.cols
                self.slots[shard.ranks[0]] += features

    @property
    def peer_samples(self) -> int:
        """P: of a rank and its peers."""
        return self.sites.count * self.context.batch

    def of_site(self, figures: np.ndarray) -> np.ndarray:
        """[R] -> [R]: the sum over the ranks of each rank's site."""
        return np.repeat(figures.reshape(self.sites.count, self.sites.ranks).sum(1), self.sites.ranks)

    def per_site(self, figures: list[float]) -> np.ndarray:
        """A figure a tower -> [R]: the sum over the towers of each rank's site."""
        return np.repeat(np.reshape(figures, (self.sites.count, -1)).sum(1), self.sites.ranks)

    def groups_with(self, figures: np.ndarray) -> list[tuple[int, ...]]:
        """The sites whose ranks exchange something."""
        sites = map(self.sites.ranks_of, range(self.sites.count))
        return [group for group in sites if figures[list(group)].any()]

    @property
    def peers(self) -> list[tuple[int, ...]]:
        return [self.sites.peers_at(place) for place in range(self.sites.ranks)]

    def module_bytes(self, work: TowerWork) -> float:
        """A tower module's weights as they are read, and its activations in the format that it computes in."""
        weights = READ_BYTES[self.context.workload.dense_format] * work.parameters
        return weights + self.peer_samples * work.activation_bytes_per_sample * activation_share(self.context.precision)

    @cached_property
    def pooled(self) -> np.ndarray:
        """[R]: columns of the pooled rows of each rank's site."""
        dims = {feature: table.dim for table, _ in self.context.placed for feature in table.features}
        return self.per_site([sum(dims[feature] for feature in tower) for tower in self.plan.towers])

    @cached_property
    def outputs(self) -> np.ndarray:
        """[R]: columns that each rank's site hands to step f."""
        return self.per_site([work.columns for work in self.works]) if self.works else self.pooled


def _inputs(context: Context, volume: _Volume) -> list[Step]:
    world = volume.sites.peer_order if context.plan.permute == "none" else context.world
    batch, names = context.batch, context.names
    after = ("towers.input.splits",)
    lengths, their_lengths = volume.slots.sum() * batch * LENGTH_BYTES, volume.slots * context.global_batch * LENGTH_BYTES
    ids, their_ids = volume.ids_sent * batch * ID_BYTES, lookups_of_ranks(context) * ID_BYTES
    return [
        *collective("towers.input.splits", "all_to_all", "input", [world], len(world) * SPLIT_BYTES, (), names, role=SIZES),
        *collective("towers.input.lengths", "all_to_all", "input", [world], lengths, after, names, their_lengths),
        *collective("towers.input.ids", "all_to_all", "input", [world], ids, after, names, their_ids),
    ]


def _permuted(volume: _Volume, name: str, phase: str, after: str) -> list[Step]:
    """Rows are read and written once."""
    if volume.plan.permute != "rows" or 1 in (volume.sites.count, volume.sites.ranks):
        return []
    moved = 2 * FP32_BYTES * (volume.whole + volume.parts) * volume.context.global_batch
    return [_in_memory(volume, name, phase, moved, (after,))]


def _in_memory(
    volume: _Volume, name: str, phase: str, moved: np.ndarray, after: tuple[str, ...], flops: float = 0.0, role: str = EMBEDDING
) -> Step:
    names, number_format = volume.context.names, volume.context.precision.compute
    return Step(name, "dense", phase, folded(moved), flops=flops, after=after, tables=names, number_format=number_format, role=role)


def _inside_forward(context: Context, volume: _Volume, after: tuple[str, ...]) -> list[Step]:
    sent, taken = volume.whole * context.global_batch, volume.of_site(volume.whole) * volume.peer_samples
    parts = (volume.parts + volume.counts) * context.global_batch
    return [
        *_in_sites(volume, context.rows_there, "all_to_all", sent, taken, name="exchange.all_to_all", after=after),
        *_in_sites(volume, context.rows_there, "reduce_scatter", parts, name="exchange.reduce_scatter", after=after),
    ]


def _in_sites(
    volume: _Volume, travel: Callable[..., list[Step]], kind: str, sent: np.ndarray, taken: np.ndarray | None = None, **where: Any
) -> list[Step]:
    """Of the sites that have something to exchange."""
    groups = volume.groups_with(sent)
    return travel(kind, groups, sent, taken, **where) if groups else []


def _shuffled(volume: _Volume, after: tuple[str, ...]) -> list[Step]:
    """Step e, and the tower modules' work on it."""
    moved = 2 * FP32_BYTES * volume.pooled * volume.peer_samples
    steps = [_in_memory(volume, "towers.shuffle", "forward", moved, after)]
    if volume.works:
        read = volume.per_site([volume.module_bytes(work) for work in volume.works])
        flops = volume.peer_samples * volume.per_site([work.forward_flops_per_sample for work in volume.works]).max()
        steps.append(_in_memory(volume, "towers.module", "forward", read, ("towers.shuffle",), flops, MODULE))
    return steps


def _between_peers(context: Context, volume: _Volume) -> list[Step]:
    sent, taken = _of_peers(context, volume)
    return context.rows_there("all_to_all", volume.peers, sent, taken, after=("towers.module" if volume.works else "towers.shuffle",))


def _of_peers(context: Context, volume: _Volume) -> tuple[np.ndarray, np.ndarray]:
    """What a site's rank gives its peers, itself among them, and what it takes from all sites."""
    everything = context.per_rank() + volume.outputs.reshape(volume.sites.count, -1)[:, 0].sum()
    return volume.outputs * volume.peer_samples, everything * context.batch


def _backward(context: Context, volume: _Volume) -> list[Step]:
    back = context.gradients_back
    taken, sent = _of_peers(context, volume)
    steps = back("all_to_all", volume.peers, sent, taken, name="gradient.output.all_to_all")
    steps += _module_backward(volume, last_of(steps, "dense.backward"))
    after = last_of([step for step in steps if step.role != MODULE_SYNC], "dense.backward")
    sent, taken = volume.of_site(volume.whole) * volume.peer_samples, volume.whole * context.global_batch
    inside = [
        *_in_sites(volume, back, "all_to_all", sent, taken, name="gradient.exchange.all_to_all", after=after),
        *_in_sites(volume, back, "all_gather", volume.parts * volume.peer_samples, name="gradient.exchange.all_gather", after=after),
    ]
    permuted = _permuted(volume, "towers.gradient.permute", "backward", last_of(inside, after[0])[0])
    return [*steps, *inside, *permuted]


def _module_backward(volume: _Volume, after: tuple[str, ...]) -> list[Step]:
    """Tower modules read weights and activations and write gradients, which are then averaged inside their site."""
    if not volume.works:
        return []
    read = volume.per_site([2 * volume.module_bytes(work) for work in volume.works])
    flops = volume.peer_samples * volume.per_site([work.backward_flops_per_sample for work in volume.works]).max()
    module = _in_memory(volume, "towers.gradient.module", "backward", read, after, flops, MODULE)
    gradients = volume.per_site([volume.context.precision.dense_comm_bytes * work.parameters for work in volume.works])
    if not (groups := volume.groups_with(gradients)):
        return [module]
    name, after = "towers.module.all_reduce", (module.name,)
    return [module, *collective(name, "all_reduce", "backward", groups, gradients, after, (), role=MODULE_SYNC)]


def _module_update(context: Context, volume: _Volume) -> list[Step]:
    """The tower modules' part of the dense optimizer's step."""
    if not volume.works:
        return []
    moved = volume.per_site([optimizer_bytes(context.workload) * work.parameters for work in volume.works])
    alone = volume.sites.ranks == 1 or not moved.any()
    after = ("towers.gradient.module",) if alone else ("towers.module.all_reduce",)
    return [Step("towers.module.update", "update", "optimizer", folded(moved), after=after)]


def module_memory(plan: ShardingPlan, workload: Workload) -> ModuleMemory:
    """Each rank's site's tower modules, and what passes through them, for the samples of its peers.

    Buffers in FP32, each with its gradient: pooled rows before the modules, what they give, and their activations.
    """
    sites, dims = sites_of_plan(plan), {feature: table.dim for table in plan.tables for feature in table.features}
    lasting: list[int] = []
    buffers: list[float] = []
    for site in range(sites.count):
        works = [workload.towers[tower] for tower in sites.towers_of(site)] if workload.towers else []
        pooled = sum(dims[feature] for tower in sites.towers_of(site) for feature in plan.towers[tower])
        columns = sum(work.columns for work in works)
        a_sample = 2 * 4 * (pooled + columns) + sum(work.activation_bytes_per_sample for work in works)
        lasting += [sum(workload.dense_bytes_of(work.parameters) for work in works)] * sites.ranks
        buffers += [a_sample * sites.count * workload.batch_size] * sites.ranks
    received = sum(work.columns for work in workload.towers) if workload.towers else None
    return ModuleMemory(tuple(lasting), tuple(buffers), received)
