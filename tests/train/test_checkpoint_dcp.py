"""Files of a checkpoint are those of torch.distributed.checkpoint: its HuggingFaceStorageReader reads what we write."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
import torch.distributed.checkpoint as dcp
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from recsys_lab.train.checkpoint import Piece, Reader, save, whole
from tests.train.test_checkpoint import cuts, pieces_of


def read_by_torch(folder: Path, tensors: dict[str, torch.Tensor]) -> None:
    dcp.load(tensors, storage_reader=dcp.HuggingFaceStorageReader(str(folder)), no_dist=True)


@settings(max_examples=25)
@given(data=st.data(), rows=st.integers(1, 9), cols=st.integers(1, 7))
def test_torch_reads_whatever_blocks_a_rank_has(tmp_path_factory, data, rows, cols):
    """Several of one tensor, too. DCP's own writer puts them into a file by one name, and only the last of them is there."""
    folder = tmp_path_factory.mktemp("ck") / "step=1"
    tensor, state = torch.randn(rows, cols), torch.randn(rows)
    pieces = pieces_of("table.t.weight", tensor, data.draw(cuts(rows)), data.draw(cuts(cols)))
    save(folder, [*pieces, whole("table.t.sum", state), whole("dense.steps", torch.tensor(3.0))], {}, 0, lambda: None)
    read = {"table.t.weight": torch.zeros(rows, cols), "table.t.sum": torch.zeros(rows), "dense.steps": torch.zeros(())}
    read_by_torch(folder, read)
    assert torch.equal(read["table.t.weight"], tensor) and torch.equal(read["table.t.sum"], state) and read["dense.steps"] == 3


def test_rows_anywhere_are_tensors_of_their_own_beside_the_others(tmp_path: Path) -> None:
    ids = np.array([4, 0, 2])
    save(tmp_path / "step=1", [Piece("t", (0, 0), torch.ones(3, 2), ids), whole("a", torch.ones(2))], {}, 0, lambda: None)
    read = {"t@rank_0.0": torch.zeros(3, 2), "rows@rank_0.0": torch.zeros(3, dtype=torch.int64), "a": torch.zeros(2)}
    read_by_torch(tmp_path / "step=1", read)
    assert read["rows@rank_0.0"].tolist() == ids.tolist() and read["t@rank_0.0"].eq(1).all() and read["a"].eq(1).all()


def test_a_checkpoint_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    where = {"0": {"key": "t", "offset": [0, 0]}, "1": {"key": "t", "offset": [0, 0], "rows": "1.rows"}}
    tensors = {"0": torch.zeros(2, 2), "1": torch.ones(2, 2), "1.rows": torch.tensor([3, 2])}
    save_file(tensors, tmp_path / "rank_0.safetensors", metadata={"pieces": json.dumps(where)})
    out = torch.full((4, 2), -1.0)
    Reader(tmp_path).fill(Piece("t", (0, 0), out))
    assert out.tolist() == [[0, 0], [0, 0], [1, 1], [1, 1]]
