"""What the cells of a table mean: one id written in several ways, values that train lacks, columns that are no text or number."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from torch import nn

from recsys_lab.base.paths import ROOT
from recsys_lab.data.dataset import OpenDataSet
from recsys_lab.data.table import open_table
from recsys_lab.data.table.prepare import feature_names
from recsys_lab.errors import UserError
from tests.data.test_table import options

LABELS = [i % 2 for i in range(40)]
USERS = [i % 5 for i in range(40)]


def put(root: Path, split: str, kind: str, users: Sequence[object]) -> None:
    table = pl.DataFrame({"label": (LABELS * 9)[: len(users)], "user": users}, strict=False)
    if kind == "parquet":
        table.write_parquet(root / f"{split}.parquet")
    else:
        lines = ["label,user", *(f"{label},{'' if user is None else user}" for label, user in table.rows())]
        (root / f"{split}.csv").write_text("\n".join(lines))


def opened(root: Path, **changed: object) -> OpenDataSet:
    return open_table(**options(root, label="label", split_column=None, **changed))


def ids(data: OpenDataSet, split: str) -> list[int]:
    return data.splits[split].read(np.arange(data.splits[split].rows)).ids.tolist()


FLOATS = [None, *map(float, USERS[1:])]


@pytest.mark.parametrize("encoding", ["vocabulary", "hashing"])
@pytest.mark.parametrize("train", ["csv", "parquet"])
@pytest.mark.parametrize("valid", ["csv", "parquet"])
@pytest.mark.parametrize("floats_in", ["train", "valid"])
def test_a_whole_float_is_the_id_that_the_integer_is(tmp_path: Path, encoding: str, train: str, valid: str, floats_in: str) -> None:
    """pandas turns a column of integers into floats where one is missing: 3 in one file was another user than 3.0 in the other."""
    put(tmp_path, "train", train, FLOATS if floats_in == "train" else USERS)
    put(tmp_path, "valid", valid, FLOATS if floats_in == "valid" else USERS)
    data = opened(tmp_path, ids=encoding)
    assert [feature.name for feature in data.features] == ["user"] and not data.dense_features
    assert ids(data, "train")[1:] == ids(data, "validation")[1:] and len(set(ids(data, "validation")[1:])) == 5
    assert ids(data, "train" if floats_in == "train" else "validation")[0] == 0


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [("3", "3.0", True), ("-3", "-3.00", True), ("3", "3.", True), ("0", "-0.0", True), ("007", "7", False), ("1.1", "1.10", False)]
    + [("v1", "v1.0", False), ("1.0.0", "1.0", False), ("9007199254740993", "9007199254740993.0", True)],
)
def test_only_whole_numbers_are_one_id_in_two_spellings(tmp_path: Path, one: str, other: str, same: bool) -> None:
    put(tmp_path, "train", "csv", [one, other] * 20)
    data = opened(tmp_path, categorical=["user"], dense=[])
    assert (len(set(ids(data, "train"))) == 1) == same


def test_a_float_that_is_no_number_is_missing(tmp_path: Path) -> None:
    put(tmp_path, "train", "parquet", [float("nan"), 1.0, 2.0] * 13)
    data = opened(tmp_path)
    assert ids(data, "train")[:3] == [0, 2, 3]


def test_a_column_of_money_is_a_number(tmp_path: Path) -> None:
    """Parquet's decimals were taken for categories."""
    table = pl.DataFrame({"label": LABELS, "user": USERS, "price": [f"{i}.25" for i in range(40)], "shop": ["7.00", "8.00"] * 20})
    table.with_columns(pl.col("price", "shop").cast(pl.Decimal(10, 2))).write_parquet(tmp_path / "a.parquet")
    data = opened(tmp_path)
    assert "taken for numbers: price; for categories: user, shop" in data.notes[0]


@pytest.mark.parametrize("split", ["valid", "test"])
@pytest.mark.parametrize("encoding", ["vocabulary", "hashing"])
def test_a_column_of_which_train_knows_no_value_is_noticed(tmp_path: Path, split: str, encoding: str) -> None:
    """Ids that are written in another way in the other file match nothing: validation AUC was 0.5, and nothing said why."""
    words = [f"u{i}" for i in USERS]
    for name in ("train", "valid", "test"):
        put(tmp_path, name, "csv", [word.upper() if name == split else word for word in words])
    said = [note for note in opened(tmp_path, ids=encoding).notes if "check these columns" in note]
    assert said == ["check these columns: user has hardly a value in validation or test that train has, check that they are written alike"]
    put(tmp_path, split, "csv", words)
    assert not [note for note in opened(tmp_path, ids=encoding).notes if "check these columns" in note]
    put(tmp_path, split, "csv", [None] * 40)
    assert not [note for note in opened(tmp_path, ids=encoding).notes if "check these columns" in note]


ODD = {
    "a list of lists": (pl.Series("tags", [[[1, 2]], [[3]]] * 20), r"List\(List\(Int64\)\)"),
    "a struct": (pl.Series("tags", [{"a": 1}, None] * 20), r"Struct\(\{'a': Int64\}\)"),
    "a duration": (pl.Series("tags", range(40)).cast(pl.Duration("us")), r"Duration\(time_unit='us'\)"),
    "bytes": (pl.Series("tags", [b"\xff", b"a"] * 20), r"Binary"),
}


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("split", ["train", "valid"])
def test_a_column_that_is_no_text_is_named_with_its_type(tmp_path: Path, kind: str, split: str) -> None:
    """It was called a broken file that is to be written again."""
    odd, said = ODD[kind]
    plain = pl.DataFrame({"label": LABELS, "user": USERS, "a b": ["x", "y"] * 20})
    for name in ("train", "valid"):
        more = odd if name == split else pl.Series("tags", ["a", "b"] * 20)
        plain.with_columns(more, more.alias("t,u")).write_parquet(tmp_path / f"{name}.parquet")
    with pytest.raises(
        UserError, match=rf"{split}.parquet: columns of numbers, of words in UTF-8, or of dates are read; given tags: {said}"
    ) as caught:
        opened(tmp_path, drop=["a b"])
    assert str(caught.value).endswith(r"""; leave out what is none: 'data.drop=["a b",tags,"t,u"]'""")
    with pytest.raises(UserError, match="given tags: .*; take it out of data.categorical"):
        opened(tmp_path, dense=[], categorical=["user", "tags"])
    with pytest.raises(UserError, match="given tags: .*; take it out of data.label, or name another column there"):
        open_table(**options(tmp_path, label="tags", split_column=None, drop=["t,u"]))
    assert ids(opened(tmp_path, drop=["tags", "t,u"]), "train")
    assert ids(opened(tmp_path, dense=[], categorical=["user"]), "train")


def test_words_that_are_stored_as_bytes_are_words(tmp_path: Path) -> None:
    put(tmp_path, "train", "parquet", [f"é{user}".encode() for user in USERS])
    put(tmp_path, "valid", "csv", [f"é{user}" for user in USERS])
    data = opened(tmp_path)
    assert ids(data, "train") == ids(data, "validation")


@pytest.mark.parametrize(("one", "other"), [("True", "true"), ("FALSE", "false"), (" a", "a"), ("a b\t", "a b"), (" 3.0 ", "3")])
def test_one_value_in_two_spellings_is_one_category(tmp_path: Path, one: str, other: str) -> None:
    """pandas writes True, Parquet's truth values are read as true."""
    put(tmp_path, "train", "csv", [one, other] * 20)
    assert len(set(ids(opened(tmp_path, categorical=["user"], dense=[]), "train"))) == 1


def test_blanks_around_the_names_of_columns_are_no_part_of_them(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("label, user ,item\n" + "".join(f"{i % 2}, u{i % 5},x\n" for i in range(40)))
    assert "for categories: user, item" in opened(tmp_path).notes[0]


def test_decimal_commas_are_noticed_and_refused_as_numbers(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("label;user;price\n" + "".join(f"{i % 2};u{i % 5};{i % 7},{i % 3}\n" for i in range(40)))
    key = """'data.decimal={price: ","}'"""
    assert opened(tmp_path).notes[-1] == f"check these columns: price looks like numbers with a decimal comma; as numbers: {key}"
    with pytest.raises(UserError, match=f"row 1: price is not a number; given '0,0'; say what stands before the fraction: {key}"):
        opened(tmp_path, dense=["price"])


@pytest.mark.parametrize("first", ["0,u,0", "1,,7", "1,0.5,ann"])
def test_a_file_without_a_header_is_told_to_have_one(tmp_path: Path, first: str) -> None:
    (tmp_path / "a.csv").write_text(f"{first}\n" * 40)
    with pytest.raises(UserError, match="if its first line is a row, name the columns: data.columns="):
        opened(tmp_path)


@pytest.mark.parametrize("date", ["{day}.3.2014", "3/{day}/2014 10:{day}", "2014-03-{day}T10:00:00+02:00"])
def test_dates_of_any_land_are_noticed(tmp_path: Path, date: str) -> None:
    put(tmp_path, "train", "csv", [date.format(day=10 + i % 9) for i in range(40)])
    assert "check these columns: user looks like a date" in opened(tmp_path).notes[-1]


@pytest.mark.parametrize("word", ["NA", "NULL", "\\N"])
def test_a_word_for_a_missing_number_is_noticed(tmp_path: Path, word: str) -> None:
    """One makes categories of all the numbers beside it."""
    put(tmp_path, "train", "csv", [word if i % 9 == 0 else 1.5 * (i % 6) for i in range(40)])
    assert "check these columns: user has numbers beside a word" in opened(tmp_path).notes[-1]
    put(tmp_path, "train", "csv", [word if i % 9 == 0 else i % 6 for i in range(40)])
    assert "check these columns" not in opened(tmp_path).notes[-1], "whole numbers are ids"


def test_cells_of_several_values_are_noticed(tmp_path: Path) -> None:
    put(tmp_path, "train", "csv", [("comedy", "drama|comedy", "comedy|war", "war")[i // 2 % 4] for i in range(200)])
    said = "user has several values in a cell, each combination counts as one value"
    assert opened(tmp_path).notes[-1] == f"check these columns: {said}; as lists: 'data.lists={{user: \"|\"}}'"


@pytest.mark.parametrize("name", ["clicks.CSV", "clicks.Parquet"])
def test_capitals_in_the_end_of_a_file_s_name_are_the_same(tmp_path: Path, name: str) -> None:
    put(tmp_path, "train", name.rpartition(".")[2].lower(), USERS)
    (tmp_path / f"train.{name.rpartition('.')[2].lower()}").rename(tmp_path / name)
    assert opened(tmp_path).splits["train"].rows + opened(tmp_path).splits["validation"].rows + opened(tmp_path).splits["test"].rows == 40


def test_no_feature_is_called_as_what_a_module_has() -> None:
    own = [name for name in dir(nn.ModuleDict()) if not name[0].isdigit()]
    assert len(own) > 100 and feature_names(own) == [f"{name}_" for name in own] and feature_names(["user", "weight"]) == ["user", "weight"]


def test_a_table_is_opened_without_torch(tmp_path: Path) -> None:
    """Which takes seconds to import: a plan is made without it."""
    put(tmp_path, "train", "csv", USERS)
    words = ["data=table", f"data.root={tmp_path}", f"data.cache={tmp_path}/cache"]
    line = f"import sys; from recsys_lab.experiment import of_words; of_words({words}, where='test').open_data(); "
    line += "sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", line], cwd=ROOT, check=False).returncode == 0
