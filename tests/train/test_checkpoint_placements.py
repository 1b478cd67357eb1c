"""A checkpoint of any placement loads under any other: other schemes, tiers, hot rows and numbers of ranks, weights and optimizer state."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from recsys_lab.plan.tiers import is_tiered, tier_rows
from recsys_lab.tables import Table
from recsys_lab.train.model_executor import TrainedModel
from recsys_lab.train.optimizer import DenseAndTables
from tests.executor.reference import LR, Sample, samples, train_unsharded
from tests.executor.sharded import How, build, dense_optimizer_of, gathered, placed, step
from tests.executor.test_flexshard import POOLED, SEQUENCES
from tests.executor.test_sharded_equals_unsharded import close
from tests.ranks import run_ranks

DENSE, ROWS = 3, 8
THREE: How = {"odd": (2, 5), "tiny": (1, 1), "shared": (4, 9)}
OTHER: How = {"odd": (0, 3), "tiny": "table_wise", "shared": (11, 0)}
TABLES, OPTIMIZERS = {"pooled": POOLED, "sequences": SEQUENCES}, ("row_wise_adagrad", "adam")
Tables = tuple[dict[str, torch.Tensor], dict[str, dict[str, torch.Tensor]]]


@dataclass(frozen=True)
class Leg:
    """Part of a training: under `how`, with the hot rows in another order for every `shift`, from one checkpoint to the next."""

    how: How
    shift: int
    load: Path | None
    save: Path


def go_on(tables: tuple[Table, ...], optimizer: str, leg: Leg, batches: list[Sample]) -> tuple[Tables, Tables]:
    """Tables and their optimizer state as they were loaded, and after `batches`, when they were saved."""
    plan = placed(tables, leg.how)
    sizes = {name: tier_rows(p) for name, (_, p) in plan.by_table.items() if is_tiered(p)}
    hot = {name: np.roll(np.arange(sum(r.values())), leg.shift)[: r["replicated"] + r["host_sharded"]] for name, r in sizes.items()}
    sharded = build(tables, plan, optimizer, DENSE, hot)
    dense = dense_optimizer_of(sharded)
    trained = TrainedModel(sharded, DenseAndTables(dense, sharded.sparse_optimizer, LR))
    if leg.load is not None:
        checkpoint = trained.load(leg.load)
        trained.load_weights(checkpoint)
        trained.load_optimizers(checkpoint)
    loaded = gathered(sharded, tables)
    for batch in batches:
        step(sharded, dense, batch)
    trained.save({}, leg.save)
    return loaded, gathered(sharded, tables)


def same(loaded: Tables, saved: Tables) -> None:
    """The same bits, weights and state."""
    for name, weight in saved[0].items():
        assert torch.equal(loaded[0][name], weight), name
        assert loaded[1][name].keys() == saved[1][name].keys()
        for key, state in saved[1][name].items():
            assert torch.equal(loaded[1][name][key], state), (name, key)


def go_on_with_all(leg: Leg, batches: dict[str, list[Sample]]) -> dict[tuple[str, str], tuple[Tables, Tables]]:
    """By kind of table and optimizer; each has checkpoints of its own."""
    actual = {}
    for (kind, tables), optimizer in itertools.product(TABLES.items(), OPTIMIZERS):
        own_leg = replace(leg, load=leg.load and leg.load / f"{kind}_{optimizer}", save=leg.save / f"{kind}_{optimizer}")
        actual[kind, optimizer] = go_on(tables, optimizer, own_leg, batches[kind])
    return actual


def test_training_goes_on_from_any_placement_under_any_other(tmp_path: Path) -> None:
    """4 ranks in three tiers, 2 ranks row-wise, 4 ranks in other tiers of other hot rows, and one rank."""
    batches = {kind: samples(tables, 8, ROWS, DENSE) for kind, tables in TABLES.items()}
    at = [tmp_path / f"{number}" for number in range(4)]
    legs = [
        ((2, 2), Leg(THREE, 0, None, at[0])),
        ((1, 2), Leg({"*": "row_wise"}, 0, at[0], at[1])),
        ((2, 2), Leg(OTHER, 5, at[1], at[2])),
        ((1, 1), Leg(THREE, 0, at[2], at[3])),
    ]
    before: dict[tuple[str, str], Tables] = {}
    for number, (shape, leg) in enumerate(legs):
        ranks = run_ranks(go_on_with_all, *shape, leg, {kind: all_of[2 * number : 2 * number + 2] for kind, all_of in batches.items()})
        for rank, (case, saved) in itertools.product(ranks, before.items()):
            same(rank[case][0], saved)
        before = {case: after for case, (_, after) in ranks[0].items()}
    for (kind, optimizer), (weights, state) in before.items():
        reference = train_unsharded(TABLES[kind], batches[kind], optimizer, DENSE)
        close(weights, reference.tables, f"{kind}, {optimizer}")
        for name, expected in reference.state.items():
            close(state[name], expected, f"{kind}, {optimizer}: state of {name}")
