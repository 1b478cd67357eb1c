"""Training in BF16, with hi/lo split weights or beside a master, and in FP16 tables: against FP32 weights of which the model sees a part.
On one rank, where nothing travels. Sharded, see `test_precisions_by_layout`.
"""

from __future__ import annotations

import torch

from recsys_lab.tables import Table
from tests.executor.reference import Outcome, Sample
from tests.executor.seen_part import DENSE, FP16_TABLES, MASTER, SPLIT, batches_of, check, stored_as, trained
from tests.executor.sharded import placed, train
from tests.ranks import run_ranks

TABLES = (Table("odd", 11, 16, ("f_odd",)), Table("tiny", 3, 8, ("f_tiny",), "mean"), Table("shared", 30, 16, ("f_left", "f_right")))
CASES = [(SPLIT, name) for name in ("sgd", "adagrad", "row_wise_adagrad", "adam")]
CASES += [(MASTER, "adam"), (MASTER, "row_wise_adagrad"), (FP16_TABLES, "sgd")]


def train_all(batches: list[Sample]) -> list[Outcome]:
    cases = [(stored_as(precision, TABLES), precision, optimizer) for precision, optimizer in CASES]
    return [train(tables, placed(tables, {"*": "table_wise"}), batches, name, DENSE, precision=one) for tables, one, name in cases]


def test_one_rank_equals_fp32_weights_that_the_model_sees_a_part_of() -> None:
    """To within the order of FP32 sums; Split-SGD to the last bit."""
    outcomes = run_ranks(train_all, 1, 1, batches_of(TABLES))[0]
    for (precision, optimizer), outcome in zip(CASES, outcomes):
        check(outcome, trained(TABLES, None, precision, optimizer), precision, 1e-3, f"{precision.name} {optimizer}")
    _, last = trained(TABLES, None, SPLIT, "sgd")
    split_sgd = outcomes[CASES.index((SPLIT, "sgd"))]
    for split, whole in ((split_sgd.dense, last.dense), (split_sgd.tables, last.tables)):
        assert all(torch.equal(split[name], whole[name]) for name in whole)
