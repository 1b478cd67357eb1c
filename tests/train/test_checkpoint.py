"""Sharded checkpoints: what was saved under one placement is read under another, whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_lab.errors import UserError
from recsys_lab.train.checkpoint import Piece, Reader, read_trainer, save, whole
from recsys_lab.train.checkpoint_folder import PARTIAL, clear_partial, latest, remove
from recsys_lab.train.model_executor import load_random_state


def cuts(size: int) -> st.SearchStrategy[list[int]]:
    return st.sets(st.integers(1, size - 1), max_size=3).map(lambda inner: [0, *sorted(inner), size]) if size > 1 else st.just([0, size])


def pieces_of(key: str, tensor: torch.Tensor, rows: list[int], cols: list[int]) -> list[Piece]:
    return [Piece(key, (a, c), tensor[a:b, c:d].clone()) for a, b in zip(rows, rows[1:]) for c, d in zip(cols, cols[1:])]


@settings(max_examples=40)
@given(data=st.data(), rows=st.integers(1, 9), cols=st.integers(1, 7))
def test_any_placement_reads_what_any_other_wrote(tmp_path_factory, data, rows, cols):
    folder = tmp_path_factory.mktemp("ck") / "step=1"
    tensor = torch.randn(rows, cols)
    written = pieces_of("t", tensor, data.draw(cuts(rows)), data.draw(cuts(cols)))
    ranks = 2
    for rank in reversed(range(ranks)):  # rank 0 renames, so it comes last here, where there is no barrier
        if rank:
            (folder.parent / (PARTIAL + folder.name)).mkdir(exist_ok=True)
            from recsys_lab.train.checkpoint import _write_rank

            files = [path for path, _ in _write_rank(folder.parent / (PARTIAL + folder.name), rank, written[rank::ranks])]
    moved = [file.replace(folder.parent / file.name) for file in files]
    save(folder, written[0::ranks], {"step": 1}, 0, lambda: None)
    for file in moved:
        file.replace(folder / file.name)
    reader = Reader(folder)
    for piece in pieces_of("t", torch.zeros(rows, cols), data.draw(cuts(rows)), data.draw(cuts(cols))):
        reader.fill(piece)
        a, c = piece.offset
        assert torch.equal(piece.tensor, tensor[a : a + piece.tensor.shape[0], c : c + piece.tensor.shape[1]])


def blocks(rows: int) -> st.SearchStrategy[list[list[int] | range]]:
    """The rows of a table in blocks: of consecutive ones, or of any."""

    def cut(edges: list[int], order: list[int], listed: list[bool]) -> list[list[int] | range]:
        whole = sorted(order) == order
        return [range(a, b) if whole and not t else order[a:b] for a, b, t in zip(edges, edges[1:], listed)]

    orders = st.one_of(st.just(list(range(rows))), st.permutations(range(rows)))
    return st.builds(cut, cuts(rows), orders, st.lists(st.booleans(), min_size=4, max_size=4))


def pieces_by_id(key: str, tensor: torch.Tensor, held: list[list[int] | range], cols: list[int]) -> list[Piece]:
    parts = []
    for rows in held:
        ids = None if isinstance(rows, range) else np.array(rows)
        for c, d in zip(cols, cols[1:]):
            offset = (rows.start if isinstance(rows, range) else 0, c)[: tensor.dim()]
            part = tensor[list(rows)] if tensor.dim() == 1 else tensor[list(rows), c:d]
            parts.append(Piece(key, offset, part.clone(), ids))
            if tensor.dim() == 1:
                break
    return parts


@settings(max_examples=100)
@given(data=st.data(), rows=st.integers(1, 12), cols=st.integers(1, 5), chunk=st.sampled_from([1, 6, 1 << 20]), vector=st.booleans())
def test_rows_anywhere_are_read_by_id(tmp_path_factory, data, rows, cols, chunk, vector):
    from recsys_lab.train import tensor_file

    folder = tmp_path_factory.mktemp("ck") / "step=1"
    tensor = torch.randn(rows) if vector else torch.randn(rows, cols)
    save(folder, pieces_by_id("t", tensor, data.draw(blocks(rows)), data.draw(cuts(cols))), {}, 0, lambda: None)
    held, edges = data.draw(blocks(rows)), data.draw(cuts(cols))
    expected = pieces_by_id("t", tensor, held, edges)
    before, tensor_file.CHUNK_ELEMENTS = tensor_file.CHUNK_ELEMENTS, chunk
    try:
        for piece, right in zip(pieces_by_id("t", torch.zeros_like(tensor), held, edges), expected):
            Reader(folder).fill(piece)
            assert torch.equal(piece.tensor, right.tensor)
    finally:
        tensor_file.CHUNK_ELEMENTS = before


def test_rows_that_were_not_saved_are_counted(tmp_path: Path):
    save(tmp_path / "step=1", [Piece("t", (0, 0), torch.ones(3, 2), np.array([4, 0, 2]))], {}, 0, lambda: None)
    with pytest.raises(UserError, match="4 elements missing"):
        Reader(tmp_path / "step=1").fill(Piece("t", (0, 0), torch.zeros(4, 2)))


def test_pieces_of_the_same_rows_share_their_ids_on_disk(tmp_path: Path):
    ids = np.arange(100_000)[::-1].copy()
    pieces = [Piece(key, (0,), torch.zeros(len(ids)), ids) for key in ("weight", "first", "second")]
    save(tmp_path / "step=1", pieces, {}, 0, lambda: None)
    size = (tmp_path / "step=1" / "rank_0.safetensors").stat().st_size
    assert size < len(ids) * (3 * 4 + 8) + 1000


def test_scalars_and_row_states_come_back(tmp_path: Path):
    save(tmp_path / "step=3", [whole("a", torch.tensor(2.5)), Piece("s", (2,), torch.arange(3.0))], {"x": [1, None]}, 0, lambda: None)
    reader = Reader(tmp_path / "step=3")
    scalar, part = torch.zeros(()), torch.zeros(2)
    reader.fill(whole("a", scalar))
    reader.fill(Piece("s", (3,), part))
    assert scalar.item() == 2.5 and part.tolist() == [1.0, 2.0]
    assert read_trainer(tmp_path / "step=3") == {"x": [1, None], "manifest": 2}


def test_a_part_that_was_not_saved_is_refused(tmp_path: Path):
    save(tmp_path / "step=1", [Piece("t", (0, 0), torch.ones(2, 2))], {}, 0, lambda: None)
    with pytest.raises(UserError, match="2 elements missing"):
        Reader(tmp_path / "step=1").fill(Piece("t", (1, 0), torch.zeros(2, 2)))


def test_a_save_that_is_cut_short_leaves_the_one_before(tmp_path: Path):
    save(tmp_path / "step=1", [whole("a", torch.ones(1))], {}, 0, lambda: None)
    calls = []

    def dies_at_the_second_barrier() -> None:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        save(tmp_path / "step=2", [whole("a", torch.zeros(1))], {}, 0, dies_at_the_second_barrier)
    assert latest(tmp_path) == tmp_path / "step=1"
    assert sorted(os.listdir(tmp_path)) == [PARTIAL + "step=2", "step=1"]
    clear_partial(tmp_path)
    assert os.listdir(tmp_path) == ["step=1"]
    save(tmp_path / "step=2", [whole("a", torch.zeros(1))], {}, 0, lambda: None)  # what was left over does not stand in the way
    assert latest(tmp_path) == tmp_path / "step=2"


@pytest.mark.parametrize("order", [(9, 10, 100), (100, 10, 9)], ids=str)
def test_the_newest_has_the_highest_step_and_not_the_last_name(tmp_path: Path, order: tuple[int, ...]):
    for step in order:
        save(tmp_path / f"step={step}", [whole("a", torch.ones(1))], {"step": step}, 0, lambda: None)
    (tmp_path / "step=200").mkdir()  # not whole
    assert latest(tmp_path) == tmp_path / "step=100"
    remove(tmp_path / "step=100")
    assert latest(tmp_path) == tmp_path / "step=10"
    assert latest(tmp_path / "none") is None


def test_the_same_step_can_be_saved_again(tmp_path: Path):
    for value in (1.0, 2.0):
        save(tmp_path / "best", [whole("a", torch.tensor([value]))], {}, 0, lambda: None)
    out = torch.zeros(1)
    Reader(tmp_path / "best").fill(whole("a", out))
    assert out.item() == 2.0 and sorted(os.listdir(tmp_path)) == ["best"]


def test_a_broken_file_is_named(tmp_path: Path):
    save(tmp_path / "step=1", [whole("a", torch.ones(4))], {}, 0, lambda: None)
    (tmp_path / "step=1" / "rank_0.safetensors").write_bytes(b"nonsense")
    with pytest.raises(UserError, match="broken"):
        Reader(tmp_path / "step=1")


def test_nothing_is_pickled(tmp_path: Path):
    save(tmp_path / "step=1", [whole("a", torch.ones(4))], {"b": 1}, 0, lambda: None)
    assert sorted(os.listdir(tmp_path / "step=1")) == ["manifest.json", "rank_0.safetensors", "trainer.json"]
    json.loads((tmp_path / "step=1" / "trainer.json").read_text())
    remove(tmp_path / "step=1")
    assert latest(tmp_path) is None and os.listdir(tmp_path) == []


def test_a_run_on_a_cpu_goes_on_on_a_gpu(tmp_path: Path):
    """Its checkpoint has no random state of a GPU, which then keeps what the seed gave it."""
    before = torch.get_rng_state()
    save(tmp_path / "step=1", [whole("rng.0", before)], {}, 0, lambda: None)
    torch.rand(3)
    load_random_state(Reader(tmp_path / "step=1"), 0, torch.device("cuda"))
    assert torch.equal(torch.get_rng_state(), before)
