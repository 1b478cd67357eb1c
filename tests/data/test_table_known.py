"""Later rows are read as a run read its own: the same rows of values, the same scaling, new values behind the others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recsys_lab.data.dataset import OpenDataSet
from recsys_lab.data.sources import Splits
from recsys_lab.data.table import open_table
from recsys_lab.errors import UserError
from tests.data.helpers import write
from tests.data.test_table import HEADER, LINES, options

WORDS, PRICES = st.sampled_from(["a", "b", "c", "3.0", " x ", ""]), st.sampled_from(["", "1.5", "-2", "40.25"])
ROWS = st.lists(st.tuples(st.sampled_from("01"), PRICES, WORDS, WORDS), min_size=1, max_size=12)


def opened(root: Path, **changed: object) -> OpenDataSet:
    return open_table(**options(root, **{"split_column": None, **changed}))  # type: ignore[arg-type]


def later(root: Path, run: Path, file: str, **changed: object) -> OpenDataSet:
    return opened(root, vocabulary=str(run), only_test=True, splits=Splits(test=file), **changed)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(train=ROWS, test=ROWS, ids=st.sampled_from(["vocabulary", "hashing"]), scale=st.sampled_from(["standard", "log", "none"]))
def test_a_test_file_alone_gives_the_bits_that_it_gives_beside_train(tmp_path_factory, train, test, ids, scale):
    root = tmp_path_factory.mktemp("table")
    for name, rows in (("train", [("1", "0.5", "a", "a"), *train]), ("valid", train[:1]), ("test", test)):
        write(root / f"{name}.csv", ["clicked,price,user,item", *(",".join(row) for row in rows)])
    both = opened(root, ids=ids, dense_scale=scale, rows_per_table=7)
    both.keep(root / "run")
    (root / "train.csv").unlink()
    alone = later(root, root / "run", "test.csv")
    assert set(alone.splits) == {"test"} and alone.features == both.features and alone.access == both.access and alone.labelled
    some = np.arange(len(test))
    expected, actual = (data.splits["test"].read(some) for data in (both, alone))
    for part in ("labels", "dense", "ids", "lengths"):
        np.testing.assert_array_equal(getattr(actual, part), getattr(expected, part))
    assert alone.hottest("user", 2).tolist() == both.hottest("user", 2).tolist()


def test_rows_without_labels_are_read_and_unknown_values_are_counted(tmp_path: Path) -> None:
    write(tmp_path / "clicks.csv", [HEADER, *LINES])
    opened(tmp_path, split_column="when").keep(tmp_path / "run")
    write(tmp_path / "new.csv", ["item,user,price,other", "a,ann,1,x", "q,eve,2,x", "q,,3,x"])
    data = later(tmp_path, tmp_path / "run", "new.csv", label="clicked")
    assert not data.labelled and data.splits["test"].rows == 3
    assert data.splits["test"].read(np.arange(3)).ids.reshape(2, 3).tolist() == [[2, 1, 0], [2, 1, 1]]
    assert data.notes == ("values of new.csv that training did not know, or hardly: user 1, item 2; of 3 rows",)


def test_a_second_training_keeps_the_rows_and_puts_new_values_behind_them(tmp_path: Path) -> None:
    write(tmp_path / "clicks.csv", [HEADER, *LINES])
    first = opened(tmp_path, split_column="when")
    first.keep(tmp_path / "run")
    more = tmp_path / "more"
    more.mkdir()
    write(more / "clicks.csv", [HEADER, "1,100,zoe,c,train", "0,1.5,ann,a,train", "1,3,eve,b,valid", "0,1,zoe,a,test"])
    second = opened(more, split_column="when", vocabulary=str(tmp_path / "run"))
    assert [(f.name, f.rows) for f in first.features] == [("user", 4), ("item", 5)]
    assert [(f.name, f.rows) for f in second.features] == [("user", 5), ("item", 5)]
    train = second.splits["train"].read(np.arange(2))
    assert train.ids.reshape(2, 2).tolist() == [[4, 2], [4, 2]]
    assert train.dense[0, 0] == pytest.approx((100 - 2.5) / np.sqrt(2 / 3)) and second.access["user"].detail != first.access["user"].detail


@pytest.mark.parametrize("text", ["[]", "{}", '{"wanted": 5}', "{"])
def test_a_vocabulary_of_another_shape_is_refused(tmp_path: Path, text: str) -> None:
    write(tmp_path / "clicks.csv", [HEADER, *LINES])
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "vocabulary.json").write_text(text)
    with pytest.raises(UserError, match="run"):
        later(tmp_path, tmp_path / "run", "clicks.csv")


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    write(tmp_path / "clicks.csv", [HEADER, *LINES])
    with pytest.raises(UserError, match="data.vocabulary"):
        opened(tmp_path, only_test=True, splits=Splits(test="clicks.csv"))
    with pytest.raises(UserError, match="vocabulary.json"):
        later(tmp_path, tmp_path / "nothing", "clicks.csv")
    opened(tmp_path, split_column="when").keep(tmp_path / "run")
    with pytest.raises(UserError, match="data.splits.test"):
        opened(tmp_path, only_test=True, vocabulary=str(tmp_path / "run"))
    write(tmp_path / "other.csv", ["clicked,price,user", "1,2,ann"])
    with pytest.raises(UserError, match="no column 'item'"):
        later(tmp_path, tmp_path / "run", "other.csv")
