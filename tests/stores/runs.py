"""Training with stores, on the ranks of a process group, and the same without."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.functional import binary_cross_entropy_with_logits

from recsys_lab.executor.groups import close_groups
from recsys_lab.executor.sharded_model import ShardedModel
from recsys_lab.executor.store.row_field import RowField
from recsys_lab.plan import ShardingPlan
from recsys_lab.plan.store import Store
from recsys_lab.tables import Table
from recsys_lab.train.checkpoint import Piece, Reader, save
from tests.executor.reference import Sample
from tests.executor.sharded import build, dense_of, dense_optimizer_of, placed, step

DENSE = 3


@dataclass(frozen=True)
class Case:
    """One training. `save_at`: after so many steps a checkpoint is written, and another model goes on from it."""

    how: str
    optimizer: str
    format: str
    store: Store | None
    pipeline: bool = False
    save_at: int = 0


def parts_of(sharded: ShardedModel) -> dict[str, torch.Tensor]:
    """All that this rank holds after training, by name and extent."""
    found: dict[str, torch.Tensor] = {}
    for shard in sharded.table_shards():
        at = f"{shard.held.table} {shard.held.row_start} {shard.held.col_start}"
        found[f"{at} weights"] = shard.weights.read().clone()
        for name, state in shard.state.items():
            found[f"{at} {name}"] = state.read() if isinstance(state, RowField) else state.clone()
    return found | dense_of(sharded)


def plan_of(tables: tuple[Table, ...], case: Case) -> ShardingPlan:
    plan = placed(tuple(replace(t, dtype=case.format) for t in tables), {"*": case.how})
    return replace(plan, placements=tuple(replace(p, store=case.store) for p in plan.placements))


def pieces_of(sharded: ShardedModel) -> list[Piece]:
    pieces = []
    for shard in sharded.table_shards():
        start, key = (shard.held.row_start, shard.held.col_start), f"{shard.held.table}.{shard.held.col_start}"
        pieces.append(Piece(f"{key}.weight", start, shard.weights))
        pieces += [Piece(f"{key}.{name}", start[: state.dim()], state) for name, state in shard.state.items()]
    return pieces


def train(tables: tuple[Table, ...], case: Case, batches: list[Sample], folder: str) -> tuple[dict[str, torch.Tensor], dict]:
    """What this rank ends with, and what its stores counted."""
    plan = plan_of(tables, case)
    tables = plan.tables
    sharded = settled(build(tables, plan, case.optimizer, DENSE, pipeline=case.pipeline), batches[0])
    dense, parts = dense_optimizer_of(sharded), [batch.part(dist.get_rank(), dist.get_world_size()) for batch in batches]
    given = [part.sparse for part in parts]
    for number, batch in enumerate(batches):
        if case.pipeline and sharded.input_dist_prefetch is not None:
            ahead_step(sharded, dense, parts, given, number)
        else:
            step(sharded, dense, batch)
        if number == 1:
            with torch.no_grad():  # as an evaluation between two steps
                sharded.module(parts[0].dense, parts[0].sparse)
        if number + 1 == case.save_at:
            save(Path(folder) / "step=1", pieces_of(sharded), {}, dist.get_rank(), dist.barrier)
            weights, steps = dense_of(sharded), sharded.sparse_optimizer.steps
            sharded = settled(build(tables, plan, case.optimizer, DENSE, pipeline=case.pipeline), batches[0])
            dense = dense_optimizer_of(sharded)
            reader = Reader(Path(folder) / "step=1")
            for piece in pieces_of(sharded):
                reader.fill(piece)
            sharded.sparse_optimizer.steps = steps
            for name, parameter in sharded.dense_parameters():
                parameter.data.copy_(weights[name])
    ended = parts_of(sharded), sharded.stores()
    close_groups()
    return ended


def settled(sharded: ShardedModel, batch: Sample) -> ShardedModel:
    """After a pass that trains nothing, as before training: the order of sums of dense gradients follows from the first one."""
    part = batch.part(dist.get_rank(), dist.get_world_size())
    (sharded.module(part.dense, part.sparse).sum() * 0.0).backward()
    sharded.sparse_optimizer.zero_grad()
    for _, parameter in sharded.dense_parameters():
        parameter.grad = None
    return sharded


def ahead_step(sharded: ShardedModel, dense: torch.optim.Optimizer, parts: list[Sample], given: list, number: int) -> None:
    """One step during which the next batch's ids and rows come."""
    assert sharded.input_dist_prefetch is not None
    upcoming = given[number + 1] if number + 1 < len(given) else None
    if upcoming is not None:
        sharded.input_dist_prefetch.start(upcoming)
    dense.zero_grad()
    loss = binary_cross_entropy_with_logits(sharded.module(parts[number].dense, given[number]), parts[number].labels)
    sharded.sparse_optimizer.zero_grad()  # where Lightning has it
    if upcoming is not None:
        sharded.input_dist_prefetch.send()
    loss.backward()
    dense.step()
    sharded.sparse_optimizer.step()


def compare(tables: tuple[Table, ...], cases: list[Case], batches: list[Sample], folder: str) -> list[dict]:
    """Each case against the same in memory, on this rank; what its stores counted. AssertionError for the first bit that differs."""
    counted = []
    memory: dict[tuple[str, str, str], dict[str, torch.Tensor]] = {}
    for number, case in enumerate(cases):
        alike = (case.how, case.optimizer, case.format)
        if alike not in memory:
            memory[alike], _ = train(tables, replace(case, store=None, pipeline=False, save_at=0), batches, folder)
        own, counts = train(tables, case, batches, f"{folder}/{number}")
        assert own.keys() == memory[alike].keys()
        for name, value in own.items():
            assert torch.equal(value, memory[alike][name]), f"rank {dist.get_rank()}, {case}: {name} differs"
        counted.append(counts)
    return counted
