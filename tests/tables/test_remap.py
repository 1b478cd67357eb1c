"""The remapping is a bijection that puts each tier's rows where the plan says, and an unseen id into the row-sharded tier."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsys_lab.errors import UserError
from recsys_lab.tables import Table
from recsys_lab.tables.remap import KEPT_IDS, Remap, dealt, kept_id_bytes


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
        counts = np.bincount(place[:prefix] // block, minlength=ranks)[:whole]
        full = counts == block
        assert len(counts) == 0 or counts.max() - counts[~full].min(initial=counts.max()) <= 1


def test_rows_are_dealt_like_cards() -> None:
    assert dealt(5, 2).tolist() == [0, 3, 1, 4, 2] and dealt(6, 3).tolist() == [0, 2, 4, 1, 3, 5]
    assert dealt(3, 1).tolist() == [0, 1, 2] and dealt(0, 2).tolist() == []


def test_ids_by_hand() -> None:
    """Rows 7 and 2 are replicated, then 5, 0 and 8 dealt to two ranks; 1, 3, 4 and 6 follow in their order."""
    remap = Remap.of("t", np.array([7, 2, 5, 0, 8]), 2, 3, 2, 9)
    assert remap.hot_rows == 5 and remap.rows == 9
    assert remap.to_row(np.array([7, 2, 5, 0, 8, 1, 3, 4, 6])).tolist() == [0, 1, 2, 4, 3, 5, 6, 7, 8]
    none = Remap.of("t", np.array([], np.int64), 0, 0, 2, 9)
    assert none.to_row(np.array([8, 0])).tolist() == none.to_id(np.array([8, 0])).tolist() == [8, 0]


def test_half_of_an_int64_holds_ids_below_two_to_the_31() -> None:
    small, large = (Table(f"t{rows}", rows, 4, ("a",)) for rows in (2**31 - 1, 2**31))
    assert [kept_id_bytes(tables) for tables in ([], [small], [small, large])] == [4, 4, 8]


@pytest.mark.parametrize(
    ("ids", "says"),
    [
        ([1, 2], "2 rows; allowed: 3"),
        ([1, 2, 9], "1 ids outside it, such as 9; allowed: 0 to 8"),
        ([-1, 2, 9], "2 ids outside it, such as -1"),
        ([1, 2, 2], "1 rows; allowed: each once"),
    ],
)
def test_frequencies_of_other_data_are_refused_in_figures(ids, says):
    with pytest.raises(UserError, match="table t") as error:
        Remap.of("t", np.array(ids), 1, 2, 2, 9)
    assert says in str(error.value)


def test_a_rank_keeps_a_quarter_of_a_megabyte_of_ids_a_table() -> None:
    assert KEPT_IDS * kept_id_bytes([Table("t", 2**31 - 1, 8, ("a",))]) == 262_144
