"""A checkpoint of the rows that were updated since a full one: read together with it, refused without it, and it outlives it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_lab.errors import UserError
from recsys_lab.train.checkpoint import Piece, Reader, checked_trainer, save, whole
from recsys_lab.train.checkpoint_folder import latest, remove_old, steps
from tests.train.test_checkpoint import blocks, cuts, pieces_by_id

RUN = "0123456789abcdef"


def updated_pieces(key: str, tensor: torch.Tensor, rows: list[int], cols: list[int]) -> list[Piece]:
    ids = np.array(rows, dtype=np.int64)
    return [Piece(key, (0, c), tensor[rows, c:d].clone(), ids, updated=True) for c, d in zip(cols, cols[1:])]


@settings(max_examples=60)
@given(data=st.data(), rows=st.integers(1, 12), cols=st.integers(1, 5))
def test_base_and_updated_rows_read_as_a_full_checkpoint_under_any_placement(tmp_path_factory, data, rows, cols):
    folder = tmp_path_factory.mktemp("ck")
    before, dense = torch.randn(rows, cols), torch.randn(3)
    updated = data.draw(st.lists(st.integers(0, rows - 1), unique=True))
    after = before.clone()
    after[updated] = torch.randn(len(updated), cols)
    first, second = folder / "step=1", folder / "step=2"
    save(first, [*pieces_by_id("t", before, data.draw(blocks(rows)), data.draw(cuts(cols))), whole("d", dense)], {}, 0, lambda: None)
    changed = [*updated_pieces("t", after, updated, data.draw(cuts(cols))), whole("d", dense + 1)]
    save(second, changed, {}, 0, lambda: None, base=first)
    held, edges, reader = data.draw(blocks(rows)), data.draw(cuts(cols)), Reader(second)
    assert reader.shape("t") == (rows, cols) and set(reader.keys()) == {"t", "d"}
    for piece, right in zip(pieces_by_id("t", torch.zeros_like(after), held, edges), pieces_by_id("t", after, held, edges)):
        reader.fill(piece)
        assert torch.equal(piece.tensor, right.tensor)
    out = torch.zeros(3)
    reader.fill(whole("d", out))
    assert torch.equal(out, dense + 1)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """step=1 and step=4 are full, step=2, 3 need the first, 5 and 6 the fourth."""
    folder = tmp_path / "checkpoints"
    for step in range(1, 7):
        base = None if step in (1, 4) else folder / f"step={1 if step < 4 else 4}"
        tensor = torch.full((4, 2), float(step))
        pieces = [Piece("t", (0, 0), tensor)] if base is None else updated_pieces("t", tensor, [1, 3], [0, 2])
        save(folder / f"step={step}", pieces, {"step": step}, 0, lambda: None, RUN, base)
    return folder


@pytest.mark.parametrize(("keep", "stay"), [(1, [4, 6]), (2, [4, 5, 6]), (3, [4, 5, 6]), (4, [1, 3, 4, 5, 6]), (9, [1, 2, 3, 4, 5, 6])])
def test_the_newest_stay_with_what_they_need(run: Path, keep: int, stay: list[int]) -> None:
    remove_old(run, keep)
    assert list(steps(run)) == stay
    for folder in steps(run).values():
        assert checked_trainer(folder, RUN)["step"] == int(folder.name[5:])
    assert latest(run) == run / "step=6"


@pytest.mark.parametrize("how", ["gone", "another", "a bit of its rows"])
def test_a_base_that_is_not_what_it_was_is_refused_by_name(run: Path, how: str) -> None:
    base, file = run / "step=4", run / "step=4" / "rank_0.safetensors"
    if how == "gone":
        shutil.rmtree(base)
    elif how == "another":
        save(base, [Piece("t", (0, 0), torch.zeros(4, 2))], {}, 0, lambda: None, RUN)
    else:
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(bytes(content))
    with pytest.raises(UserError, match="step=4") as caught:
        checked_trainer(run / "step=6", RUN)
    assert "\n" not in str(caught.value)
    if how != "a bit of its rows":  # which the manifest alone knows
        with pytest.raises(UserError, match=r"step=6.*step=4, of which it has the updated rows, is"):
            Reader(run / "step=6")
    remove_old(run, 2)  # nobody asked for the broken one
    assert checked_trainer(run / "step=3", RUN) if 3 in steps(run) else True


def test_an_earlier_program_refuses_it(run: Path) -> None:
    """Which would take the updated rows for all there are."""
    manifest = json.loads((run / "step=6" / "manifest.json").read_text())
    assert manifest["version"] == 3 and checked_trainer(run / "step=6")["manifest"] == 3
    assert json.loads((run / "step=4" / "manifest.json").read_text())["version"] == 2


@pytest.mark.parametrize("base", [None, {}, {"name": "step=6", "crc32": 1}, {"name": "../checkpoints/step=4", "crc32": 1}, {"name": 7}])
def test_a_manifest_that_names_no_base_is_refused(run: Path, base: object) -> None:
    path = run / "step=6" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"base": base}))
    for read in (Reader, checked_trainer):
        with pytest.raises(UserError, match="broken"):
            read(run / "step=6")
