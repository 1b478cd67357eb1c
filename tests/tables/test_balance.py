"""Samples dealt out to ranks: every sample once, as many a rank, and nearly as much work."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from recsys_lab.data.loader import rank_slice
from recsys_lab.tables.balance import dealt


@given(st.lists(st.integers(0, 10**6), max_size=300), st.integers(1, 40))
def test_each_rank_has_as_many_samples_as_without(work: list[int], ranks: int) -> None:
    rank_of = dealt(np.array(work, float), ranks)
    slices = [rank_slice(len(work), rank, ranks) for rank in range(ranks)]
    assert np.bincount(rank_of, minlength=ranks).tolist() == [end - first for first, end in slices]


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=300), st.integers(1, 40))
def test_ranks_with_as_many_samples_differ_by_no_more_than_one_sample_does(work: list[int], ranks: int) -> None:
    whole = np.array(work[: len(work) // ranks * ranks], float)
    if len(whole):
        of_ranks = np.bincount(dealt(whole, ranks), whole, minlength=ranks)
        assert of_ranks.max() - of_ranks.min() <= whole.max() - whole.min()


def test_it_does_not_depend_on_who_asks_and_keeps_ties_in_order() -> None:
    assert dealt(np.ones(7), 3).tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert dealt(np.array([5.0, 1.0, 4.0, 2.0]), 2).tolist() == [0, 0, 1, 1]
