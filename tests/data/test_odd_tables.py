"""Tables as they are found: lists in cells, part files, no header, no labels, numbers that are written out. Read right, or said."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from recsys_lab.data.dataset import OpenDataSet
from recsys_lab.data.sources import Splits
from recsys_lab.data.table import open_table
from recsys_lab.data.table.guess import kind_of
from recsys_lab.errors import UserError
from tests.data.helpers import write
from tests.data.test_table import options

ROWS = 200
LABELS = [i % 3 == 0 for i in range(ROWS)]
#: Cells of several values: one, none, many, some with blanks around them.
TAGS = [[f"t{(i * k) % 7}" for k in range(i % 4)] for i in range(ROWS)]


def opened(root: Path, **changed) -> OpenDataSet:
    return open_table(**options(root, label="label", split_column=None) | changed)


def table(**columns: list) -> list[str]:
    cells = [[str(value) for value in column] for column in columns.values()]
    return [",".join(columns), *(",".join(f'"{cell}"' if "," in cell else cell for cell in row) for row in zip(*cells))]


def labelled(**columns: list) -> list[str]:
    return table(label=[int(one) for one in LABELS], **columns)


def values_of(data: OpenDataSet, feature: int, split: str = "train") -> list[list[str]]:
    """The values of a feature in each row, by the vocabulary that a run would keep."""
    rows = data.splits[split].read(np.arange(data.splits[split].rows))
    ids = np.split(rows.ids, np.cumsum(rows.lengths.ravel())[:-1])
    per_row = ids[feature * rows.labels.size : (feature + 1) * rows.labels.size]
    return [one.tolist() for one in per_row]


@pytest.mark.parametrize("separator", ["|", "^", ",", ";", " ", "json", "parquet"])
def test_lists_in_cells_are_bags(tmp_path: Path, separator: str) -> None:
    """The same bags whatever separates their values; held against a count in plain Python."""
    if separator == "parquet":
        pl.DataFrame({"label": LABELS, "user": [f"u{i % 5}" for i in range(ROWS)], "tags": TAGS}).write_parquet(tmp_path / "a.parquet")
        lists = None
    else:
        cells = [json.dumps(one).replace('"', "'") if separator == "json" else separator.join(one) for one in TAGS]
        write(tmp_path / "a.csv", labelled(user=[f"u{i % 5}" for i in range(ROWS)], tags=cells))
        lists = {"tags": separator}
    data = opened(tmp_path, lists=lists)
    assert [feature.name for feature in data.features] == ["user", "tags"] and data.features[1].pooling == "sum"
    assert "several values a row, whose vectors are summed: tags" in data.notes
    train = TAGS[: data.splits["train"].rows]
    seen = [value for one in train for value in one]
    by_count = sorted(set(seen), key=lambda value: (-seen.count(value), value))
    row_of = {value: row + 2 for row, value in enumerate(by_count)}
    assert values_of(data, 1) == [[row_of[value] for value in one] or [0] for one in train]
    assert data.features[1].rows == len(by_count) + 2
    assert math.isclose(data.access["tags"].mean_length, sum(max(len(one), 1) for one in train) / len(train))
    expected = np.bincount([row for one in values_of(data, 1) for row in one], minlength=len(by_count) + 2)
    assert data.row_counts()[1].tolist() == expected.tolist()
    shuffled = np.array([5, 3, 3, 0])
    rows = data.splits["train"].read(shuffled)
    assert rows.lengths[1].tolist() == [max(len(TAGS[i]), 1) for i in shuffled]
    assert rows.ids[len(shuffled) :].tolist() == [row for i in shuffled for row in values_of(data, 1)[i]]


@pytest.mark.parametrize("form", ["[{} {}]", "({}, {})", "['{}' '{}']", "['{}', '{}']"])
def test_what_python_prints_of_a_list_is_one(tmp_path: Path, form: str) -> None:
    cells = [form.format(i % 4, 10 + i % 5) for i in range(ROWS)]
    write(tmp_path / "a.csv", labelled(user=[f"u{i % 5}" for i in range(ROWS)], tags=cells))
    assert """'data.lists={tags: "json"}'""" in opened(tmp_path).notes[-1]
    data = opened(tmp_path, lists={"tags": "json"})
    assert data.features[1].rows == 2 + 4 + 5 and set(map(len, values_of(data, 1))) == {2}


def test_a_list_of_no_category_or_without_a_separator_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", labelled(user=[f"u{i % 5}" for i in range(ROWS)], tags=["|".join(one) for one in TAGS]))
    for lists, said in (
        ({"tag": "|"}, "data.lists: no category; given tag; allowed: user, tags; did you mean 'tags'"),
        ({"tags": ""}, "data.lists.tags: no separator"),
    ):
        with pytest.raises(UserError, match=said):
            opened(tmp_path, lists=lists)


def test_lists_in_one_parquet_alone_are_refused(tmp_path: Path) -> None:
    users = [f"u{i % 5}" for i in range(ROWS)]
    lists = pl.DataFrame({"label": LABELS, "user": users, "tags": TAGS})
    words = pl.DataFrame({"label": LABELS, "user": users, "tags": ["a"] * ROWS})
    for train, valid, said in (
        (lists, words, "valid.parquet: a column of lists in other tables; given tags: String"),
        (words, lists, r"valid.parquet: columns of numbers, of words in UTF-8, or of dates are read; given tags: List\(String\)"),
    ):
        train.write_parquet(tmp_path / "train.parquet")
        valid.write_parquet(tmp_path / "valid.parquet")
        with pytest.raises(UserError, match=said):
            opened(tmp_path)


@pytest.mark.parametrize("words", [["new york", "los angeles", "rome"], ["red, large", "blue, small", "a"]])
def test_names_of_several_words_are_no_lists(tmp_path: Path, words: list[str]) -> None:
    write(tmp_path / "a.csv", labelled(user=[words[i % 3] for i in range(ROWS)]))
    assert not [note for note in opened(tmp_path).notes if "several values" in note]


def frame() -> pl.DataFrame:
    return pl.DataFrame(
        {"label": LABELS, "user": [f"u{i % 5}" for i in range(ROWS)], "day": [f"2024-01-0{1 + i // 100}" for i in range(ROWS)]}
    )


@pytest.mark.parametrize("layout", ["spark", "root", "hive", "csv", "named", "train"])
def test_a_folder_of_parts_is_one_table(tmp_path: Path, layout: str) -> None:
    whole, keys = frame(), layout == "hive"
    folder = tmp_path / {"spark": "clicks.parquet", "train": "train", "named": "days"}.get(layout, "")
    for number, part in enumerate((whole[:100], whole[100:])):
        inside = folder / f"day={part['day'][0]}" if keys else folder
        inside.mkdir(exist_ok=True, parents=True)
        part = part.drop("day") if keys else part
        if layout == "csv":
            part.write_csv(inside / f"part-{number}.csv")
        else:
            part.write_parquet(inside / f"part-{0 if keys else number}.snappy.parquet")
    (folder / "_SUCCESS").touch()
    (folder / ".part-0.crc").touch()
    (tmp_path / "README").write_text("no table")
    data = opened(tmp_path, file="days" if layout == "named" else None)
    assert sum(split.rows for split in data.splits.values()) == ROWS
    assert any(note.startswith("2 files are one table: ") for note in data.notes)
    (tmp_path / "one").mkdir()
    whole.write_parquet(tmp_path / "one" / "a.parquet")
    single = opened(tmp_path / "one")
    assert [feature.name for feature in data.features] == [feature.name for feature in single.features] == ["user", "day"]
    for split in single.splits:
        ours, theirs = (one.splits[split].read(np.arange(one.splits[split].rows)) for one in (data, single))
        assert np.array_equal(ours.ids, theirs.ids) and np.array_equal(ours.labels, theirs.labels)


def test_a_bad_row_of_a_part_is_named_by_its_file(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", labelled(user=["u"] * ROWS))
    write(tmp_path / "b.csv", ["label,user", "1,u", "7,u"])
    with pytest.raises(UserError, match=r"b.csv, row 2: the label is not 0 or 1; given '7'"):
        opened(tmp_path)


def test_several_tables_are_not_taken_for_one(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", labelled(user=["u"] * ROWS))
    write(tmp_path / "b.csv", labelled(shop=["u"] * ROWS))
    with pytest.raises(UserError, match="several tables with different columns; given a.csv, b.csv; .*data.file=FILE"):
        opened(tmp_path)


@pytest.mark.parametrize("separator", [",", ";", "\t", "\x01", "::", " "])
def test_a_file_without_header_is_named_by_a_key(tmp_path: Path, separator: str) -> None:
    rows = [f"{int(label)}{separator}{i % 7}.5{separator}u{i % 5}" for i, label in enumerate(LABELS)]
    write(tmp_path / "a.csv", rows)
    data = opened(tmp_path, columns=["label", "price", "user"])
    assert (data.dense_features, [feature.name for feature in data.features]) == (1, ["user"])
    assert sum(split.rows for split in data.splits.values()) == ROWS
    with pytest.raises(UserError, match="data.columns: not a name a column; given 2 names; allowed: 3, one for each field"):
        opened(tmp_path, columns=["label", "price"])
    write(tmp_path / "a.csv", [separator.join(["label", "price", "user"]), *rows])
    assert opened(tmp_path).splits["train"].rows == data.splits["train"].rows


@pytest.mark.parametrize("test", ["no column", "one label", "empty label"])
def test_a_test_file_without_labels_is_passed_over_and_said(tmp_path: Path, test: str) -> None:
    users = [f"u{i % 5}" for i in range(ROWS)]
    write(tmp_path / "train.csv", labelled(user=users))
    of_test = {"no column": {}, "one label": {"label": [0] * ROWS}, "empty label": {"label": [""] * ROWS}}[test]
    write(tmp_path / "test.csv", table(**of_test, user=users, other=users))
    data = opened(tmp_path, dense=[], categorical=["user"])
    said = {"no column": "has no column 'label'", "one label": "has label=0 in every row", "empty label": "has no label in any row"}[test]
    (note,) = [note for note in data.notes if note.startswith(f"test.csv {said}: it is for predictions and passed over (")]
    assert "mode=predict" in note and "data.splits.test=FILE" in note
    assert {name: split.rows for name, split in data.splits.items()} == {"train": 160, "validation": 20, "test": 20}
    if test == "no column":
        with pytest.raises(UserError, match="data.splits.test: labels are needed; given test.csv has no column 'label'"):
            opened(tmp_path, splits=Splits(train="train.csv", test="test.csv"))


def test_a_few_equal_labels_are_chance(tmp_path: Path) -> None:
    write(tmp_path / "train.csv", labelled(user=["u", "v"] * (ROWS // 2)))
    write(tmp_path / "test.csv", table(label=[0] * 4, user=["u"] * 4))
    assert opened(tmp_path).splits["test"].rows == 4


def test_a_table_that_is_sorted_by_its_label_is_told_to_hold_out_random_rows(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", table(label=sorted(map(int, LABELS)), user=["u", "v"] * (ROWS // 2)))
    with pytest.raises(UserError, match="the last rows have one label; given label 1 in all 20 rows of validation.*data.held_out=random"):
        opened(tmp_path)
    assert opened(tmp_path, held_out="random").splits["validation"].rows == 20


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (["5,690", "2,660"], """'data.decimal={price: "."}' where 5,690 is 5690, 'data.decimal={price: ","}' where it is 5.690"""),
        (["5,690", "2,66"], """say what stands before the fraction: 'data.decimal={price: ","}'"""),
        (["5.690,00", "2.660,00"], """say what stands before the fraction: 'data.decimal={price: ","}'"""),
        (["5,690.25", "2,660.00"], """say what stands before the fraction: 'data.decimal={price: "."}'"""),
        (["$5.69", "$2.66"], """say what stands before the fraction: 'data.decimal={price: "."}'"""),
        (["5.69%", "2.66%"], """say what stands before the fraction: 'data.decimal={price: "."}'"""),
    ],
)
def test_a_number_that_is_written_out_has_a_remedy_that_is_right(tmp_path: Path, cells: list[str], said: str) -> None:
    write(tmp_path / "a.csv", labelled(user=["u"] * ROWS, price=[cells[i % 2] for i in range(ROWS)]))
    with pytest.raises(UserError, match=f"row 1: price is not a number; given .*; {re.escape(said)}$"):
        opened(tmp_path, dense=["price"], categorical=["user"])


@pytest.mark.parametrize(
    ("cells", "decimal", "values"),
    [
        (["5,690", "12"], ".", [5690, 12]),
        (["5,690", "12"], ",", [5.69, 12]),
        (["1.205.690,50 €", "-2,6 €"], ",", [1205690.5, -2.6]),
        (["$5,690.50", "-$.5"], ".", [5690.5, -0.5]),
        (["5.69%", " 12 %"], ".", [5.69, 12]),
        (["1'205'690.50", "7 000"], ".", [1205690.5, 7000]),
        (["EUR 5.690,5", "12 USD"], ",", [5690.5, 12]),
        (["1e3", "−1.5"], ".", [1000, -1.5]),
    ],
)
def test_numbers_that_are_written_out_are_read_by_one_key(tmp_path: Path, cells: list[str], decimal: str, values: list[float]) -> None:
    write(tmp_path / "a.csv", labelled(user=["u", "v"] * (ROWS // 2), price=[cells[i % 2] for i in range(ROWS)]))
    data = opened(tmp_path, decimal={"price": decimal}, dense_scale="none")
    assert data.splits["train"].read(np.arange(4)).dense[:, 0].tolist() == pytest.approx(values * 2)


@pytest.mark.parametrize(
    ("cell", "decimal", "said"),
    [
        ("5.6.90", ".", "row 1: price is not a number; given '5.6.90'"),
        ("5,69", ".", "row 1: price is not a number; given '5,69'"),
        ("$", ".", "row 1: price is not a number"),
        ("5.69", ";", "data.decimal.price: no sign before a fraction"),
    ],
)
def test_a_number_of_another_form_is_refused(tmp_path: Path, cell: str, decimal: str, said: str) -> None:
    write(tmp_path / "a.csv", labelled(user=["u"] * ROWS, price=[cell] * ROWS))
    with pytest.raises(UserError, match=said):
        opened(tmp_path, decimal={"price": decimal})


@pytest.mark.parametrize(
    "form", ["{},{:03d}", "{}.{:03d},00", "${}.{}", "{}.{}%", "{}.{} €", "USD {}.{}", "{} {:03d}", "{}'{:03d}", "−{}.{}"]
)
def test_numbers_that_are_written_out_are_noticed(tmp_path: Path, form: str) -> None:
    prices = [form.format(1 + i % 9, i % 50) for i in range(ROWS)]
    write(tmp_path / "a.csv", labelled(user=["u", "v"] * (ROWS // 2), price=prices))
    assert "price looks like numbers with " in opened(tmp_path).notes[-1]


def test_whole_numbers_of_which_few_are_large_are_numbers(tmp_path: Path) -> None:
    """By their logarithm. Ids and ages stay categories."""
    random = np.random.default_rng(0)
    counts = np.exp(random.normal(2, 1.5, ROWS)).astype(int)
    columns = {"clicks": counts, "user_id": counts, "age": random.integers(18, 80, ROWS), "item": random.integers(0, 99, ROWS)}
    write(tmp_path / "a.csv", labelled(**{name: column.tolist() for name, column in columns.items()}))
    data = opened(tmp_path)
    assert data.dense_features == 1 and [feature.name for feature in data.features] == ["user_id", "age", "item"]
    assert "whole numbers, most of them small and some large, so their logarithm is read: clicks" in data.notes
    train = np.log1p(counts[: data.splits["train"].rows])
    read = data.splits["train"].read(np.arange(len(train))).dense[:, 0]
    assert np.allclose(read, (train - train.mean()) / train.std(), atol=1e-5)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (range(1000), "category"), ([0.5, 1.0], "measure"), ([3.0, 4.0, None], "category"), ([1, 2, 3, 1000], "category"),
        ([*range(20)] * 9 + [5000], "count"), ([-5000, *range(20)], "category"), (["1", "", "x"], "category"), ([], "category"),
    ],
)  # fmt: skip
def test_kinds_of_columns(values: list, kind: str) -> None:
    assert kind_of(pl.Series("a", list(values), strict=False)) == kind


@pytest.mark.parametrize("before", [["sep=,"], ["# made in 2019", "", "# by hand"]])
def test_lines_before_the_header_are_passed_over_with_a_note(tmp_path: Path, before: list[str]) -> None:
    write(tmp_path / "a.csv", [*before, *labelled(user=[f"u{i % 5}" for i in range(ROWS)])])
    data = opened(tmp_path)
    assert sum(split.rows for split in data.splits.values()) == ROWS
    assert f"passed over before the first row: {', '.join(repr(line) for line in before if line)}" in data.notes


def test_parts_may_have_their_columns_in_another_order(tmp_path: Path) -> None:
    frame().write_csv(tmp_path / "a.csv")
    frame().select("day", "user", "label").write_csv(tmp_path / "b.csv")
    assert sum(split.rows for split in opened(tmp_path).splits.values()) == 2 * ROWS
