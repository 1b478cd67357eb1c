"""Any table of clicks: columns by name, splits by file, column or share, and one line for what is wrong with it."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recsys_lab.data.measure import measure_access
from recsys_lab.data.parts import source_of
from recsys_lab.data.sources import Splits
from recsys_lab.data.table import open_table
from recsys_lab.data.table.column_checks import ColumnChecks, notes
from recsys_lab.data.table.files import first_rows
from recsys_lab.data.table.header import table_format
from recsys_lab.data.text import Reading, read_text
from recsys_lab.errors import UserError
from tests.data.helpers import write
from tests.some_keys import check_some_keys

CONF = Path(__file__).resolve().parents[2] / "conf" / "data" / "table.yaml"
HEADER = "clicked,price,user,item,when"
LINES = ["1,1.5,ann,a,train", "0,,bob,b,train", "0,3.5,ann,c,train", "1,2.5,,a,train", "1,9.5,ann,z,valid", "0,1.0,eve,a,test"]


def options(root: Path, **changed) -> dict:
    """The YAML's own values, but for the test's small table."""
    loader = ("_target_", "batch_size", "prefetch_batches", "frequencies")
    plain = {key: value for key, value in yaml.safe_load(CONF.read_text()).items() if key not in loader}
    own = {"root": str(root), "splits": Splits(), "label": "clicked", "split_column": "when", "min_count": 1, "cache": str(root / "cache")}
    return plain | own | changed


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path / "clicks.csv", [HEADER, *LINES])
    return tmp_path


def test_columns_become_labels_numbers_and_rows_of_tables(root: Path) -> None:
    data = open_table(**options(root))
    assert [(f.name, f.rows) for f in data.features] == [("user", 4), ("item", 5)] and data.dense_features == 1
    assert {name: split.rows for name, split in data.splits.items()} == {"train": 4, "validation": 1, "test": 1}
    rows = data.splits["train"].read(np.array([3, 0, 1]))
    assert rows.labels.tolist() == [1, 1, 0] and rows.lengths.tolist() == [[1] * 3] * 2
    assert rows.ids.reshape(2, 3).tolist() == [[0, 2, 3], [2, 2, 3]]  # nobody is row 0; ann and a are seen most
    mean, spread = 2.5, np.sqrt(2 / 3)
    assert rows.dense[:, 0] == pytest.approx([0.0, (1.5 - mean) / spread, 0.0])  # a missing number is the mean
    test = data.splits["test"].read(np.array([0]))
    assert test.ids.tolist() == [1, 2] and test.dense[0, 0] == pytest.approx(-1.5 / spread)  # eve is not of train
    assert data.splits["validation"].read(np.array([0])).ids.tolist() == [2, 1]
    assert "taken for numbers: price; for categories: user, item" in data.notes[0]


def test_access_is_that_of_train(root: Path) -> None:
    data = open_table(**options(root))
    again = measure_access(data)
    for name, table in data.access.tables.items():
        assert (again[name].bucket_rows, again[name].bucket_p) == (table.bucket_rows, table.bucket_p)
    assert data.row_counts()[0].tolist() == [1, 0, 2, 1]


@pytest.mark.parametrize("name", ["clicks.tsv", "clicks.csv.gz", "clicks.parquet", "semicolons.csv"])
def test_every_kind_of_file_gives_the_same(root: Path, tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    other = tmp_path_factory.mktemp("other")
    if name.endswith("parquet"):
        pl.read_csv(root / "clicks.csv").with_columns(pl.col("clicked") == 1).write_parquet(other / name)
    else:
        separator = "\t" if "tsv" in name else ";" if "semi" in name else ","
        write(other / name, [line.replace(",", separator) for line in (HEADER, *LINES)])
    ours, theirs = open_table(**options(root)), open_table(**options(other))
    for split in ours.splits:
        a, b = (data.splits[split].read(np.arange(data.splits[split].rows)) for data in (ours, theirs))
        assert np.array_equal(a.ids, b.ids) and np.array_equal(a.labels, b.labels) and np.array_equal(a.dense, b.dense)


def test_files_are_splits_by_their_names(tmp_path: Path) -> None:
    write(tmp_path / "train.csv", [HEADER, *LINES[:4]])
    write(tmp_path / "valid.csv", [HEADER, *LINES[4:]])
    data = open_table(**options(tmp_path, split_column=None, categorical=["user"], dense=[]))
    assert {name: split.rows for name, split in data.splits.items()} == {"train": 4, "validation": 2}
    assert data.dense_features == 0 and data.splits["validation"].read(np.arange(2)).ids.tolist() == [2, 1]


def test_a_file_that_is_passed_over_is_named(tmp_path: Path) -> None:
    for name in ("train.csv", "valid.csv.gz", "validation.csv"):
        write(tmp_path / name, [HEADER, *LINES])
    pl.read_csv(tmp_path / "train.csv").write_parquet(tmp_path / "train.parquet")
    (tmp_path / "test.csv").mkdir()
    (tmp_path / "test.tsv").write_text((tmp_path / "train.csv").read_text().replace(",", "\t"))
    plain = {"split_column": None, "categorical": ["user"], "dense": []}
    told = open_table(**options(tmp_path, **plain)).notes[:2]
    assert told == (
        "train: train.csv, not train.parquet (else: data.splits.train)",
        "validation: valid.csv.gz, not validation.csv (else: data.splits.validation)",
    )
    named = Splits(train="train.csv", validation="valid.csv.gz")
    assert not [note for note in open_table(**options(tmp_path, splits=named, **plain)).notes if " not " in note]
    assert not [note for note in open_table(**options(tmp_path, file="train.csv", **plain)).notes if " not " in note]


@pytest.mark.parametrize("held_out", ["last", "random"])
def test_one_file_is_divided_by_shares(tmp_path: Path, held_out: str) -> None:
    write(tmp_path / "a.csv", ["label,n", *(f"{i % 2},{i}" for i in range(100))])
    data = open_table(**options(tmp_path, label="label", split_column=None, categorical=["n"], held_out=held_out))
    seen = {name: split.read(np.arange(split.rows)).ids for name, split in data.splits.items()}
    assert {name: len(ids) for name, ids in seen.items()} == {"train": 80, "validation": 10, "test": 10}
    assert len(set(seen["train"].tolist())) == 80 and set(seen["validation"].tolist()) == {1}  # no number of train comes again
    assert (data.splits["train"].read(np.arange(80)).labels.tolist() == [i % 2 for i in range(80)]) == (held_out == "last")


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.lists(st.text("abcdef ,\"'ä", max_size=4), min_size=4, max_size=30), rows=st.integers(1, 9))
def test_hashed_ids_are_in_their_table_and_equal_for_equal_words(tmp_path: Path, words: list[str], rows: int) -> None:
    path = tmp_path / "h.parquet"
    pl.DataFrame({"label": [i % 2 for i in range(len(words))], "word": words}).write_parquet(path)
    changed = {"label": "label", "split_column": None, "ids": "hashing", "rows_per_table": rows, "validation_share": 0.3, "test_share": 0.0}
    data = open_table(**options(tmp_path, file="h.parquet", **changed))
    ids = np.concatenate([data.splits[s].read(np.arange(data.splits[s].rows)).ids for s in ("train", "validation")])
    assert data.features[0].rows == rows and ids.min() >= 0 and ids.max() < rows
    assert len({(word, row) for word, row in zip(words, ids)}) == len(set(words))
    assert all((row == 0) == (word == "" or rows == 1) for word, row in zip(words, ids))


def test_the_cache_may_have_brackets_in_its_name(root: Path) -> None:
    assert open_table(**options(root, cache=str(root / "a[b]*"))).splits["train"].rows == 4


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("name", ["^.*$", "*", "[user]"])
def test_the_name_of_a_column_is_no_pattern(tmp_path: Path, kind: str, name: str) -> None:
    lines = [line.split(",") for line in LINES]
    table = pl.DataFrame(lines, schema=HEADER.replace("user", name).split(","), orient="row")
    table.write_csv(tmp_path / "a.csv") if kind == "csv" else table.write_parquet(tmp_path / "a.parquet")
    data = open_table(**options(tmp_path, dense=["price"], categorical=[name, "item"]))
    assert [f.rows for f in data.features] == [4, 5]
    assert data.splits["train"].read(np.array([3])).ids.tolist() == [0, 2]
    (tmp_path / f"a.{kind}").unlink()
    changed = pl.DataFrame(lines, schema=HEADER.replace("clicked", name).split(","), orient="row")
    changed.write_parquet(tmp_path / "b.parquet")
    assert open_table(**options(tmp_path, label=name)).splits["train"].rows == 4


@pytest.mark.parametrize("sign", ["\u2028", "\x85", "\x0b", "\x0c", "\x1c", "\r"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_first_rows_end_where_those_that_are_read_end(tmp_path: Path, sign: str, end: str) -> None:
    (tmp_path / "a.csv").write_bytes(end.join(["label,price,user", f"1,0.5,a{sign}b", "0,1.5,c", ""]).encode())
    assert first_rows(source_of(tmp_path / "a.csv"), 9)["price"].to_list() == ["0.5", "1.5"]


@pytest.mark.parametrize("name", ["seen", "value", "place"])
def test_a_column_may_have_any_name_of_ours(tmp_path: Path, name: str) -> None:
    write(tmp_path / "clicks.csv", [HEADER.replace("user", name), *LINES])
    assert [(f.name, f.rows) for f in open_table(**options(tmp_path)).features] == [(name, 4), ("item", 5)]


@pytest.mark.parametrize(
    ("lines", "changed", "said"),
    [
        ([HEADER, *LINES], {"label": "click"}, r"clicks.csv: no column 'click'; given data.label=click; .*did you mean 'clicked'"),
        ([HEADER, *LINES], {"categorical": ["user", "town"]}, r"no column 'town'; given data.categorical=town"),
        (
            [HEADER, *LINES[:2], "2,1.0,ann,a,train"],
            {},
            r"clicks.csv, row 3: the label is not 0 or 1; given '2' in column clicked.*; write 1 where it is a click",
        ),
        ([HEADER, *LINES[:2], ",1.0,ann,a,train"], {}, r"row 3: the label is not 0 or 1; given nothing"),
        ([HEADER, *LINES, "1,cheap,ann,a,train"], {"dense": ["price"]}, r"row 7: price is not a number; given 'cheap'"),
        ([HEADER, *LINES, "1,1,ann,a,later"], {}, r"row 7: no such split; given 'later' in column when; allowed: train, validation"),
        ([HEADER, *LINES[:4]], {}, r"the validation split is empty"),
        ([HEADER, LINES[0], "1,1,ann,a,train,more"], {}, r"clicks.csv:3: too many fields; given 6; allowed: 5"),
        (
            [HEADER, LINES[0], "1,1,ann,a,train,more", LINES[1]],
            {"categorical": ["user"]},
            r"clicks.csv:3: too many fields; given 6; allowed: 5",
        ),
        ([HEADER, LINES[0], "1,1,ann"], {"categorical": ["user"]}, r"clicks.csv:3: too few fields; given 3; allowed: 5"),
        ([HEADER, LINES[0], '1,1,"ann,a,train', *LINES], {}, r"clicks.csv:3: a quote is opened and never closed"),
        ([HEADER.replace("item", "user"), *LINES], {"categorical": ["user"]}, r"clicks.csv:1: two columns have one name; given user"),
        ([], {}, r"clicks.csv: the file is empty"),
        ([HEADER, *LINES], {"categorical": ["clicked"]}, r"data.categorical: a column is one thing only; given clicked"),
        ([HEADER, *LINES], {"dense": ["price", "price"]}, r"data.dense: a column is named twice; given price; name it once"),
        ([HEADER, *LINES], {"categorical": ["user", "user"]}, r"data.categorical: a column is named twice; given user"),
        ([HEADER, *LINES], {"categorical": []}, r"data.categorical: categories are needed"),
        ([HEADER, *LINES], {"ids": "hash"}, r"data.ids: no such choice; given hash; allowed: vocabulary, hashing; did you mean 'hashing'"),
        ([HEADER, *LINES], {"file": "other.csv"}, r"data.file: no such file; given .*other.csv; .* is a folder with clicks.csv"),
        ([HEADER, *LINES], {"validation_share": 1.0}, r"data.validation_share: out of range"),
        ([HEADER, *LINES], {"splits": Splits(validation="v.csv")}, r"data.splits.validation: no such file"),
        (
            [HEADER, *LINES],
            {"file": "clicks.csv", "splits": Splits(test="clicks.csv")},
            r"data.splits.test: not read beside data.file, whose rows are divided; given clicks.csv; .* data.splits.train=FILE",
        ),
        (
            [HEADER, *LINES],
            {"splits": Splits(validation="clicks.csv")},
            r"no train file; given a folder with clicks.csv; allowed: train.csv.* data.splits.train=FILE",
        ),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, lines: list[str], changed: dict, said: str) -> None:
    write(tmp_path / "clicks.csv", lines)
    with pytest.raises(UserError, match=said):
        check_some_keys(changed, "data", open_table)
        open_table(**options(tmp_path, **changed))
    assert not list((tmp_path / "cache").glob("table-*")) and not list((tmp_path / "cache").glob(".preparing*"))


CELL = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6)


@given(cells=st.lists(st.lists(CELL, min_size=3, max_size=3), min_size=1), gone=st.integers(0, 2))
def test_only_lines_with_other_fields_than_the_header_are_refused(tmp_path_factory, cells: list[list[str]], gone: int) -> None:
    """Whatever is quoted: separators, quotes and line ends within a field."""
    path = tmp_path_factory.mktemp("lines") / "clicks.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([["a", "b", "c"], *cells])
    rows = pl.concat(read_text(path, table_format(path), "fail", Reading())).rows()
    assert len(rows) == len(cells) and (rows == [tuple(row) for row in cells] or "\r" in "".join(map("".join, cells)))
    with path.open("a", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerow(["x", "y"][:gone] or ["1", "2", "3", "4"])
    with pytest.raises(UserError, match=r"too (few|many) fields"):
        list(read_text(path, table_format(path), "fail", Reading()))


def test_columns_that_teach_nothing_or_too_much_are_noticed_in_one_line_and_dropped(tmp_path: Path) -> None:
    lines = [f"{i % 2},{i},x,{'yes' if i % 2 else 'no'},1410{21 + i % 3}{i % 5:02d},u{i % 5}" for i in range(60)]
    write(tmp_path / "odd.csv", ["label,id,one,copy,hour,user", *lines])
    own = {"label": "label", "split_column": None}
    data = open_table(**options(tmp_path, **own))
    said = [note for note in data.notes if note.startswith("check these columns: ")]
    assert said == [
        "check these columns: copy equals the label; id has a value a row; one is constant; hour looks like a date, give its hour and "
        "weekday as columns; without them: 'data.drop=[copy,id,one]'"
    ]
    less = open_table(**options(tmp_path, **own, drop=["id", "one", "copy", "hour"]))
    assert [feature.name for feature in less.features] == ["user"] and not [note for note in less.notes if note.startswith("noticed")]


LABELS = np.arange(400) % 4 == 0


@pytest.mark.parametrize(
    ("kind", "values", "number"),
    [
        ("label", ["1.0" if x else "0.0" for x in LABELS], True),
        ("label", ["yes" if x else "" for x in LABELS], False),
        ("leaks", [f"{1 + i % 2 + 3 * x}" for i, x in enumerate(LABELS)], False),
        ("leaks", [f"at {i % 90}" if x else "" for i, x in enumerate(LABELS)], False),
        ("leaks", [f"{i}.5" if x else "" for i, x in enumerate(LABELS)], True),
        ("constant", ["2.5"] * 400, True),
        ("ids", [f"{i}" for i in range(400)], False),
        ("nearly_ids", [f"{min(i, 390)}" for i in range(400)], False),
        ("dates", [f"2014-10-{i % 9 + 10}" for i in range(400)], False),
        ("dates", [f"201410{i % 9 + 10}" for i in range(400)], False),
        ("dates", [f"2014-10-{i % 9 + 10} {i % 24:02d}:15:00" for i in range(400)], False),
        (None, [f"{i}.5" for i in range(400)], True),
        (None, [f"u{i // 2}" for i in range(400)], False),
        (None, ["yes" if x or i == 1 else "no" for i, x in enumerate(LABELS)], False),
    ],
)
def test_what_is_odd_about_a_column(kind: str | None, values: list[str], number: bool) -> None:
    checks = ColumnChecks()
    checks.look("one", pl.Series(values), LABELS.astype(np.uint8), number=number)
    assert [name for name, own in checks.columns.items() if own] == ([] if kind is None else [kind])


@pytest.mark.parametrize(
    ("name", "first", "kind"),
    [("timestamp", 881_250_949, "dates"), ("created_at", 1_750_000_000_123, "dates"), ("ts", 1_400_000_000, "dates")]
    + [("user", 1_400_000_000, "ids"), ("timestamp", 3_000_000_000, "ids"), ("timestamp", 20, "ids")],
)
def test_seconds_since_1970_are_a_date_where_the_name_speaks_of_time(name: str, first: int, kind: str) -> None:
    checks = ColumnChecks()
    checks.look(name, pl.Series([str(first + 7 * i) for i in range(400)]), LABELS.astype(np.uint8))
    assert checks.columns[kind] == [name]


def test_a_table_of_numbers_alone_is_told_how_to_name_a_category(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", ["clicked,x,y", "0,1.5,2.5", "1,2.5,0.5"])
    with pytest.raises(UserError, match=r"categories are needed.*given none; name one or more: 'data.categorical=\[x\]'"):
        open_table(**options(tmp_path, split_column=None))


def test_the_remedy_is_a_key_that_can_be_given() -> None:
    found = {"ids": ["row id", "key"], "dates": ["hour"]}
    assert notes(found, {}, {}, (), ["old"])[0].endswith("""; without them: 'data.drop=[old,"row id",key]'""")
    assert notes(found, {}, {}, ["row id", "key"], [])[0].endswith("; without them: take them out of data.dense and data.categorical")
    assert "without" not in notes({"dates": ["hour"]}, {}, {}, (), [])[0] and notes({}, {}, {}, (), []) == []


@pytest.mark.parametrize(
    ("drop", "said"), [(["nobody"], "no column 'nobody'"), (["clicked"], "one thing only"), (["when"], "one thing only")]
)
def test_what_cannot_be_dropped_is_refused(root: Path, drop: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        open_table(**options(root, drop=drop))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "a column without a name; given column 2 of 2"),
        ("  ", "a column without a name; given column 2 of 2"),
        ("a\nb", r"a control character in a column's name; given 'a.+nb'"),
    ],
)
def test_the_names_of_a_parquet_are_checked_as_a_header_is(tmp_path: Path, name: str, said: str) -> None:
    pl.DataFrame({"label": [0, 1] * 40, name: ["u", "v"] * 40}).write_parquet(tmp_path / "clicks.parquet")
    with pytest.raises(UserError, match=f"clicks.parquet: {said}"):
        open_table(**options(tmp_path, label="label", split_column=None))


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_ids_that_floats_have_rounded_are_refused_or_noticed_where_they_are_named(tmp_path: Path, suffix: str) -> None:
    exact = [2**53 + n % 40 for n in range(200)]
    clicks = [n // 2 % 2 for n in range(200)]
    for name, ids, noticed in (("exact", exact, False), ("small", [float(n % 40) for n in range(200)], False), ("rounded", exact, True)):
        folder = tmp_path / name
        folder.mkdir()
        column = pl.Series(ids).cast(pl.Float64) if noticed else pl.Series(ids)
        frame = pl.DataFrame({"click": clicks, "ad": column, "site": [n % 3 for n in range(200)]})
        frame.write_csv(folder / "a.csv") if suffix == "csv" else frame.write_parquet(folder / "a.parquet")
        own = options(folder, label="click", split_column=None)
        if noticed:
            with pytest.raises(UserError, match=r"ids above 2\^53 are floats.*in column ad; .*'data.drop=\[ad\]'"):
                open_table(**own)
        said = " ".join(open_table(**own | {"categorical": ["ad", "site"]}).notes)
        assert ("ad has ids above 2^53 in floats" in said) == noticed, said
