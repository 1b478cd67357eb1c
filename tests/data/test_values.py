"""A column's value of each row of a split: of any column of the files, in the order in which the split has its rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from recsys_lab.data.sources import Splits
from recsys_lab.data.table import open_table
from recsys_lab.data.values import check_column, values_of
from recsys_lab.errors import UserError
from tests.data.helpers import array_data
from tests.data.test_table import options

ROWS = 40
DIVIDED = [
    {"split_column": None, "held_out": "last"},
    {"split_column": None, "held_out": "random"},
    {"split_column": "when"},
    {"split_column": None, "file": None, "splits": Splits(train="a.csv", test="b.parquet")},
]


def files(root: Path, file: str) -> None:
    """A row's price is its number, and so is its device, which no model reads; every third has none."""
    rng = np.random.default_rng(7)
    for name, first in (("a.csv", 0), ("b.parquet", ROWS)):
        rows = np.arange(first, first + ROWS)
        device = [None if row % 3 == 0 else f" d{row} " for row in rows]
        when = rng.permutation(["train"] * 20 + ["valid"] * 10 + ["test"] * 10)
        columns = {"clicked": rows % 2, "price": rows + 0.5, "user": rows % 5, "device": device, "when": when}
        if file in ("", name):
            frame = pl.DataFrame(columns)
            frame.write_parquet(root / name) if name.endswith("parquet") else frame.write_csv(root / name)


@pytest.mark.parametrize("divided", DIVIDED)
def test_a_column_that_no_model_reads_is_read_in_the_splits_order(tmp_path: Path, divided: dict) -> None:
    files(tmp_path, "" if "splits" in divided else "a.csv")
    model = {"dense": ["price"], "categorical": ["user"], "dense_scale": "none", "validation_share": 0.25, "test_share": 0.25}
    data = open_table(**options(tmp_path, **model | divided))
    assert list(data.splits) == ["train", "validation", "test"]
    for split, rows in data.splits.items():
        values = values_of(data, "device", split)
        numbers = rows.read(np.arange(rows.rows)).dense[:, 0] - 0.5
        assert [values.names[code] for code in values.codes] == ["(missing)" if n % 3 == 0 else f"d{n:.0f}" for n in numbers]
    check_column(data, "when", "evaluate.by")


def test_a_column_that_is_not_there_and_a_file_that_has_changed_are_refused(tmp_path: Path) -> None:
    files(tmp_path, "a.csv")
    data = open_table(**options(tmp_path, dense=["price"], categorical=["user"], split_column=None))
    with pytest.raises(UserError, match="evaluate.by.*devise.*clicked, price, user, device, when.*did you mean 'device'"):
        check_column(data, "devise", "evaluate.by")
    with (tmp_path / "a.csv").open("a") as file:
        file.write("1,2.5,3,d9,test\n")
    with pytest.raises(UserError, match=r"a\.csv: .*has changed.*41 rows.*40"):
        values_of(data, "device", "test")


def test_a_column_must_be_in_the_files_that_are_judged(tmp_path: Path) -> None:
    files(tmp_path, "")
    pl.read_parquet(tmp_path / "b.parquet").drop("device").write_parquet(tmp_path / "c.parquet")
    model = {"dense": ["price"], "categorical": ["user"], "split_column": None}
    splits = {"train": "c.parquet", "validation": "a.csv", "test": "b.parquet"}
    check_column(open_table(**options(tmp_path, **model, splits=Splits(**splits))), "device", "evaluate.by")
    data = open_table(**options(tmp_path, **model, splits=Splits(**splits | {"test": "c.parquet"})))
    with pytest.raises(UserError, match="evaluate.group.*device"):
        check_column(data, "device", "evaluate.group")


def test_other_data_have_their_features(tmp_path: Path) -> None:
    data = array_data(ROWS)
    bag, name = (feature.name for feature in data.features)
    with pytest.raises(UserError, match=f"one a row; given {bag}"):
        values_of(data, bag, "train")
    check_column(data, name, "evaluate.by")
    values, rows = values_of(data, name, "train"), data.splits["train"].read(np.arange(ROWS))
    assert [values.names[code] for code in values.codes] == [f"row {row}" for row in rows.ids[-ROWS:]]
    with pytest.raises(UserError, match=f"allowed.*{name}"):
        check_column(data, "user", "evaluate.group")
