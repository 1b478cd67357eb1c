"""Quality in parts, as ranks find it: the same bits on any number of them. No optimizer state where nothing is trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys_lab.config.options import EvaluateOptions
from recsys_lab.data.dataset import OpenDataSet, one_hot_rows
from recsys_lab.data.loader import RankLoader
from recsys_lab.data.protocol import Feature, Rows
from recsys_lab.experiment import of_words
from recsys_lab.planning import plan_for
from recsys_lab.record.breakdown import by_values, grouped_auc
from recsys_lab.record.metrics import quality
from recsys_lab.tables import AccessStatistics
from recsys_lab.train.evaluate import Judgement, evaluate
from recsys_lab.train.objective import objective_of
from recsys_lab.train.reliability import CELLS, histogram
from tests.ranks import run_ranks

CPU = torch.device("cpu")
WORDS = ("data.rows_train=256", "logger=none", "launcher.hosts=1", "launcher.ranks_per_host=1", "optimizer.sparse.name=adam")
OPTIONS = EvaluateOptions(by=["a", "b"], group="c", min_rows=20)
ROWS, SIZES = 1500, {"a": 7, "b": 90, "c": 300}


class Drawn:
    """Ids of three features and labels that follow them."""

    rows = ROWS

    def read(self, rows: np.ndarray) -> Rows:
        rng = np.random.default_rng(3)
        ids = np.stack([np.minimum(rng.zipf(1.4, ROWS) - 1, size - 1) for size in SIZES.values()], axis=1)
        labels = rng.random(ROWS) < 1 / (1 + np.exp(-logits_of(ids.T)))
        return one_hot_rows(labels[rows].astype(np.float32), None, ids[rows])


def logits_of(ids: np.ndarray) -> np.ndarray:
    """float32 [B], with ties, of ids [3, B]."""
    return ((ids * np.arange(1, 4)[:, None]).sum(0) % 37).astype(np.float32) / np.float32(9) - np.float32(3)


class ByIds(nn.Module):
    def forward(self, dense: None, sparse: KeyedJaggedTensor) -> Tensor:
        return torch.from_numpy(logits_of(sparse.values().view(3, -1).numpy()))


def opened() -> OpenDataSet:
    return OpenDataSet(tuple(Feature(name, size) for name, size in SIZES.items()), 0, {"test": Drawn()}, AccessStatistics({}), "drawn")


def judged_here() -> Judgement:
    """By batches of 131 rows, so that no number of ranks divides them."""
    rank, ranks, data = dist.get_rank(), dist.get_world_size(), opened()
    how = {"seed": 1, "shuffle": False, "prefetch_batches": 0, "pin_memory": False}
    loader = RankLoader(data.splits["test"], data, batch_size=131, rank=rank, world_size=ranks, **how)
    evaluation = objective_of("click", data, 0, OPTIONS).final("test", loader)
    assert evaluation is not None
    return evaluate(ByIds(), evaluation, CPU)


@pytest.fixture(scope="module")
def judgements() -> list[Judgement]:
    return [one for ranks in (1, 3) for one in run_ranks(judged_here, 1, ranks)]


def test_every_rank_of_any_number_finds_the_same_bits(judgements: list[Judgement]) -> None:
    assert all(one == judgements[0] for one in judgements[1:]) and judgements[0].breakdown is not None


def test_parts_are_of_the_rows_that_they_name(judgements: list[Judgement]) -> None:
    rows = Drawn().read(np.arange(ROWS))
    ids = dict(zip(SIZES, rows.ids.reshape(3, ROWS)))
    logits, judgement = logits_of(np.stack(list(ids.values()))), judgements[0]
    assert judgement.quality == quality(logits, rows.labels) and judgement.breakdown is not None
    for column in OPTIONS.columns:
        distinct, codes = np.unique(ids[column], return_inverse=True)
        expected = by_values(logits, rows.labels, codes, [f"row {row}" for row in distinct], 20)
        assert judgement.breakdown.by[column] == expected and len(expected.values) > 3
    assert judgement.breakdown.grouped == grouped_auc(logits, rows.labels, ids["c"], "c")


def test_the_reliability_is_that_of_all_rows(judgements: list[Judgement]) -> None:
    """Calibration is the ratio of its sums."""
    judgement = judgements[0]
    assert judgement.breakdown is not None
    bins = judgement.breakdown.reliability
    assert sum(one.examples for one in bins) == ROWS and 5 <= len(bins) <= 10
    predicted, clicks = sum(one.predicted * one.examples for one in bins), sum(one.positives for one in bins)
    assert predicted / clicks == pytest.approx(judgement.quality["calibration"], abs=1e-8)


def test_a_histogram_holds_any_finite_logit() -> None:
    logits = torch.tensor([-1e30, -16.0, 0.0, 15.999, 16.0, 1e30])
    examples, positives, predicted = histogram(logits, torch.tensor([0.0, 0, 1, 1, 1, 1]))
    assert examples.nonzero().flatten().tolist() == [0, CELLS // 2, CELLS - 1] and positives[[0, -1]].tolist() == [0, 3]
    assert predicted.sum().item() * 2.0**-32 == pytest.approx(3.5, abs=1e-6)


def state_elements(modes: Sequence[str]) -> list[int]:
    """Of the optimizer of a small model's tables, by mode."""
    elements = []
    for mode in modes:
        experiment = replace(of_words(WORDS, "a test"), mode=mode)
        data = experiment.open_data()
        planned = plan_for(experiment, data)
        sharded = experiment.shard(experiment.build_model(data, torch.device("meta")), planned.plan, CPU)
        elements.append(sum(one.numel() for states in sharded.sparse_optimizer.states for one in states.values()))
        assert 4 * elements[-1] == sum(planned.workload.table_state_bytes(table.rows, table.dim) for table in planned.tables)
    return elements


def test_an_evaluation_allocates_no_optimizer_state() -> None:
    ((evaluation, prediction, training),) = run_ranks(state_elements, 1, 1, ["evaluate", "predict", "train"])
    assert evaluation == prediction == 0 < training
