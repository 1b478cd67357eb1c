"""TorchRec's schemes under every optimizer train as one process with whole tables does. Every scheme there is, means too: tests/schemes."""

from __future__ import annotations

import pytest
import torch

from recsys_lab.tables import Table
from tests.executor.reference import Outcome, samples, train_unsharded
from tests.executor.sharded import train_sharded
from tests.plan.plans import TORCHREC_SCHEMES as SCHEMES
from tests.ranks import run_ranks

#: Rows that no number of ranks divides, fewer rows than ranks, two widths, and two features on one table.
TABLES = (Table("odd", 11, 16, ("f_odd",)), Table("tiny", 3, 8, ("f_tiny",)), Table("shared", 30, 16, ("f_left", "f_right")))
OPTIMIZERS = ("sgd", "adagrad", "row_wise_adagrad", "adam")
COLUMNS_CUT = ("column_wise", "table_column_wise", "grid_shard")
MIXED = {"odd": "row_wise", "tiny": "data_parallel", "shared": "table_wise"}
STEPS, ROWS, DENSE = 5, 12, 3


def close(result: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], what: str) -> None:
    assert result.keys() == expected.keys(), what
    for name in expected:
        torch.testing.assert_close(result[name], expected[name], rtol=2e-5, atol=1e-6, msg=lambda m, name=name: f"{what}, {name}: {m}")


def check(ranks: list[Outcome], reference: Outcome, what: str, columns_cut: bool, optimizer: str) -> None:
    logits = torch.cat([outcome.logits for outcome in ranks])
    torch.testing.assert_close(logits, reference.logits, rtol=1e-5, atol=1e-6, msg=lambda m: f"{what}, logits: {m}")
    for outcome in ranks:
        close(outcome.dense_grads, reference.dense_grads, f"{what}, dense gradients")
        if optimizer in ("row_wise_adagrad", "lamb") and columns_cut:
            continue  # one state, or norm, a row of each column shard: inherently another optimizer than on the whole row
        close(outcome.tables_after_one, reference.tables_after_one, f"{what}, tables after one step")
        close(outcome.tables, reference.tables, f"{what}, tables after {STEPS} steps")
        close(outcome.dense, reference.dense, f"{what}, dense part after {STEPS} steps")
        for table, state in reference.state.items():
            close(outcome.state[table], state, f"{what}, optimizer state of {table}")


@pytest.mark.parametrize(("hosts", "ranks_per_host"), [(1, 1), (1, 2), (2, 2), pytest.param(4, 1, marks=pytest.mark.long)])
def test_training_equals_the_unsharded_model(hosts: int, ranks_per_host: int) -> None:
    batches = samples(TABLES, STEPS, ROWS, DENSE)
    forced = [{"*": scheme} for scheme in SCHEMES] + [MIXED]
    cases = [(force, optimizer) for force in forced for optimizer in OPTIMIZERS]
    ranks = run_ranks(train_sharded, hosts, ranks_per_host, TABLES, batches, cases, DENSE)
    references = {optimizer: train_unsharded(TABLES, batches, optimizer, DENSE) for optimizer in OPTIMIZERS}
    for case, (force, optimizer) in enumerate(cases):
        columns_cut = hosts * ranks_per_host > 1 and force.get("*") in COLUMNS_CUT
        check([rank[case] for rank in ranks], references[optimizer], f"{force} {optimizer}", columns_cut, optimizer)


def test_sums_and_means_side_by_side_equal_the_unsharded_model() -> None:
    """TorchRec's own division would spoil the tables beside one whose rows are spread."""
    tables = tuple(Table(t.name, t.rows, t.dim, t.features, pooling) for t, pooling in zip(TABLES, ("mean", "sum", "mean")))
    batches = samples(tables, STEPS, ROWS, DENSE)
    spread, one = ("row_wise", "table_row_wise"), ("table_wise", "data_parallel", "column_wise")
    forced = [{"odd": a, "tiny": b, "shared": c} for a in spread for b in one for c in (*spread, *one)]
    ranks = run_ranks(train_sharded, 2, 2, tables, batches, [(force, "sgd") for force in forced], DENSE)
    reference = train_unsharded(tables, batches, "sgd", DENSE)
    for case, force in enumerate(forced):
        check([rank[case] for rank in ranks], reference, str(force), columns_cut=False, optimizer="sgd")
