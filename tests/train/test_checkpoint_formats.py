"""A checkpoint has weights in FP32, however they were stored, and loads into any format: tables, dense part and optimizers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from safetensors import safe_open

from recsys_lab.config.options import DenseOptimizer
from recsys_lab.kernels.stored import StoredWeights
from recsys_lab.precision import Precision
from recsys_lab.train import tensor_file
from recsys_lab.train.checkpoint import Piece, Reader, save
from recsys_lab.train.model_executor import TrainedModel, settle_buckets
from recsys_lab.train.optimizer import DenseAndTables, dense_optimizer
from tests.executor.reference import EPS, LR, Sample, samples
from tests.executor.seen_part import MASTER, SPLIT, stored_as
from tests.executor.sharded import build, dense_of, gathered, placed, step
from tests.executor.test_split_training import TABLES
from tests.ranks import run_ranks

DENSE, ROWS = 3, 8
FP32 = Precision("fp32")
ALONE = Precision("alone", "bf16", "bf16", "bf16", dense_comm="bf16")
Weights = dict[str, torch.Tensor]


class Run:
    """A model that is saved and loaded."""

    def __init__(self, precision: Precision):
        self.tables = stored_as(precision, TABLES)
        plan = placed(self.tables, {"odd": (2, 5), "tiny": "data_parallel", "shared": "row_wise"})
        self.sharded = build(self.tables, plan, "adam", DENSE, precision=precision)
        self.dense = dense_optimizer(self.sharded, DenseOptimizer(name="adam", lr=LR, eps=EPS, weight_decay=0.0, momentum=0.0))
        self.trained = TrainedModel(self.sharded, DenseAndTables(self.dense, self.sharded.sparse_optimizer, LR))
        batch = samples(TABLES, 1, ROWS, DENSE)[0].part(dist.get_rank(), dist.get_world_size())
        settle_buckets(self.sharded, batch)  # type: ignore[arg-type]  # it has what of a batch is wanted

    def load(self, folder: Path) -> Run:
        checkpoint = self.trained.load(folder)
        self.trained.load_weights(checkpoint)
        self.trained.load_optimizers(checkpoint)
        return self

    def train(self, batches: list[Sample]) -> Run:
        for batch in batches:
            step(self.sharded, self.dense, batch)
        return self

    def save(self, folder: Path) -> Run:
        self.trained.save({}, folder)
        return self

    def weights(self) -> Weights:
        tables, state = gathered(self.sharded, self.tables)
        return tables | dense_of(self.sharded) | {f"{name}.{key}": value for name, kept in state.items() for key, value in kept.items()}


def round_trip(folder: Path, batches: list[Sample]) -> dict[str, Weights]:
    """Trained in halves, loaded into every format and back."""
    actual = {"halves": Run(SPLIT).train(batches[:2]).save(folder / "halves").weights()}
    for name, precision in (("fp32", FP32), ("master", MASTER), ("alone", ALONE)):
        actual[name] = Run(precision).load(folder / "halves").save(folder / name).weights()
        actual[f"{name} and back"] = Run(SPLIT).load(folder / name).weights()
    actual["straight on"] = Run(SPLIT).train(batches).weights()
    actual["gone on"] = Run(SPLIT).load(folder / "halves").train(batches[2:]).weights()
    actual["gone on in fp32"] = Run(FP32).load(folder / "halves").train(batches[2:]).weights()
    return actual


def test_weights_in_halves_are_saved_joined_and_load_into_any_format(tmp_path: Path) -> None:
    ranks = run_ranks(round_trip, 2, 1, tmp_path, samples(TABLES, 4, ROWS, DENSE), timeout_s=200)
    for actual in ranks:
        first = actual["halves"]
        for name in ("fp32", "fp32 and back", "master", "master and back"):
            assert all(torch.equal(actual[name][key], value) for key, value in first.items()), name
        for key, value in first.items():
            is_state = key.rsplit(".", 1)[-1].startswith("exp_avg")
            assert torch.equal(actual["alone and back"][key], value if is_state else value.bfloat16().float()), key
        for key, value in actual["straight on"].items():
            assert torch.equal(actual["gone on"][key], value), key
            assert torch.allclose(actual["gone on in fp32"][key], value, rtol=0.1, atol=0.05), key
    files = sorted((tmp_path / "halves").glob("rank_*.safetensors"))
    kept = {safe_open(path, "pt").get_slice(name).get_dtype() for path in files for name in safe_open(path, "pt").keys()}
    assert kept == {"F32", "I64", "U8"}  # weights and states, rows' ids, generators


@pytest.mark.parametrize("chunk", [3, 1 << 20])
def test_pieces_of_halves_are_joined_a_few_rows_at_a_time(tmp_path: Path, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never more than a chunk of FP32, written or read."""
    monkeypatch.setattr(tensor_file, "CHUNK_ELEMENTS", chunk)
    values, most = torch.randn(40, 3), []
    weights, into = (StoredWeights.empty("split_bf16", (40, 3), torch.device("cpu")) for _ in range(2))
    weights.write(values)
    read, write = StoredWeights.read, StoredWeights.write
    monkeypatch.setattr(StoredWeights, "read", lambda self, where=(): _noted(most, read(self, where)))
    monkeypatch.setattr(StoredWeights, "write", lambda self, values, where=(): write(self, _noted(most, values), where))
    save(tmp_path / "step=1", [Piece("t", (0, 0), weights)], {}, 0, lambda: None)
    Reader(tmp_path / "step=1").fill(Piece("t", (0, 0), into))
    assert max(most) == min(chunk, 120)
    monkeypatch.undo()
    assert torch.equal(into.read(), values)
    part = replace(into[10:20])
    Reader(tmp_path / "step=1").fill(Piece("t", (20, 0), part))
    assert torch.equal(into.read(slice(10, 20)), values[20:30])


def _noted(most: list[int], tensor: torch.Tensor) -> torch.Tensor:
    most.append(tensor.numel())
    return tensor
