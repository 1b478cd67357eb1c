"""A checkpoint of tables in files has the rows that were ever read. The others follow from the seed, wherever it is loaded."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from recsys_lab.errors import UserError
from recsys_lab.executor.store.cached_rows import CachedRows
from recsys_lab.executor.store.row_field import RowField
from recsys_lab.kernels.stored import StoredWeights
from recsys_lab.models.table_weights import FirstValues
from recsys_lab.plan.store import DISK_CACHED, Store
from recsys_lab.tables.spec import TABLE_FORMATS
from recsys_lab.train.checkpoint import Piece, Reader, save

ROWS, DIM, SLOTS = 1000, 6, 40
ORIGIN = FirstValues("t", ROWS, DIM, 7)
COLUMNS = slice(2, 6)
READ = ([3, 5, 8, 30], [5, 300, 301, 398], [8, 399, 0, 77], list(range(100, 140)))


class Shard:
    """Rows [first, last) and COLUMNS of the table, with a state a row and one a weight."""

    def __init__(self, first: int, last: int, format: str, folder: Path, origin: FirstValues = ORIGIN):
        self.first, width = first, COLUMNS.stop - COLUMNS.start
        weights = StoredWeights.empty(format, (SLOTS, width), torch.device("cpu"))
        self.rows = CachedRows(Store(DISK_CACHED, SLOTS / (last - first)), "t", first, last - first, weights)
        self.state = {"sum": torch.zeros(SLOTS), "moment": torch.zeros(SLOTS, width)}
        self.rows.open(str(folder), lambda rows: ORIGIN.of(rows, COLUMNS.start, COLUMNS.stop), self.state, origin)

    def train(self, batches: tuple[list[int], ...]) -> None:
        for number, ids in enumerate(batches, start=1):
            held = self.rows.take(torch.tensor(ids))
            at = held.slots.long()
            self.rows.weights.write(self.rows.weights.read(at) * 1.5 + number, at)
            self.state["sum"][at] += number
            self.state["moment"][at] += torch.rand(len(at), 4, generator=torch.Generator().manual_seed(number))
            held.done(moved=True)

    def pieces(self) -> list[Piece]:
        of_row = Piece("t.sum", (self.first,), RowField(self.rows, "sum"))
        place = (self.first, COLUMNS.start)
        return [Piece("t.weight", place, RowField(self.rows)), of_row, Piece("t.moment", place, RowField(self.rows, "moment"))]

    def values(self) -> list[torch.Tensor]:
        fields = [piece.tensor for piece in self.pieces()]
        return [field.read() for field in fields if isinstance(field, RowField)]


def written(shard: Shard, folder: Path) -> Reader:
    save(folder / "step=1", shard.pieces(), {}, 0, lambda: None)
    return Reader(folder / "step=1")


def in_file(folder: Path) -> list[list[int]]:
    """The shapes of what is in the checkpoint."""
    with (folder / "step=1" / "rank_0.safetensors").open("rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    return [one["shape"] for name, one in header.items() if name != "__metadata__"]


@pytest.mark.parametrize("format", TABLE_FORMATS)
def test_rows_that_nobody_read_come_from_the_seed(format: str, tmp_path: Path) -> None:
    shard = Shard(300, 700, format, tmp_path)
    shard.train(READ)
    reader, known = written(shard, tmp_path), len({row for ids in READ for row in ids})
    assert sorted(in_file(tmp_path)) == sorted([[known], [known], [known, 4], [known, 4]])
    weights, of_row, moment = shard.values()

    fresh, used = Shard(300, 700, format, tmp_path), Shard(300, 700, format, tmp_path)
    used.train(([9, 10, 11], [5, 399]))  # has rows that the checkpoint says nothing of
    for other in (fresh, used):
        for piece in other.pieces():
            reader.fill(piece)
        assert all(torch.equal(a, b) for a, b in zip(shard.values(), other.values()))
    assert len(RowField(fresh.rows).known()) == known  # nothing else was written to its file
    for other in (shard, fresh, used):
        other.train(READ[::-1])
    assert all(torch.equal(a, b) and torch.equal(a, c) for a, b, c in zip(shard.values(), fresh.values(), used.values()))

    memory = StoredWeights.empty(format, (250, 2), torch.device("cpu"))  # another cut, in memory, with other values
    memory.write(torch.full((250, 2), 9.0))
    sums, moments = torch.full((250,), 9.0), torch.full((250, 2), 9.0)
    for piece in (Piece("t.weight", (400, 3), memory), Piece("t.sum", (400,), sums), Piece("t.moment", (400, 3), moments)):
        reader.fill(piece)
    assert torch.equal(memory.read(), weights[100:350, 1:3])
    assert torch.equal(sums, of_row[100:350]) and torch.equal(moments, moment[100:350, 1:3])


def test_rows_by_number_find_them_too(tmp_path: Path) -> None:
    shard = Shard(300, 700, "fp32", tmp_path)
    shard.train(READ)
    rows, out = np.array([699, 300, 305, 650, 400]), torch.zeros(5, 4)
    written(shard, tmp_path).fill(Piece("t.weight", (0, 2), out, rows))
    assert torch.equal(out, shard.values()[0][rows - 300])


def test_rows_outside_of_it_are_still_missing(tmp_path: Path) -> None:
    shard = Shard(300, 700, "fp32", tmp_path)
    shard.train(READ)
    with pytest.raises(UserError, match="10 elements missing"):
        written(shard, tmp_path).fill(Piece("t.sum", (290,), torch.zeros(20)))


def test_a_shard_of_other_first_values_takes_those_of_the_checkpoint(tmp_path: Path) -> None:
    shard = Shard(300, 700, "fp32", tmp_path)
    shard.train(READ)
    other = Shard(300, 700, "fp32", tmp_path, replace(ORIGIN, seed=8))
    other.rows._first = lambda rows: replace(ORIGIN, seed=8).of(rows, COLUMNS.start, COLUMNS.stop)
    reader = written(shard, tmp_path)
    for piece in other.pieces():
        reader.fill(piece)
    assert all(torch.equal(a, b) for a, b in zip(shard.values(), other.values()))


def whole(shard: Shard) -> None:
    shard.train(tuple(list(range(start, start + SLOTS)) for start in range(0, 280, SLOTS)))


def no_origin(shard: Shard) -> None:
    shard.rows.origin = None


@pytest.mark.parametrize("change", [whole, no_origin])
def test_all_rows_are_written_where_most_were_read_or_nothing_says_the_others(change: Callable[[Shard], None], tmp_path: Path) -> None:
    shard = Shard(300, 700, "fp32", tmp_path)
    change(shard)
    written(shard, tmp_path)
    assert sorted(in_file(tmp_path)) == [[400], [400, 4], [400, 4]]


def test_a_checkpoint_of_a_shard_that_nobody_read_has_no_row(tmp_path: Path) -> None:
    shard, other = Shard(300, 700, "fp32", tmp_path), Shard(0, 1000, "fp32", tmp_path)
    reader = written(shard, tmp_path)
    assert sorted(in_file(tmp_path)) == [[0], [0], [0, 4], [0, 4]]
    out = torch.ones(100, 4)
    reader.fill(Piece("t.weight", (300, 2), out))
    assert torch.equal(out, other.values()[0][300:400])


@pytest.mark.parametrize("wrong", ['{"start": -1}', '{"start": 0, "count": 5, "origin": {"table": 3}}', "7"])
def test_a_header_of_another_shape_is_a_broken_checkpoint(wrong: str, tmp_path: Path) -> None:
    shard = Shard(300, 700, "fp32", tmp_path)
    written(shard, tmp_path)
    path = tmp_path / "step=1" / "rank_0.safetensors"
    content = path.read_bytes()
    size = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + size])
    pieces = json.loads(header["__metadata__"]["DCP_SHARDING_INFO"])
    next(piece for piece in pieces.values() if "unread" in piece)["unread"] = json.loads(wrong)
    header["__metadata__"]["DCP_SHARDING_INFO"] = json.dumps(pieces)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + size :])
    with pytest.raises(UserError, match="the checkpoint is broken"):
        Reader(tmp_path / "step=1")
