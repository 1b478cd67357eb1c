"""The remapping is a bijection that puts each tier's rows where the plan says, and an unseen id into the row-sharded tier."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsys_lab.errors import UserError
from recsys_lab.tables.remap import Remap, dealt


@st.composite
def cases(draw):
    rows = draw(st.integers(1, 40))
    hot = draw(st.integers(0, rows))
    replicated = draw(st.integers(0, hot))
    ids = np.array(draw(st.permutations(range(rows)))[:hot], np.int64)
    return ids, replicated, hot - replicated, draw(st.integers(1, 5)), rows


@given(cases())
def test_is_a_bijection_and_keeps_to_the_tiers(case):
    ids, replicated, host_sharded, ranks, rows = case
    remap = Remap.of("t", ids, replicated, host_sharded, ranks, rows)
    everything = np.arange(rows)
    mapped = remap.to_row(everything)
    assert sorted(mapped) == list(range(rows))
    assert (remap.to_id(mapped) == everything).all()
    assert list(remap.to_row(ids[:replicated])) == list(range(replicated))
    assert set(remap.to_row(ids[replicated:])) == set(range(replicated, replicated + host_sharded))
    cold = np.setdiff1d(everything, ids)
    assert list(remap.to_row(cold)) == list(range(len(ids), rows)), "cold ids keep their order"


@given(st.integers(0, 60), st.integers(1, 9))
def test_dealing_gives_every_block_its_share_of_each_stretch(rows, ranks):
    """Of any prefix of the hottest rows, two whole blocks get numbers that differ by one at most."""
    place = dealt(rows, ranks)
    assert sorted(place) == list(range(rows))
    block = -(-rows // ranks) if rows else 1
    whole = rows // block
    for prefix in range(rows + 1):
        got = np.bincount(place[:prefix] // block, minlength=ranks)[:whole]
        full = got == block
        assert len(got) == 0 or got.max() - got[~full].min(initial=got.max()) <= 1


@pytest.mark.parametrize(
    ("ids", "says"),
    [([1, 2], "2 rows; allowed: 3"), ([1, 2, 9], "such as 9; allowed: 0 to 8"), ([1, 2, 2], "1 rows; allowed: each once")],
)
def test_frequencies_of_other_data_are_refused_in_figures(ids, says):
    with pytest.raises(UserError, match="table t") as error:
        Remap.of("t", np.array(ids), 1, 2, 2, 9)
    assert says in str(error.value)
