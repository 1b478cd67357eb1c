"""Rows that are not in the global batch do not move, whatever momentum they have, under any sharding type and optimizer."""

from __future__ import annotations

import torch

from recsys_lab.executor.shard import shard
from recsys_lab.tables import Table
from tests.executor.reference import EPS, LR, SEED, Concat, Sample, samples
from tests.executor.sharded import FP32, build, dense_optimizer_of, gathered, here, step
from tests.executor.test_sharded_equals_unsharded import DENSE, OPTIMIZERS
from tests.plan.plans import TORCHREC_SCHEMES as SCHEMES
from tests.ranks import run_ranks

TABLES = (Table("wide", 13, 16, ("f_wide",)), Table("tiny", 3, 8, ("f_tiny",)))
ROWS = 8
LAST = {"f_wide": [0, 7, 7], "f_tiny": [1]}  # the only ids of the last batch, all on the first rank


def moved(cases: list[tuple[str, str]], batches: list[Sample]) -> list[dict[str, list[int]]]:
    """For each case the rows, by table, that the last of `batches` changed: weights or optimizer state."""
    changed = []
    for scheme, optimizer in cases:
        sharded = build(TABLES, here(TABLES, {"*": scheme}), optimizer, DENSE)
        dense = dense_optimizer_of(sharded)
        for batch in batches[:-1]:
            step(sharded, dense, batch)
        first, state_before = gathered(sharded, TABLES)
        step(sharded, dense, batches[-1])
        after, state_after = gathered(sharded, TABLES)
        rows = {}
        for name in first:
            different = (first[name] != after[name]).any(dim=1)
            for key, value in state_before[name].items():
                different |= (value != state_after[name][key]).reshape(len(different), -1).any(dim=1)
            rows[name] = different.nonzero().flatten().tolist()
        changed.append(rows)
    return changed


def test_only_rows_of_the_batch_move() -> None:
    batches = samples(TABLES, 3, ROWS, DENSE)
    last = samples(TABLES, 1, ROWS, DENSE, seed=9)[0]
    last.ids = {f: [ids] + [[]] * (ROWS - 1) for f, ids in LAST.items()}
    cases = [(scheme, optimizer) for scheme in SCHEMES for optimizer in OPTIMIZERS]
    for changed in zip(*run_ranks(moved, 2, 2, cases, [*batches, last])):
        assert all(rows == {"wide": [0, 7], "tiny": [1]} for rows in changed)


def rate_is_used_at_once(batches: list[Sample]) -> list[torch.Tensor]:
    """Row 0 of `wide` after a step at rate 0 and after another one at rate 1, for each optimizer."""
    rates = []
    for optimizer in OPTIMIZERS:
        sharded = build(TABLES, here(TABLES, {"*": "row_wise"}), optimizer, DENSE)
        dense = dense_optimizer_of(sharded)
        values = [gathered(sharded, TABLES)[0]["wide"]]
        for rate in (0.0, 1.0):
            sharded.sparse_optimizer.set_lr(rate)
            step(sharded, dense, batches[0])
            values.append(gathered(sharded, TABLES)[0]["wide"])
        rates.append(torch.stack(values))
    return rates


def test_a_learning_rate_holds_for_the_step_it_was_set_before() -> None:
    for first, at_zero, at_one in run_ranks(rate_is_used_at_once, 1, 1, samples(TABLES, 1, ROWS, DENSE))[0]:
        assert torch.equal(first, at_zero)
        assert not torch.equal(at_zero, at_one)


def test_tables_of_a_model_with_a_first_order_part_begin_with_a_third_of_the_usual_values() -> None:
    ((usual, third),) = run_ranks(first_values, 1, 1)
    assert usual.abs().max() > 0.1
    torch.testing.assert_close(third, usual / 3)


def first_values() -> tuple[torch.Tensor, torch.Tensor]:
    values = []
    for share in (1.0, 1 / 3):
        model = Concat(TABLES, DENSE, torch.device("meta"))
        model.initial_share = share
        sharded = shard(model, here(TABLES, {"*": "table_wise"}), torch.device("cpu"), ("sgd", LR, EPS, 0.0), FP32, SEED)
        values.append(gathered(sharded, TABLES)[0]["tiny"])
    return values[0], values[1]
