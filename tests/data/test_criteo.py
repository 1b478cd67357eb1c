"""Criteo's log: what its fields become, how rows are split, and how values find their rows."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_lab.data.criteo import open_criteo
from recsys_lab.data.criteo.format import CRITEO
from recsys_lab.data.criteo.tables import HashedTables, ValueCounter
from recsys_lab.data.measure import measure_row_counts
from recsys_lab.data.protocol import Feature
from recsys_lab.data.sources import Splits
from recsys_lab.data.text import parse
from tests.data.helpers import criteo_line, criteo_options, write


def ids_of(rows, feature: int) -> list[int]:
    return rows.ids.reshape(26, -1)[feature].tolist()


def every(split):
    return split.read(np.arange(split.rows))


def test_fields_become_values(tmp_path: Path) -> None:
    lines = [
        criteo_line(1, [0, 5, -2], ["0000000a"]),
        criteo_line(0, ["", 99], ["a", "ffffffff"]),
        criteo_line(1, [], ["A", "FFFFFFFF"]),
    ] * 4
    write(tmp_path / "train.tsv", lines)
    write(tmp_path / "valid.tsv", lines[:3])
    data = open_criteo(**criteo_options(tmp_path))
    assert (data.dense_features, len(data.features), data.splits["train"].rows) == (13, 26, 12)
    rows = every(data.splits["validation"])
    assert rows.labels.tolist() == [1, 0, 1] and rows.labels.dtype == np.float32
    assert rows.dense[:, :4].tolist() == np.log1p(np.array([[0, 5, 0, 0], [0, 99, 0, 0], [0, 0, 0, 0]], np.float32)).tolist()
    assert ids_of(rows, 0) == [2, 2, 2], "0000000a, a and A are one value"
    assert ids_of(rows, 1) == [0, 2, 2] and ids_of(rows, 2) == [0, 0, 0], "missing is row 0"
    assert rows.lengths.shape == (26, 3) and (rows.lengths == 1).all()


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_trailing_tabs_line_ends_and_a_last_line_without_one(tmp_path: Path, end: str) -> None:
    lines = [criteo_line(i % 2, [i], ["ab"]) + "\t" * (i % 3) for i in range(9)]
    (tmp_path / "train.tsv").write_bytes(end.join(lines).encode())
    data = open_criteo(**criteo_options(tmp_path))
    assert data.splits["train"].rows + data.splits["validation"].rows == 9
    assert np.allclose(every(data.splits["train"]).dense[:, 0], np.log1p(np.arange(8)))
    assert every(data.splits["validation"]).dense[0, 0] == np.float32(np.log1p(np.float32(8)))


def test_the_last_rows_validate_and_do_not_shape_the_vocabulary(tmp_path: Path) -> None:
    values = ["aa"] * 50 + ["bb"] * 30 + ["c1", "c2"] * 5 + ["dd"] * 10
    write(tmp_path / "train.tsv.gz", [criteo_line(i % 2, [i], [v]) for i, v in enumerate(values)])
    data = open_criteo(**criteo_options(tmp_path))
    assert (data.splits["train"].rows, data.splits["validation"].rows) == (90, 10)
    assert data.notes == ("validation: the last 10 of 100 rows of train.tsv.gz",)
    assert np.allclose(every(data.splits["validation"]).dense[:, 0], np.log1p(np.arange(90, 100)))
    assert ids_of(every(data.splits["validation"]), 0) == [1] * 10, "unknown to train: the row of rare values"
    assert data.features[0].rows == 6
    assert sorted(set(ids_of(every(data.splits["train"]), 0))) == [2, 3, 4, 5]
    assert data.row_counts()[0].tolist() == [0, 0, 50, 30, 5, 5], "by falling frequency"
    assert data.access["C1"].bucket_p == (50 / 90, 30 / 90, 5 / 90, 0.0) and data.access["C1"].bucket_rows == (1, 1, 2, 2)
    assert "90 samples of train.tsv.gz" in data.access["C1"].detail


def test_rare_values_share_a_row(tmp_path: Path) -> None:
    write(tmp_path / "train.tsv", [criteo_line(0, [], [v]) for v in ["aa"] * 3 + ["bb"] * 2 + ["cc", "dd"]])
    write(tmp_path / "valid.tsv", [criteo_line(0, [], [v]) for v in ("aa", "bb", "cc", "", "ee")])
    for min_count, expected in ((1, [2, 3, 4, 0, 1]), (2, [2, 3, 1, 0, 1]), (3, [2, 1, 1, 0, 1]), (4, [1, 1, 1, 0, 1])):
        data = open_criteo(**criteo_options(tmp_path, min_count=min_count))
        assert ids_of(every(data.splits["validation"]), 0) == expected


def test_a_test_file_uses_the_tables_of_train(tmp_path: Path) -> None:
    write(tmp_path / "train.tsv", [criteo_line(0, [], [v]) for v in ["bb"] * 9 + ["aa"] * 6])
    write(tmp_path / "later.tsv.gz", [criteo_line(1, [], [v]) for v in ("aa", "bb", "cc")])
    write(tmp_path / "test.txt", ["the challenge's own has no labels, so it is not taken by itself"])
    plain = open_criteo(**criteo_options(tmp_path))
    assert set(plain.splits) == {"train", "validation"}
    for options in ({}, {"ids": "hashing"}):
        data = open_criteo(**criteo_options(tmp_path, splits={"test": "later.tsv.gz"}, **options))
        assert data.fingerprint != plain.fingerprint
        found = ids_of(every(data.splits["test"]), 0)
        train = ids_of(every(data.splits["train"]), 0)
        assert found[:2] == [train[-1], train[0]]


def test_hashing_fills_the_chosen_rows(tmp_path: Path) -> None:
    lines = [criteo_line(i % 2, [i], [f"{i * 2654435761 % 2**32:08x}", "", "ab"]) for i in range(1000)]
    write(tmp_path / "train.tsv", lines)
    data = open_criteo(**criteo_options(tmp_path, ids="hashing", rows_per_table=50))
    assert {f.rows for f in data.features} == {50}
    rows = every(data.splits["train"])
    assert set(ids_of(rows, 0)) == set(range(1, 50)), "row 0 is the missing value's"
    assert set(ids_of(rows, 1)) == {0} and len(set(ids_of(rows, 2))) == 1
    wanted = tuple(Feature(f"x{i}", 3 + i) for i in range(26))
    data = open_criteo(wanted, **criteo_options(tmp_path))
    assert [(f.name, f.rows) for f in data.features] == [(f.name, f.rows) for f in wanted]
    assert list(data.access.tables) == [f.name for f in wanted]
    for feature, counts, measured in zip(data.features, data.row_counts(), measure_row_counts(data)):
        assert counts.tolist() == measured.tolist() and len(counts) == feature.rows and counts.sum() == 900
    explicit = open_criteo(**criteo_options(tmp_path, ids="hashing", rows_of_tables=[3 + i for i in range(26)]))
    assert every(explicit.splits["train"]).ids.tolist() == every(data.splits["train"]).ids.tolist()


def test_a_table_of_one_row_takes_everything() -> None:
    values = np.arange(52, dtype=np.uint32).reshape(2, 26)
    assert not HashedTables((1,) * 26).encode(values, np.zeros(2, np.uint32)).any()


def test_days_are_read_in_order_and_the_last_validates(tmp_path: Path) -> None:
    for day in (10, 2, 0):
        write(tmp_path / f"day_{day}.gz", [criteo_line(0, [day * 100 + i]) for i in range(10)])
    counts = [d * 100 + i for d in (0, 2, 10) for i in range(10)]
    data = open_criteo(**criteo_options(tmp_path))
    assert np.allclose(np.expm1(every(data.splits["train"]).dense[:, 0]), counts[:27])
    write(tmp_path / "day_23.gz", [criteo_line(1, [7])])
    data = open_criteo(**criteo_options(tmp_path))
    assert data.splits["train"].rows == 30 and data.splits["validation"].rows == 1


@settings(max_examples=30)
@given(data=st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=30), min_size=1, max_size=5), min_count=st.integers(1, 4))
def test_counting_in_blocks_equals_counting_at_once(data: list[list[int]], min_count: int) -> None:
    in_blocks, at_once = ValueCounter(1), ValueCounter(1)
    for block in data:
        in_blocks.add(np.array(block, np.uint32)[:, None], np.zeros(len(block), np.uint32))
    flat = np.array([v for block in data for v in block], np.uint32)[:, None]
    at_once.add(flat, np.zeros(len(flat), np.uint32))
    a, b = in_blocks.vocabulary(min_count), at_once.vocabulary(min_count)
    assert a.values[0].tolist() == b.values[0].tolist() and a.value_rows[0].tolist() == b.value_rows[0].tolist()
    counts = {v: flat[:, 0].tolist().count(v) for v in a.values[0].tolist()}
    assert min(counts.values(), default=min_count) >= min_count
    by_place = [counts[v] for _, v in sorted(zip(a.value_rows[0].tolist(), a.values[0].tolist()))]
    assert by_place == sorted(by_place, reverse=True)


FIELD = st.one_of(st.just(""), st.from_regex(r"[0-9a-fA-F]{1,9}", fullmatch=True), st.text("0123456789abcdefAx+-. \"'#\x00é", max_size=4))


GOOD_FIELDS = [r"0{0,17}[01]", *[r"(-?[0-9]{1,18})?"] * 13, *[r"[0-9a-fA-F]{0,8}"] * 26]


@settings(max_examples=200)
@given(st.lists(st.tuples(st.sampled_from([0, 5, 13, 14, 39]), FIELD, st.integers(0, 3)), min_size=1, max_size=4))
def test_a_line_is_good_whatever_stands_beside_it(edits: list[tuple[int, str, int]]) -> None:
    lines, expected_bad = [], []
    for number, (place, field, more) in enumerate(edits):
        fields = criteo_line(1, [3] * 13, ["ab"] * 26).split("\t")
        fields[place] = field
        lines.append("\t".join(fields) + "\t" * more)
        if "\0" in field or not all(re.fullmatch(good, text) for good, text in zip(GOOD_FIELDS, fields)):
            expected_bad.append(number)
    frame, bad = parse("".join(f"{line}\n" for line in lines).encode(), CRITEO)
    assert sorted(bad) == expected_bad and frame.height == len(lines) - len(bad)
    for number, line in enumerate(lines):
        assert bool(parse(f"{line}\n".encode(), CRITEO)[1]) == (number in expected_bad)


@pytest.mark.skipif("RECSYS_LAB_DATA" not in os.environ, reason="set RECSYS_LAB_DATA to the folder that holds criteo_8k")
def test_real_rows(tmp_path: Path) -> None:
    root = Path(os.environ["RECSYS_LAB_DATA"]) / "criteo_8k"
    data = open_criteo(**criteo_options(root, cache=str(tmp_path), splits=Splits()))
    assert (data.splits["train"].rows, data.splits["validation"].rows) == (7200, 800)
    labels = np.concatenate([every(data.splits[s]).labels for s in ("train", "validation")])
    assert round(float(labels.mean()), 3) == 0.216


def test_values_of_a_test_file_that_training_did_not_know_are_counted(tmp_path: Path) -> None:
    write(tmp_path / "train.txt", [criteo_line(n % 2, values=["aa", "bb" if n % 2 else "cc"]) for n in range(20)])
    write(tmp_path / "new.txt", [criteo_line(1, values=["aa", "dd"]), criteo_line(0, values=["ee"]), criteo_line(1, values=["", "dd"])])
    data = open_criteo(**criteo_options(tmp_path, splits=Splits(test="new.txt")))
    counts = list(data.unknown_values.values())
    assert counts[:2] == [1, 2] and not any(counts[2:]) and data.own_rows
    other = open_criteo(**criteo_options(tmp_path))
    assert other.unknown_values == {} and other.own_rows == data.own_rows
    hashed = open_criteo(**criteo_options(tmp_path, ids="hashing", splits=Splits(test="new.txt")))
    assert hashed.unknown_values == {} and hashed.own_rows == ""
