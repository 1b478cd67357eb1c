"""Row frequencies of one data set plan another; those of other tables are refused in figures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from recsys_lab.data.capped import capped
from recsys_lab.data.frequencies import TABLE, save_frequencies, with_frequencies
from recsys_lab.data.protocol import Feature
from recsys_lab.data.random_ids import open_random
from recsys_lab.errors import UserError

TABLES = (Feature("a", 40, 2.0), Feature("b", 7, 1.0))


def data(rows: int = 2000, wanted: tuple[Feature, ...] = TABLES, draws: int = 1):
    return open_random(
        wanted,
        rows_train=rows,
        rows_validation=10,
        rows_test=0,
        rows_per_table=[],
        look_ups=None,
        dense_features=0,
        exponent=1.2,
        seed_of_draws=draws,
    )


def test_counted_frequencies_come_back_and_order_the_rows(tmp_path: Path) -> None:
    assert save_frequencies(tmp_path / "f.npz", data()) == 2000
    read = with_frequencies(data(), str(tmp_path / "f.npz"))
    assert read.row_counts is not None
    counts = read.row_counts()
    assert [c.sum() for c in counts] == [4000, 2000]
    assert read.access["a"].origin == "measured" and read.access["a"].mean_length == 2.0
    hottest = read.hottest("a", 40)
    assert (np.diff(counts[0][hottest]) <= 0).all() and sorted(hottest) == list(range(40))
    assert list(read.hottest("a", 3)) == list(data().hottest("a", 3)), "the formula's hottest rows are those that were counted"
    assert read.fingerprint != data().fingerprint and "f.npz" in read.notes[-1]


def test_a_capped_data_set_keeps_its_hottest_rows_apart(tmp_path: Path) -> None:
    save_frequencies(tmp_path / "f.npz", data())
    for whole in (data(), with_frequencies(data(), str(tmp_path / "f.npz"))):
        hottest = capped(whole, 10).hottest("a", 10)
        assert sorted(hottest) == list(range(10))
        assert hottest[0] == whole.hottest("a", 1)[0] % 10


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ((Feature("a", 41, 2.0), Feature("b", 7)), "table a has another number of rows; given 40 rows counted; allowed: 41"),
        ((Feature("a", 40, 2.0), Feature("c", 7)), "other tables; given a, b; allowed: a, c"),
        ((Feature("a", 40, 5.0), Feature("b", 7)), "given 2 look-ups a sample; allowed: within a factor 2 of the data's 5"),
    ],
)
def test_frequencies_of_other_data_are_refused_in_figures(tmp_path: Path, wanted: tuple[Feature, ...], says: str) -> None:
    save_frequencies(tmp_path / "f.npz", data())
    with pytest.raises(UserError, match=r"f\.npz: the frequencies do not match the data") as error:
        with_frequencies(data(wanted=wanted), str(tmp_path / "f.npz"))
    assert says in str(error.value)


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_text("no")
    np.savez(tmp_path / "pickled.npz", samples=np.int64(1), **{TABLE + "a": np.array([object()])})
    for name, says in (("x.npz", "no row frequencies"), ("pickled.npz", "no row frequencies"), ("none.npz", "cannot be read")):
        with pytest.raises(UserError, match=says):
            with_frequencies(data(), str(tmp_path / name))
