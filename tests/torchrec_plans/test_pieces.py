"""A checkpoint of some ranks as other ranks want it: each block is what a slice of the whole table is."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from recsys_lab.errors import UserError
from recsys_lab.lightning.pieces import Block, Layout, resharded

ROWS, COLS, NAME = 12, 8, "bags.t.weight"
WHOLE = torch.arange(ROWS * COLS, dtype=torch.float32).view(ROWS, COLS)
OF_ROWS = 1000.0 + torch.arange(ROWS, dtype=torch.float32).view(ROWS, 1)
DENSE = torch.tensor([7.0])


def blocks(kind: str, ranks: int) -> list[list[Block]]:
    """Of each rank, what it has of the table."""
    if kind == "whole":
        return [[[0, 0, ROWS, COLS]] if rank == ranks - 1 else [] for rank in range(ranks)]
    if kind == "replicas":
        return [[[0, 0, ROWS, COLS]] for _ in range(ranks)]
    size = ROWS if kind == "rows" else COLS
    cuts = [0, *sorted(random.Random(ranks).sample(range(1, size), ranks - 1)), size]
    spans = [(a, b - a) for a, b in zip(cuts, cuts[1:])]
    return [[[a, 0, n, COLS] if kind == "rows" else [0, a, ROWS, n]] for a, n in spans]


def cut(whole: torch.Tensor, block: Block) -> torch.Tensor:
    row, col, rows, cols = block
    return whole[row : row + rows, col : col + cols].clone()


def _of_rows(block: Block) -> Block:
    """Where its rows stand in a table of one column."""
    return [block[0], 0, block[2], 1]


def layout(kind: str, ranks: int, rank: int) -> Layout:
    return Layout(ranks, kind, {NAME: blocks(kind, ranks)[rank]}, {NAME: [ROWS, COLS]}, [["dense", NAME]])


def files(kind: str, ranks: int, state: str) -> Iterator[tuple[Layout, dict[str, Any]]]:
    for rank in range(ranks):
        own = blocks(kind, ranks)[rank]
        held = {"step": torch.tensor(3.0)}
        held["kept"] = torch.empty(0, 1) if not own else cut(-WHOLE, own[0]) if state == "as_weights" else cut(OF_ROWS, _of_rows(own[0]))
        if not own:
            del held["step"]  # such an optimizer has never stepped here
        optimizer = {"state": {0: {"kept": DENSE}, 1: held}, "param_groups": [{"params": [0, 1]}]}
        weights = {"dense": DENSE, NAME: [cut(WHOLE, block) for block in own]}
        yield layout(kind, ranks, rank), {"state_dict": weights, "optimizer_states": [optimizer], "epoch": 4 + rank}


@pytest.mark.parametrize("source", ["rows", "columns", "whole", "replicas"])
@pytest.mark.parametrize("target", ["rows", "columns", "whole", "replicas"])
@pytest.mark.parametrize(("before", "after"), [(1, 3), (2, 4), (4, 2), (3, 3)])
def test_any_layout_becomes_any_other(source: str, target: str, before: int, after: int) -> None:
    for rank in range(after):
        own = layout(target, after, rank)
        actual = resharded(lambda: files(source, before, "as_weights"), own, "folder")
        assert actual["epoch"] == 4 and torch.equal(actual["state_dict"]["dense"], DENSE)
        state = actual["optimizer_states"][0]["state"]
        assert torch.equal(state[0]["kept"], DENSE) and state[1]["step"] == 3
        wanted = own.blocks[NAME]
        assert [block.tolist() for block in actual["state_dict"][NAME]] == [cut(WHOLE, block).tolist() for block in wanted]
        assert state[1]["kept"].tolist() == (cut(-WHOLE, wanted[0]).tolist() if wanted else [])


@pytest.mark.parametrize(
    ("source", "target"), [("rows", "rows"), ("rows", "whole"), ("whole", "replicas"), ("replicas", "rows"), ("whole", "columns")]
)
def test_a_state_of_rows_follows_its_rows(source: str, target: str) -> None:
    for rank in range(4):
        own = layout(target, 4, rank)
        kept = resharded(lambda: files(source, 2, "of_rows"), own, "folder")["optimizer_states"][0]["state"][1]["kept"]
        assert kept.tolist() == (cut(OF_ROWS, _of_rows(own.blocks[NAME][0])).tolist() if own.blocks[NAME] else [])


@pytest.mark.parametrize("target", ["rows", "whole", "columns"])
def test_a_state_of_rows_is_the_mean_over_the_columns_that_a_rank_has(target: str) -> None:
    """As of row-wise Adagrad, whose number is the mean of squares over the columns of a shard."""
    squares = torch.rand(ROWS, COLS, generator=torch.Generator().manual_seed(1))

    def cut_by_columns() -> Iterator[tuple[Layout, dict[str, Any]]]:
        for layout_of, actual in files("columns", 3, "as_weights"):
            (block,) = layout_of.blocks[NAME]
            actual["optimizer_states"][0]["state"][1]["kept"] = cut(squares, block).mean(1, keepdim=True)
            yield layout_of, actual

    spans = [block for (block,) in blocks("columns", 3)]
    parts = torch.cat([cut(squares, block).mean(1, keepdim=True).expand(ROWS, block[3]) for block in spans], dim=1)
    for rank in range(2):
        own = layout(target, 2, rank)
        kept = resharded(cut_by_columns, own, "folder")["optimizer_states"][0]["state"][1]["kept"]
        wanted = [cut(parts, block).mean(1, keepdim=True) for block in own.blocks[NAME]]
        torch.testing.assert_close(kept, wanted[0] if wanted else torch.empty(0, 1))
        if target != "columns" and wanted:  # whole rows again: what one process would have kept
            torch.testing.assert_close(kept, cut(squares, own.blocks[NAME][0]).mean(1, keepdim=True))
    same = resharded(cut_by_columns, layout("columns", 3, 1), "folder")["optimizer_states"][0]["state"][1]["kept"]
    assert torch.equal(same, cut(squares, spans[1]).mean(1, keepdim=True))  # to the bit


def test_nothing_is_trained_where_weights_alone_are_wanted() -> None:
    own = Layout(1, "", {NAME: [[0, 0, ROWS, COLS]]}, {NAME: [ROWS, COLS]}, [])
    assert torch.equal(resharded(lambda: files("rows", 3, "as_weights"), own, "folder")["state_dict"][NAME][0], WHOLE)


def test_what_cannot_be_moved_is_refused() -> None:
    def refused(own: Layout, ranks: int = 2) -> str:
        with pytest.raises(UserError) as error:
            resharded(lambda: iter(list(files("rows", 2, "as_weights"))[:ranks]), own, "folder")
        return str(error.value)

    assert "lacks a part of a table" in refused(layout("whole", 1, 0), ranks=1)
    larger = Layout(1, "", {NAME: [[0, 0, 13, COLS]]}, {NAME: [13, COLS]}, [])
    assert refused(larger) == f"folder: the checkpoint has another size of {NAME}; given 13x8; allowed: 12x8"
    other = Layout(1, "", {"new": [[0, 0, 1, 1]]}, {"new": [1, 1], NAME: [ROWS, COLS]}, [])
    assert refused(other) == "folder: the checkpoint has no such table; given 1x1"
