"""A model begins with trained weights, under any placement: what has the name and the shape is taken to the bit, the rest is listed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from recsys_lab.errors import UserError
from recsys_lab.record.started_from import StartedFrom
from recsys_lab.tables import Table
from recsys_lab.train.model_executor import TrainedModel
from recsys_lab.train.optimizer import DenseAndTables
from recsys_lab.train.start_from import check_all_taken, take_weights
from tests.executor.reference import LR, Sample, samples
from tests.executor.sharded import How, build, dense_of, dense_optimizer_of, gathered, placed, step
from tests.executor.test_flexshard import POOLED, THREE
from tests.ranks import run_ranks

DENSE = 3
Weights = tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]


def trained_and_saved(how: How, batch: Sample, folder: Path) -> Weights:
    sharded = build(POOLED, placed(POOLED, how), "adam", DENSE)
    dense = dense_optimizer_of(sharded)
    step(sharded, dense, batch)
    TrainedModel(sharded, DenseAndTables(dense, sharded.sparse_optimizer, LR)).save({}, folder)
    return gathered(sharded, POOLED)[0], dense_of(sharded)


def started(tables: tuple[Table, ...], how: How, folder: Path) -> tuple[StartedFrom, Weights, Weights]:
    """What was taken, and the weights before and after."""
    sharded = build(tables, placed(tables, how), "sgd", DENSE)
    before = gathered(sharded, tables)[0], dense_of(sharded)
    return take_weights(sharded, folder), before, (gathered(sharded, tables)[0], dense_of(sharded))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Weights]:
    """On 2 x 2 ranks in three tiers: rows lie anywhere in the files."""
    folder = tmp_path_factory.mktemp("run") / "step=1"
    (batch,) = samples(POOLED, 1, 8, DENSE)
    return folder, run_ranks(trained_and_saved, 2, 2, THREE, batch, folder)[0]


@pytest.mark.parametrize(("shape", "how"), [((1, 1), {"*": "table_wise"}), ((1, 2), {"*": "row_wise"})], ids=["1 rank", "2 ranks"])
def test_all_weights_are_taken_to_the_bit(saved: tuple[Path, Weights], shape: tuple[int, int], how: How) -> None:
    folder, (tables, dense) = saved
    for taken, _, (own_tables, own_dense) in run_ranks(started, *shape, POOLED, how, folder):
        check_all_taken(taken)
        assert taken.taken == len(tables) + len(dense)
        assert all(torch.equal(own_tables[name], weight) for name, weight in tables.items())
        assert all(torch.equal(own_dense[name], weight) for name, weight in dense.items())


def test_new_rows_keep_what_their_seed_gave_them_and_other_shapes_are_listed(saved: tuple[Path, Weights]) -> None:
    folder, (tables, _) = saved
    odd, tiny, shared = POOLED
    others = (replace(odd, rows=17), replace(tiny, dim=16), replace(shared, rows=29))
    for taken, (before, dense_before), (after, dense) in run_ranks(started, 1, 2, others, {"*": "row_wise"}, folder):
        assert torch.equal(after["odd"], torch.cat([tables["odd"], before["odd"][11:]]))
        assert torch.equal(after["tiny"], before["tiny"]) and torch.equal(after["shared"], before["shared"])
        assert taken.partly == {"table.odd.weight": "6 of 17 rows are new"}
        assert taken.not_taken["table.tiny.weight"] == "3 x 8 in the checkpoint, 3 x 16 here"
        assert taken.not_taken["table.shared.weight"] == "30 x 16 in the checkpoint, 29 x 16 here" and not taken.unused
        for name, weight in dense.items():
            if f"dense.{name}" in taken.not_taken:
                assert torch.equal(weight, dense_before[name])
        with pytest.raises(UserError, match="not the one that was trained"):
            check_all_taken(taken)


def test_a_damaged_checkpoint_is_refused(saved: tuple[Path, Weights], tmp_path: Path) -> None:
    folder = tmp_path / "step=1"
    folder.mkdir()
    for path in saved[0].iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    (folder / "rank_1.safetensors").write_bytes((folder / "rank_1.safetensors").read_bytes()[:-1])
    with pytest.raises(AssertionError, match="checksum or size differs"):
        run_ranks(started, 1, 1, POOLED, {"*": "table_wise"}, folder)
