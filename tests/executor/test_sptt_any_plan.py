"""Whatever tables, towers, placement and batches: SPTT trains as the flat model, and tower modules as in one process."""

from __future__ import annotations

import os
from dataclasses import dataclass

import pytest
import torch.distributed as dist
from hypothesis import strategies as st

from recsys_lab.plan import Placement, Shard, ShardingPlan
from recsys_lab.plan.validate import validate
from recsys_lab.schemes.towers.sites import sites_of, tower_of_features
from recsys_lab.tables import Table
from tests.executor import reference
from tests.executor.drawn import count_without_fault, difference
from tests.executor.reference import samples
from tests.executor.tower_cases import Towers, tower_placement, train, train_unsharded
from tests.ranks import run_ranks

DENSE = 2
EXAMPLES = 30


@dataclass(frozen=True)
class Example:
    tables: tuple[Table, ...]
    towers: Towers
    modules: bool
    schemes: tuple[str, ...]
    shift: tuple[int, ...]  # on which rank of its site a table begins
    permute: str
    optimizer: str
    samples_a_rank: int
    seed: int


@st.composite
def examples(draw: st.DrawFn) -> Example:
    modules = draw(st.booleans())
    count = draw(st.integers(1, 4))  # three share two hosts or four unevenly
    dim = draw(st.sampled_from([1, 4, 6]))
    tables: list[Table] = []
    towers: list[list[str]] = [[] for _ in range(count)]
    for number in range(draw(st.integers(count, 6))):
        features = tuple(f"t{number}_f{i}" for i in range(draw(st.integers(1, 2))))
        own_dim = dim if modules else draw(st.sampled_from([1, 4, 6]))
        tables.append(Table(f"t{number}", draw(st.integers(1, 12)), own_dim, features, draw(st.sampled_from(["sum", "mean"]))))
        towers[number if number < count else draw(st.integers(0, count - 1))] += features
    return Example(
        tuple(tables),
        tuple(tuple(draw(st.permutations(tower))) for tower in towers),
        modules,
        tuple(draw(st.sampled_from(["table_wise", "column_wise", "row_wise"])) for _ in tables),
        tuple(draw(st.integers(0, 3)) for _ in tables),
        draw(st.sampled_from(["rows", "ids", "none"])),
        draw(st.sampled_from(["sgd", "adagrad", "adam"])),
        draw(st.integers(1, 3)),
        draw(st.integers(0, 999)),
    )


def plan_of(example: Example) -> ShardingPlan:
    """Row-wise tables may leave out blocks without rows."""
    local = int(os.environ["LOCAL_WORLD_SIZE"])
    hosts, tower_of = dist.get_world_size() // local, tower_of_features(example.towers)
    sites = sites_of(len(example.towers), hosts, local)
    placements = []
    for table, scheme, shift in zip(example.tables, example.schemes, example.shift):
        ranks = sites.ranks_of(sites.site_of_tower(tower_of[table.features[0]]))
        placement = tower_placement(table, scheme, ranks, shift)
        shards: tuple[Shard, ...] = tuple(shard for shard in placement.shards if shard.rows)
        placements.append(Placement(table.name, placement.scheme, shards))
    plan = ShardingPlan(
        "by_hand", hosts, local, example.tables, tuple(placements), example.towers, example.permute if sites.even else "ids"
    )
    validate(plan)
    return plan


def equals_unsharded(example: Example) -> str | None:
    """None, or what differs on this rank."""
    batches = samples(example.tables, 2, example.samples_a_rank * dist.get_world_size(), DENSE, example.seed)
    outcome = train(plan_of(example), batches, example.optimizer, DENSE, example.modules)
    if example.modules:
        whole = train_unsharded(example.tables, example.towers, batches, example.optimizer, DENSE)
        for part in (whole.dense, whole.dense_grads):
            for name in [name for name in part if name not in outcome.dense]:
                assert name.startswith("tower_modules."), name
                del part[name]
    else:
        whole = reference.train_unsharded(example.tables, batches, example.optimizer, DENSE)
    return difference(outcome, whole, example.optimizer)


def draw_and_compare() -> int:
    return count_without_fault(examples(), EXAMPLES, equals_unsharded)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("hosts", "ranks_per_host"), [(2, 2), pytest.param(4, 1, marks=pytest.mark.long)])
def test_any_towers_equal_the_unsharded_model(hosts: int, ranks_per_host: int) -> None:
    assert set(run_ranks(draw_and_compare, hosts, ranks_per_host)) == {EXAMPLES}
