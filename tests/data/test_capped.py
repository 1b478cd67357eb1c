"""Smaller tables: ids stay in range, and the statistics are those of the folded data."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_lab.data.capped import capped, fold_access, fold_counts
from recsys_lab.data.dataset import OpenDataSet
from recsys_lab.data.frappe import open_frappe
from recsys_lab.data.interactions.open import open_interactions
from recsys_lab.data.measure import load_access, measure_access, measure_row_counts, save_access
from recsys_lab.data.protocol import HistoryCounts
from recsys_lab.data.random_ids import open_random
from recsys_lab.data.table.columns import TableColumns
from recsys_lab.errors import UserError
from recsys_lab.tables import power_law_access
from recsys_lab.tables.lengths import Lengths
from tests.data.helpers import FRAPPE_HEADER, FRAPPE_LINES, array_data, frappe_options, interactions_options, write


@settings(max_examples=40)
@given(max_rows=st.integers(1, 1200), asked=st.lists(st.integers(0, 99), min_size=1, max_size=30))
def test_ids_are_in_range_and_everything_else_is_the_same(max_rows: int, asked: list[int]) -> None:
    data = array_data(100)
    small = capped(data, max_rows)
    assert [f.rows for f in small.features] == [min(1000, max_rows)] * 2
    before, after = (d.splits["train"].read(np.array(asked)) for d in (data, small))
    assert after.ids.tolist() == (before.ids % min(1000, max_rows)).tolist()
    assert after.lengths.tolist() == before.lengths.tolist() and after.labels.tolist() == before.labels.tolist()


def test_nothing_changes_where_no_table_is_larger() -> None:
    data = array_data(10)
    assert capped(data, 1000) is data
    with pytest.raises(UserError):
        capped(data, 0)


def test_only_the_larger_tables_are_capped_and_the_note_says_so(tmp_path: Path) -> None:
    write(tmp_path / "train.csv", [FRAPPE_HEADER, *FRAPPE_LINES])
    write(tmp_path / "valid.csv", [FRAPPE_HEADER, *FRAPPE_LINES])
    data = open_frappe(**frappe_options(tmp_path))
    small = capped(data, 4)
    assert [f.rows for f in small.features] == [4, 4, 3]
    assert small.notes == ("2 of 3 tables capped at 4 rows (ids modulo that): 18 rows became 11",)
    assert small.fingerprint != data.fingerprint
    measured = measure_access(small)
    for name, table in small.access.tables.items():
        assert (table.bucket_rows, table.bucket_p) == (measured[name].bucket_rows, measured[name].bucket_p)
    assert [c.tolist() for c in small.row_counts()] == [c.tolist() for c in measure_row_counts(small)]  # type: ignore[attr-defined]
    assert capped(small, 2).features[0].rows == 2


#: What is another for smaller tables; every other field is the whole data set's.
CHANGED = {"features", "splits", "access", "fingerprint", "notes", "row_counts", "hottest_by_law", "held_out"}


def test_every_field_survives(tmp_path: Path) -> None:
    write(tmp_path / "log.txt", ["1 5 6 7 8", "2 5 9 7 6"])
    held_out = open_interactions(**interactions_options(tmp_path, format="sequences")).held_out
    data = dataclasses.replace(
        array_data(10),
        notes=("a note",),
        best_auc={"test": 0.9},
        learnable=False,
        labelled=False,
        keep=lambda folder: None,
        row_counts=lambda: [np.ones(1000, np.int64)] * 2,
        hottest_by_law=lambda table, rows: np.arange(rows),
        held_out=held_out,
        groups=(("a", "b"),),
        chooses_settings=True,
        columns=TableColumns(tmp_path, {}, {}),
        own_rows="of a file",
        item_names=lambda: ["a"],
        unknown_values={"a": 1},
        history=Lengths.equal(3.0),
        in_order=lambda: None,
        history_counts=HistoryCounts(1, 1, 1, 1),
    )
    small = capped(data, 7)
    for field in dataclasses.fields(OpenDataSet):
        before, after = getattr(data, field.name), getattr(small, field.name)
        assert before != field.default and after != field.default, field.name
        assert (after is before) == (field.name not in CHANGED), field.name


@pytest.mark.parametrize("max_rows", [1, 3, 9, 10])
def test_held_out_items_are_looked_up_in_the_smaller_table(tmp_path: Path, max_rows: int) -> None:
    write(tmp_path / "log.txt", ["1 5 6 7 8 1", "2 5 9 7 6 3"])
    data = open_interactions(**interactions_options(tmp_path, format="sequences", objective="click"))
    small = capped(data, max_rows)
    assert small.held_out.keys() == data.held_out.keys() == {"validation", "test"}
    for split, whole in data.held_out.items():
        held_out, users = small.held_out[split], np.arange(whole.rows)
        assert (held_out.rows, held_out.items, held_out.item_rows) == (whole.rows, whole.items, min(max_rows, whole.items + 1))
        assert held_out.target(users).tolist() == whole.target(users).tolist()
        for mine, theirs in zip(held_out.seen(users), whole.seen(users)):
            assert mine.tolist() == theirs.tolist()
        assert held_out.sampled(users, 2).tolist() == whole.sampled(users, 2).tolist()
        for sampled in (0, 2):
            mine, theirs = held_out.candidates(sampled), whole.candidates(sampled)
            rows = np.arange(theirs.rows)
            assert mine.rows == theirs.rows
            assert mine.read(rows).ids.tolist() == (theirs.read(rows).ids % held_out.item_rows).tolist()


@settings(max_examples=60)
@given(counts=st.lists(st.integers(0, 9), min_size=1, max_size=50), rows=st.integers(1, 60))
def test_folded_counts(counts: list[int], rows: int) -> None:
    folded = fold_counts(np.array(counts), rows)
    assert folded.tolist() == [sum(counts[i::rows]) if i < len(counts) else 0 for i in range(rows)]


@settings(max_examples=60)
@given(rows=st.integers(1, 10**6), cap=st.integers(1, 10**6), exponent=st.sampled_from([0.0, 1.0, 1.2]))
def test_a_folded_formula_keeps_rows_order_and_look_ups(rows: int, cap: int, exponent: float) -> None:
    folded = fold_access(power_law_access("t", rows, 3.0, exponent), cap)
    assert sum(folded.bucket_rows) == min(rows, cap)
    assert sum(n * p for n, p in zip(folded.bucket_rows, folded.bucket_p)) == pytest.approx(3.0)
    assert list(folded.bucket_p) == sorted(folded.bucket_p, reverse=True) or exponent == 0.0


def test_a_folded_formula_is_near_what_is_measured() -> None:
    data = open_random(
        rows_train=60_000,
        rows_validation=1,
        rows_test=0,
        rows_per_table=[100_000],
        look_ups=None,
        dense_features=0,
        exponent=1.1,
        seed_of_draws=1,
    )
    small = capped(data, 1000)
    measured = measure_access(small)
    for hottest in (1, 10, 100, 1000):
        assert small.access["C1"].share_of_hottest(hottest) == pytest.approx(measured["C1"].share_of_hottest(hottest), abs=0.03)


def test_statistics_are_saved_and_loaded(tmp_path: Path) -> None:
    access = measure_access(array_data(50), rows=20)
    assert access["b"].mean_length == 1.0 and access["a"].mean_length == pytest.approx(sum(r % 3 for r in range(20)) / 20)
    assert "20 samples" in access["a"].detail
    save_access(access, tmp_path / "access.json")
    assert load_access(tmp_path / "access.json") == access
    (tmp_path / "other.json").write_text('{"tables": [{"x": 1}]}')
    for path in (tmp_path / "other.json", tmp_path / "none.json", tmp_path):
        with pytest.raises(UserError):
            load_access(path)
    with pytest.raises(UserError):
        save_access(access, tmp_path)
