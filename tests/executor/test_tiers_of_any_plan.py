"""Whatever tables, hot rows, tier sizes and batches: sharded training equals the unsharded model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch.distributed as dist
from hypothesis import strategies as st

from recsys_lab.tables import Table
from tests.executor.drawn import count_without_fault, difference
from tests.executor.reference import samples, train_unsharded
from tests.executor.sharded import How, placed, train
from tests.ranks import run_ranks

DENSE = 2
OPTIMIZERS = ("sgd", "adagrad", "row_wise_adagrad", "adam")
SCHEMES = {"sum": ("data_parallel", "table_wise", "row_wise", "table_row_wise"), "none": ("data_parallel", "table_wise", "row_wise")}


@dataclass(frozen=True)
class Example:
    tables: tuple[Table, ...]
    how: How
    hot: dict[str, list[int]]
    optimizer: str
    samples_a_rank: int
    seed: int


@st.composite
def examples(draw: st.DrawFn) -> Example:
    pooled = draw(st.booleans())
    dims = st.sampled_from([4, 8]) if pooled else st.just(draw(st.sampled_from([4, 8])))
    tables, how, hot = [], {}, {}
    for number in range(draw(st.integers(1, 3))):
        name, rows = f"t{number}", draw(st.integers(1, 12))
        features = tuple(f"{name}_f{i}" for i in range(draw(st.integers(1, 2))))
        tables.append(Table(name, rows, draw(dims), features, draw(st.sampled_from(["sum", "mean"])) if pooled else "none"))
        if draw(st.integers(0, 3)) == 0:
            how[name] = draw(st.sampled_from(SCHEMES["sum" if pooled else "none"]))
            continue
        replicated = draw(st.integers(0, rows))
        how[name] = replicated, draw(st.integers(0, rows - replicated))
        hot[name] = draw(st.permutations(range(rows)))[: sum(how[name])]
    return Example(tuple(tables), how, hot, draw(st.sampled_from(OPTIMIZERS)), draw(st.integers(1, 3)), draw(st.integers(0, 999)))


def equals_unsharded(example: Example) -> str | None:
    """None, or what differs on this rank."""
    batches = samples(example.tables, 2, example.samples_a_rank * dist.get_world_size(), DENSE, example.seed)
    plan = placed(example.tables, example.how)
    hot = {name: np.array(ids, np.int64) for name, ids in example.hot.items()}
    outcome = train(example.tables, plan, batches, example.optimizer, DENSE, hot)
    reference = train_unsharded(example.tables, batches, example.optimizer, DENSE)
    return difference(outcome, reference, example.optimizer)


def draw_and_compare(number: int) -> int:
    return count_without_fault(examples(), number, equals_unsharded)


@pytest.mark.parametrize(("hosts", "ranks_per_host", "number"), [(2, 2, 25), (1, 2, 10)])
def test_any_plan_equals_the_unsharded_model(hosts: int, ranks_per_host: int, number: int) -> None:
    assert set(run_ranks(draw_and_compare, hosts, ranks_per_host, number, timeout_s=240)) == {number}
