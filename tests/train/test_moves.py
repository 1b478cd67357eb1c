"""A run moves: drawn ranks, placements, precision and optimizer, and then others. Right after the move nothing has changed.

What it trains after the move has the same bits where `other_bits` says so, and where it names last bits alone differs by no more.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from recsys_lab.errors import UserError
from recsys_lab.executor.groups import close_groups
from recsys_lab.executor.sharded_model import TableShard
from recsys_lab.plan import ShardingPlan
from recsys_lab.precision import Precision
from recsys_lab.tables import Table
from recsys_lab.train.column_cuts import column_cuts, merged_tables
from recsys_lab.train.model_executor import TrainedModel, settle_buckets
from recsys_lab.train.optimizer import DenseAndTables
from recsys_lab.train.same_bits import OtherBits, other_bits
from tests.executor.reference import LR, Sample, samples
from tests.executor.sharded import How, build, dense_of, dense_optimizer_of, gathered, hot_rows_of, placed, step
from tests.ranks import run_ranks

DENSE, ROWS, BEFORE, AFTER = 3, 12, 6, 50
TABLES = (Table("a", 40, 16, ("f1",)), Table("b", 23, 16, ("f2",), "mean"), Table("c", 6, 16, ("f3", "f4")))
SHAPES = ((1, 1), (1, 2), (2, 1), (2, 2), (1, 3), (1, 4))
PRECISIONS = {
    "fp32": Precision("fp32"),
    "bf16": Precision("bf16", table="bf16_master", dense="bf16_master", compute="bf16", dense_comm="bf16"),
    "split": Precision("split", table="split_bf16", dense="split_bf16", compute="bf16", dense_comm="bf16"),
    "fp16_tables": Precision("fp16_tables", table="fp16"),
    "fp16_comms": Precision("fp16_comms", forward_comm="fp16", backward_comm="bf16", dense_comm="bf16"),
}
#: By how much FP32 weights differ after AFTER steps where sums are added in another order.
MOST_APART = 1e-4
#: Of each table's state, by the columns that one element of it is of.
Whole = tuple[dict[str, torch.Tensor], dict[tuple[str, str, int, int], torch.Tensor]]


@dataclass(frozen=True)
class Draw:
    """A run under one placement after another."""

    kind: str  # bags | one_id | sequences
    optimizer: str
    precision: str
    hows: tuple[How, How]

    @property
    def tables(self) -> tuple[Table, ...]:
        dtype, sequences = PRECISIONS[self.precision].table, self.kind == "sequences"
        return tuple(replace(table, dtype=dtype, pooling="none" if sequences else table.pooling) for table in TABLES)

    @property
    def batches(self) -> list[Sample]:
        drawn = samples(self.tables, BEFORE + AFTER, ROWS, DENSE)
        if self.kind != "one_id":
            return drawn
        return [replace(one, ids={f: [bag[:1] or [0] for bag in bags] for f, bags in one.ids.items()}) for one in drawn]

    @staticmethod
    def by(random: random.Random) -> Draw:
        kind = random.choice(("bags", "one_id", "sequences"))
        ways: list[Any] = ["table_wise", "row_wise", "column_wise", "data_parallel", (2, 1), (0, 4)]
        ways += [] if kind == "sequences" else ["table_row_wise", "table_column_wise"]
        precision = random.choice(tuple(PRECISIONS))
        optimizer = "sgd" if precision == "split" else random.choice(("sgd", "adagrad", "row_wise_adagrad", "adam"))
        hows = [{table.name: random.choice(ways) for table in TABLES} for _ in range(2)]
        return Draw(kind, optimizer, precision, (hows[0], hows[1]))


def whole(shards: list[TableShard], weights: dict[str, torch.Tensor]) -> Whole:
    """Weights, and every state put together, also where each column shard has its own."""
    everyone: list[list[TableShard]] = [[] for _ in range(dist.get_world_size())]
    dist.all_gather_object(everyone, shards)
    states: dict[tuple[str, str, int, int], torch.Tensor] = {}
    for shard in (shard for of_rank in everyone for shard in of_rank):
        held = shard.held
        rows = torch.arange(held.row_start, held.row_stop) if shard.rows is None else torch.from_numpy(shard.rows)
        for name, state in shard.state.items():
            for column, values in [(held.col_start, state)] if state.dim() == 1 else enumerate(state.T, start=held.col_start):
                key = (held.table, name, column, held.col_stop if state.dim() == 1 else column + 1)
                states.setdefault(key, torch.full((len(weights[held.table]),), torch.nan))[rows] = values
    return weights, states


@dataclass(frozen=True)
class Trained:
    """Tables `at` the checkpoint and at the `end`, AFTER steps later, and the dense arch then. `refused`: why it could not be loaded."""

    plan: ShardingPlan
    refused: str = ""
    at: Whole = ({}, {})
    end: Whole = ({}, {})
    dense: dict[str, torch.Tensor] = field(default_factory=dict)


def trained(draw: Draw, leg: int, folder: Path) -> Trained:
    plan = placed(draw.tables, draw.hows[leg])
    sharded = build(draw.tables, plan, draw.optimizer, DENSE, hot_rows_of(plan), PRECISIONS[draw.precision])
    dense = dense_optimizer_of(sharded)
    model = TrainedModel(sharded, DenseAndTables(dense, sharded.sparse_optimizer, LR))
    batches = draw.batches
    settle_buckets(sharded, batches[0].part(dist.get_rank(), dist.get_world_size()))  # type: ignore[arg-type]  # as a batch it has ids
    if leg == 0:
        for batch in batches[:BEFORE]:
            step(sharded, dense, batch)
        model.save({}, folder)
    else:
        checkpoint = model.load(folder)
        try:
            if draw.optimizer == "row_wise_adagrad":
                merged_tables(checkpoint["columns"], plan)
        except UserError as error:
            return Trained(plan, str(error))
        model.load_weights(checkpoint)
        model.load_optimizers(checkpoint)
    at = whole(sharded.table_shards(), gathered(sharded, draw.tables)[0])
    for batch in batches[BEFORE:]:
        step(sharded, dense, batch)
    end = whole(sharded.table_shards(), gathered(sharded, draw.tables)[0])
    close_groups()
    return Trained(plan, "", at, end, dense_of(sharded))


def leg_of_all(draws: list[Draw], leg: int, folder: Path) -> list[Trained]:
    return [trained(draw, leg, folder / str(number)) for number, draw in enumerate(draws)]


def check(draw: Draw, stayed: Trained, moved: Trained) -> None:
    if moved.refused:
        cuts = [column_cuts(one.plan) for one in (stayed, moved)]
        assert draw.optimizer == "row_wise_adagrad" and cuts[0] != cuts[1] and cuts[1], moved.refused
        return
    for name, weight in stayed.at[0].items():
        assert torch.equal(moved.at[0][name], weight), name
    for key, state in moved.at[1].items():
        assert torch.equal(state, mean_of(stayed.at[1], *key)), key
    one_id = [] if draw.kind == "bags" else [table.name for table in TABLES]
    bits = other_bits(stayed.plan, moved.plan, one_id, PRECISIONS[draw.precision], draw.optimizer)
    old, new = ({**one.end[0], **one.dense} for one in (stayed, moved))
    if bits == OtherBits():
        assert all(torch.equal(new[name], value) for name, value in old.items()), "other bits"
    elif not bits.more and draw.precision == "fp32":
        apart = max(float((new[name] - value).abs().max()) for name, value in old.items())
        assert apart < MOST_APART, apart


def mean_of(states: dict[tuple[str, str, int, int], torch.Tensor], table: str, name: str, start: int, stop: int) -> torch.Tensor:
    """The same columns' state, or the mean of the shards in them, weighted by columns."""
    if (table, name, start, stop) in states:
        return states[table, name, start, stop]
    parts = [(b - a, state) for (t, n, a, b), state in states.items() if (t, n) == (table, name) and start <= a and b <= stop]
    assert sum(width for width, _ in parts) == stop - start
    return (sum(width * state.double() for width, state in parts) / (stop - start)).float()  # type: ignore[union-attr]


def move(seed: int, count: int, folder: Path, most_ranks: int) -> None:
    """With odd seeds ranks stay the same: only then can bits be the same."""
    draw = random.Random(seed)
    possible = [(hosts, ranks) for hosts, ranks in SHAPES if hosts * ranks <= most_ranks]
    shapes, draws = (draw.choice(possible), draw.choice(possible)), [Draw.by(draw) for _ in range(count)]
    shapes = (shapes[0], shapes[1 - seed % 2])
    stayed = run_ranks(leg_of_all, *shapes[0], draws, 0, folder)
    moved = run_ranks(leg_of_all, *shapes[1], draws, 1, folder)
    for one, *legs in zip(draws, stayed[0], moved[0]):
        try:
            check(one, *legs)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, {shapes}, {one}: {error}") from error


@pytest.mark.parametrize("seed", [0, 1])
def test_nothing_changes_by_a_move(tmp_path: Path, seed: int) -> None:
    move(seed, 2, tmp_path, 2)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(100, 130))
def test_nothing_changes_by_any_move(tmp_path: Path, seed: int) -> None:
    move(seed, 4, tmp_path, 4)
