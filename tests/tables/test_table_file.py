"""A model's tables in a CSV: what is read, what TorchRec's own models print, and every bad line in one line of ours."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from torchrec.modules.embedding_configs import EmbeddingBagConfig, PoolingType
from torchrec.modules.embedding_modules import EmbeddingBagCollection

import run
from recsys_lab.__main__ import main
from recsys_lab.data.torchrec_tables import table_file
from recsys_lab.errors import UserError
from recsys_lab.experiment import of_words
from recsys_lab.tables.counted import CountedLaw
from recsys_lab.tables.law import RankLaw
from recsys_lab.tables.table_file import dim_of_tables, dims_of_tables, read_table_file

HEAD = "name,rows,dim,mean_ids,pooling,skew,table\n"
GOOD = HEAD + "user,1_000_000,32,1,sum,1.05,\nclicks,5000,32,4.5,mean,counts.npy,things\nlikes,5000,32,0.4,mean,,things\n"


@pytest.fixture
def good(tmp_path: Path) -> Path:
    np.save(tmp_path / "counts.npy", np.arange(5000))
    (tmp_path / "tables.csv").write_text(GOOD)
    return tmp_path / "tables.csv"


def test_what_is_read(good: Path) -> None:
    user, clicks, likes = read_table_file(str(good))
    assert (user.rows, user.dim, user.mean_ids, user.pooling, user.table) == (1_000_000, 32, 1.0, "sum", "user")
    assert (clicks.mean_ids, clicks.pooling, clicks.table, likes.table) == (4.5, "mean", "things", "things")
    assert isinstance(clicks.law, CountedLaw) and likes.law is None
    assert dims_of_tables(str(good)) == [32, 32] and dim_of_tables(str(good)) == 32


def test_the_model_has_these_tables_and_plans_count_the_exact_means(good: Path) -> None:
    experiment = of_words(["model=tables", f"model.file={good}", "mode=simulate", "cluster=h100x8", "data.rows_train=64"], "test")
    data = experiment.open_data()
    tables = experiment.tables(data)
    assert [(table.name, table.rows, table.dim, table.features) for table in tables] == [
        ("user", 1_000_000, 32, ("user",)),
        ("things", 5000, 32, ("clicks", "likes")),
    ]
    assert data.access["things"].mean_length == pytest.approx(4.9) and data.access["user"].mean_length == 1
    assert sum(data.access["things"].bucket_rows) == 5000 and data.access["things"].origin == "measured"
    assert any("2 features are rounded" in note for note in data.notes)
    read = data.splits["train"].read(np.arange(64))
    assert read.lengths.sum(1).tolist() == [64, 4 * 64, 64]  # 4.5 ids are drawn as 4, 0.4 as 1


@pytest.mark.parametrize("model", ["tables", "tables_dcn", "tables_concat"])
def test_run_py_simulates_it(good: Path, tmp_path: Path, model: str) -> None:
    words = [f"model={model}", f"model.file={good}", "mode=simulate", "cluster=h100x8", "logger=none", f"hydra.run.dir={tmp_path / model}"]
    assert run.main(words) == 0
    assert json.loads((tmp_path / model / "result.json").read_text())["simulated"]["iteration_ms"] > 0


def test_torchrecs_own_tables_are_printed_as_the_file(tmp_path: Path) -> None:
    configs = [
        EmbeddingBagConfig(name="t_user", num_embeddings=100, embedding_dim=16, feature_names=["user"]),
        EmbeddingBagConfig(name="t_item", num_embeddings=50, embedding_dim=16, feature_names=["clicks", "likes"], pooling=PoolingType.MEAN),
    ]
    file = tmp_path / "tables.csv"
    file.write_text(table_file(EmbeddingBagCollection(configs, device="meta"), {"clicks": 7.5}))
    lines = read_table_file(str(file))
    assert [(line.name, line.rows, line.mean_ids, line.pooling, line.table) for line in lines] == [
        ("user", 100, 1.0, "sum", "t_user"),
        ("clicks", 50, 7.5, "mean", "t_item"),
        ("likes", 50, 1.0, "mean", "t_item"),
    ]


def test_counts_are_drawn_as_they_are_counted() -> None:
    law = CountedLaw.of(np.array([0, 6, 1, 3, 0]), "test")
    assert law.access("t", 5, 2.0).bucket_p == pytest.approx((1.2, 0.6, 0.2, 0.0))
    assert np.bincount(law.ranks(np.linspace(0, 1, 1000, endpoint=False)), minlength=5).tolist() == [600, 300, 100, 0, 0]
    half = law.scaled(2)
    assert half.rows == 2 == sum(half.bucket_rows) and sum(half.bucket_share) == pytest.approx(1.0)
    assert law.scaled(10).access("t", 10, 1.0).length_of(0, 10) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (HEAD + "a,-5,32,1,,,\n", ["line 2, rows", "given -5"]),
        (HEAD + "a,10,32,1,,,\nb,ten,32,1,,,\n", ["line 3, rows", "given ten"]),
        (HEAD + "a,10,0,1,,,\n", ["line 2, dim"]),
        (HEAD + "a,10,32,0,,,\n", ["line 2, mean_ids", "more than 0"]),
        (HEAD + "a,10,32,nan,,,\n", ["line 2, mean_ids"]),
        (HEAD + "a,10,32,1,max,,\n", ["line 2, pooling", "sum, mean"]),
        (HEAD + "a,10,32,1,,11,\n", ["line 2, skew"]),
        (HEAD + "a,10,32,1,,none.npy,\n", ["line 2, skew", "none.npy"]),
        (HEAD + "a,10,32,1\n", ["line 2: another number of cells", "given 4"]),
        (HEAD + ",10,32,1,,,\n", ["line 2: a feature has no name"]),
        (HEAD + "a,10,32,1,,,\na,10,32,1,,,\n", ["line 3: a name stands twice", "given a"]),
        (HEAD + "a,10,32,1,,,t\nb,11,32,1,,,t\n", ["line 3: one table of two sizes", "given 11 x 32", "10 x 32, as for a"]),
        (HEAD + "a,10,32,1,sum,,t\nb,10,32,1,mean,,t\n", ["line 3: one table of two poolings", "sum, as for a"]),
        (HEAD + "items,10,32,1,,,\nb,10,32,1,,,\n", ["table items: PyTorch cannot have a part of this name"]),
        (HEAD + "a,10,32,1,,,\nb,10,64,1,,,\n", ["tables of several dimensions", "32, 64", "model=tables_concat"]),
        (HEAD, ["no number of tables"]),
        ("", ["line 1: a column is missing", "an empty file"]),
        ("name,rows,dim\na,1,1\n", ["line 1: a column is missing", "add mean_ids"]),
        ("name,rows,dims,mean_ids\n", ["line 1: no such column", "did you mean 'dim'"]),
        ("name,rows,dim,mean_ids,name\n", ["line 1: a column is named twice"]),
    ],
)
def test_a_bad_line_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture, text: str, parts: list[str]) -> None:
    (tmp_path / "tables.csv").write_text(text)
    words = ["model=tables", f"model.file={tmp_path / 'tables.csv'}", "clusters=h100x8:2", "batch=8192"]
    assert main(["decide", *words]) == 2
    out, err = capsys.readouterr()
    assert not out and err.count("\n") == 1 and all(part in err for part in parts), err


def test_bytes_that_are_no_text_and_counts_of_another_table(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"name,rows\xff\n")
    with pytest.raises(UserError, match="not a CSV in UTF-8"):
        read_table_file(str(tmp_path / "a.csv"))
    np.save(tmp_path / "counts.npy", np.arange(4))
    (tmp_path / "b.csv").write_text(HEAD + "a,5,8,1,,counts.npy,\n")
    with pytest.raises(UserError, match="line 2, skew"):
        read_table_file(str(tmp_path / "b.csv"))


#: Its head says that it has 72 TB.
TOO_MUCH = b"\x93NUMPY\x01\x00v\x00" + b"{'descr': '<i8', 'fortran_order': False, 'shape': (9000000000000,), }".ljust(117) + b"\n"


@pytest.mark.parametrize("content", [TOO_MUCH, b"", b"PK\x03\x04 no archive", b"\x93NUMPY\x01\x00v\x00{", b"no array at all"])
def test_a_file_without_counts_is_said_with_its_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "counts.npy").write_bytes(content)
    (tmp_path / "tables.csv").write_text("name,rows,dim,mean_ids,skew\na,10,4,1,counts.npy\n")
    with pytest.raises(UserError, match=r"tables.csv line 2, skew"):
        read_table_file(str(tmp_path / "tables.csv"))


def test_no_model_has_more_than_a_hundred_thousand_tables(tmp_path: Path) -> None:
    file = tmp_path / "tables.csv"
    file.write_text("name,rows,dim,mean_ids\n" + "a,10,4,1\n" * 100_001)
    with pytest.raises(UserError, match="no number of tables for a model; given 100,001 lines; allowed: 1 to 100,000"):
        read_table_file(str(file))


def test_each_bucket_is_drawn_as_often_as_it_was_counted() -> None:
    """Half of the draws are row 0; rows 1 and 2 have an eighth each, rows 3 to 6 a sixteenth."""
    law = CountedLaw(7, (1, 2, 4), (0.5, 0.25, 0.25), "by hand")
    draws = np.array([0.0, 0.49, 0.5, 0.62, 0.63, 0.74, 0.75, 0.82, 0.999, 1.0])
    assert law.ranks(draws).tolist() == [0, 0, 1, 1, 2, 2, 3, 4, 6, 6]


@pytest.mark.parametrize(("skew", "exponent"), [("0", 0.0), ("0.5", 0.5), ("10", 10.0)])
def test_a_skew_is_an_exponent(tmp_path: Path, skew: str, exponent: float) -> None:
    (tmp_path / "tables.csv").write_text(HEAD + f"a,10,32,1,,{skew},\n\nb,7,64,65536,mean,,\n")
    first, second = read_table_file(str(tmp_path / "tables.csv"))  # a line without anything is none
    assert first.law == RankLaw(10, (exponent,)) and (second.law, second.mean_ids) == (None, 65536.0)


@pytest.mark.parametrize(
    ("cells", "says"),
    [
        ("a,1.5,4,1,,,", "line 2, rows"),
        ("a,10,,1,,,", "line 2, dim"),
        ("a,10,4,one,,,", "line 2, mean_ids"),
        ("a,10,4,65537,,,", "line 2, mean_ids"),
        ("a,10,4,1,,-0.1,", "line 2, skew"),
    ],
)
def test_numbers_that_are_none(tmp_path: Path, cells: str, says: str) -> None:
    (tmp_path / "tables.csv").write_text(f"{HEAD}{cells}\n")
    with pytest.raises(UserError, match=says):
        read_table_file(str(tmp_path / "tables.csv"))


@pytest.mark.parametrize("counts", [np.zeros(5, np.int64), np.array([1, 2, -1, 0, 0]), np.ones(5), np.ones((5, 1), np.int64)])
def test_what_is_no_count_of_a_row(tmp_path: Path, counts: np.ndarray) -> None:
    np.save(tmp_path / "counts.npy", counts)
    (tmp_path / "tables.csv").write_text(HEAD + "a,5,8,1,,counts.npy,\n")
    with pytest.raises(UserError, match="no counts of this table's rows"):
        read_table_file(str(tmp_path / "tables.csv"))
