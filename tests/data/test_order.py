"""The order of an epoch is a permutation, whatever the number of rows."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_lab.data.order import ShuffledOrder

seeds = st.integers(min_value=0, max_value=2**63)


@settings(max_examples=150)
@given(rows=st.integers(1, 5000), seed=seeds, epoch=st.integers(0, 10**6))
def test_every_row_comes_once(rows: int, seed: int, epoch: int) -> None:
    order = ShuffledOrder(rows, seed, epoch).at(np.arange(rows))
    assert np.array_equal(np.sort(order), np.arange(rows))


@settings(max_examples=30)
@given(rows=st.integers(10**6, 2**40), seed=seeds, data=st.data())
def test_a_position_alone_equals_the_position_among_others(rows: int, seed: int, data: st.DataObject) -> None:
    positions = np.array(data.draw(st.lists(st.integers(0, rows - 1), min_size=1, max_size=50, unique=True)))
    order = ShuffledOrder(rows, seed, 3)
    together = order.at(positions)
    assert together.min() >= 0 and together.max() < rows and len(set(together.tolist())) == len(positions)
    assert [int(order.at(positions[i : i + 1])[0]) for i in range(len(positions))] == together.tolist()


def test_seed_and_epoch_change_the_order() -> None:
    positions = np.arange(1000)
    orders = [tuple(ShuffledOrder(1000, seed, epoch).at(positions)) for seed in (1, 2) for epoch in (0, 1)]
    assert len(set(orders)) == 4


def test_neighbours_are_scattered() -> None:
    """The rank correlation of place and row of a random permutation of n is about normal with deviation 1 / sqrt(n)."""
    rows = 10_000
    for epoch in range(5):
        order = ShuffledOrder(rows, 7, epoch).at(np.arange(rows))
        assert abs(np.corrcoef(order, np.arange(rows))[0, 1]) < 5 / np.sqrt(rows)
        assert abs(np.corrcoef(order[1:], order[:-1])[0, 1]) < 5 / np.sqrt(rows)
