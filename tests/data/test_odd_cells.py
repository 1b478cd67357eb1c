"""Tables of clicks that nobody meant as such, or that a person wrote for people: said, or refused with what helps."""

from __future__ import annotations

from pathlib import Path

import pytest

from recsys_lab.errors import UserError
from tests.data.helpers import write
from tests.data.test_table_values import opened

ROWS = [(i % 2, f"u{i % 5}", i / 4) for i in range(60)]


@pytest.mark.parametrize("form", ["{} 1:{} 3:1 7:0.5", "{} qid:3 1:{} 9:1e-3", "{} 0:4:{} 1:7:1"])
def test_files_of_sparse_features_are_told_how_to_become_columns(tmp_path: Path, form: str) -> None:
    write(tmp_path / "a.csv", [form.format(label, price) for label, _, price in ROWS])
    with pytest.raises(UserError, match=r"a.csv:1: a file of libsvm's kind.*load_svmlight_file"):
        opened(tmp_path)


def test_no_key_that_there_is_not_is_proposed(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", ["Clicks of May", "", "label,user,price", *(f"{label},{user},{price}" for label, user, price in ROWS)])
    with pytest.raises(UserError) as caught:
        opened(tmp_path)
    assert "a.csv:2: a blank line" in str(caught.value) and "on_bad_line" not in str(caught.value)


@pytest.mark.parametrize("unit", ["k", " kg", "GB"])
def test_numbers_with_units_are_said(tmp_path: Path, unit: str) -> None:
    write(tmp_path / "a.csv", ["label,user,price", *(f"{label},{user},{price}{unit}" for label, user, price in ROWS)])
    (note,) = [note for note in opened(tmp_path).notes if note.startswith("check")]
    assert note == "check these columns: price has numbers with a unit after them, write the number alone"


def test_money_is_no_unit(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", ["label,user,price", *(f"{label},{user},{price} USD" for label, user, price in ROWS)])
    assert any("signs of money" in note for note in opened(tmp_path).notes)


def test_ids_with_letters_are_no_numbers_with_units(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", ["label,user", *(f"{label},{i % 20}{'abcdefgh'[i % 8]}" for i, (label, _, _) in enumerate(ROWS))])
    assert not [note for note in opened(tmp_path).notes if "unit" in note]
