"""Copies of tables in groups of ranks that average weights, not gradients (`sync=weights`), as TorchRec's DMPCollection does.

With `sync=gradients` they have every test of a scheme (tests/schemes/test_every_scheme.py).
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from recsys_lab.errors import UserError
from recsys_lab.executor.recorded import register
from recsys_lab.plan import ShardingPlan
from recsys_lab.plan.lower import lower
from tests.executor.reference import LR, Outcome, Sample, samples, train_unsharded
from tests.executor.sharded import build, trained
from tests.executor.test_sharded_equals_unsharded import check
from tests.plan.plans import FP32, SCHEMES, access, workload
from tests.ranks import run_ranks
from tests.schemes.generated import DENSE, POOLED, ROWS, STEPS, cases, check_volume

#: Whole tables in groups of ranks that are apart, and blocks of rows in groups of neighbours.
CASES = [[case for case in cases(SCHEMES[name], 2, 2) if case.pooling == "sum"][-1] for name in ("table_wise_2d", "row_wise_2d")]
OPTIMIZERS = ("sgd", "row_wise_adagrad")
register()  # before a rank joins its process group


def _trained(plans: list[ShardingPlan], batches: list[Sample]) -> list[dict[str, Outcome]]:
    return [{name: trained(build(POOLED, plan, name, DENSE, sync="weights"), POOLED, batches) for name in OPTIMIZERS} for plan in plans]


def test_sgd_is_that_of_one_process_and_row_wise_adagrad_is_near_it() -> None:
    """A step of row-wise Adagrad moves a row by LR sqrt(D) at most: the norm of g / sqrt(mean of its squares) is sqrt(D). So after n steps
    two trainings are within 2 n LR sqrt(D). All ranks hold the same weights.
    """
    batches = samples(POOLED, STEPS, ROWS, DENSE)
    ranks = run_ranks(_trained, 2, 2, [case.plan for case in CASES], batches)
    sgd, adagrad = (train_unsharded(POOLED, batches, name, DENSE) for name in OPTIMIZERS)
    for number, case in enumerate(CASES):
        check([rank[number]["sgd"] for rank in ranks], sgd, f"{case}", columns_cut=False, optimizer="sgd")
        own = [rank[number]["row_wise_adagrad"].tables for rank in ranks]
        for table in POOLED:
            apart = (own[0][table.name] - adagrad.tables[table.name]).norm(dim=1)
            assert 1e-3 < apart.max() < 2 * STEPS * LR * table.dim**0.5, f"{case}, {table.name}"
            assert all(torch.equal(tables[table.name], own[0][table.name]) for tables in own)


def test_recorded_collectives_equal_the_steps() -> None:
    check_volume(CASES, sync="weights")


def test_weights_and_state_follow_the_update_and_nothing_runs_beside_them() -> None:
    """Of 44 rows of 16 or 8 columns: Adam keeps two numbers a weight."""
    lengths = {feature: 1.0 for table in POOLED for feature in table.features}
    steps = lower(CASES[0].plan, access(POOLED, lengths), FP32, workload(sparse_optimizer="adam"), sync="weights").steps
    by_name = {step.name: step for step in steps}
    weights, state = (by_name[f"table_wise_2d.{what}.all_reduce"] for what in ("weights", "state"))
    assert weights.blocks and state.blocks and weights.after == ("table_wise_2d.update",) and state.after == (weights.name,)
    assert [steps.index(weights), steps.index(state)] == [len(steps) - 3, len(steps) - 2] and steps[-1].name == "dense.optimizer"
    assert sum(weights.bytes_on(rank) for rank in weights.groups[0][:1] + weights.groups[-1][:1]) == sum(t.weight_bytes for t in POOLED)
    assert [size / 2 for size in state.bytes_of_rank] == list(weights.bytes_of_rank)
    assert "table_wise_2d.gradient.all_reduce" not in by_name


def test_only_fp32_weights_are_averaged() -> None:
    tables = tuple(replace(table, dtype="fp16") for table in POOLED)
    lengths = {feature: 1.0 for table in tables for feature in table.features}
    with pytest.raises(UserError, match="only weights in FP32 are averaged"):
        lower(replace(CASES[0].plan, tables=tables), access(tables, lengths), FP32, workload(), sync="weights")
