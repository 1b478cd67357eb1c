"""Every mistake in a data folder is one UserError line that names the file and the line."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from recsys_lab.data import text
from recsys_lab.data.criteo import open_criteo
from recsys_lab.data.criteo.format import CRITEO
from recsys_lab.data.frappe import open_frappe
from recsys_lab.data.labels import check_labels
from recsys_lab.data.sources import Splits
from recsys_lab.errors import UserError
from tests.data.helpers import FRAPPE_HEADER, FRAPPE_LINES, criteo_line, criteo_options, frappe_options, write
from tests.some_keys import check_some_keys

GOOD = criteo_line(1, [1, -2, 3], ["68fd1e64", "", "ABCDEF01"])
BAD_FRAPPE = {
    "1,0,5": ("too few fields", "3", "4"),
    "1,0,5,15,2": ("too many fields", "5", "4"),
    "": ("blank line", "4"),
    "2,0,5,15": ("label", "'2'", "0 or 1"),
    "-1,0,5,15": ("label", "'-1'", "0 or 1"),
    "0.5,0,5,15": ("label", "'0.5'", "0 or 1"),
    **{f"1,{text},5,15": ("user", repr(text), "0 to 4") for text in ("x", "", " 2", "+2", "-1", "5", "1.0", "99999999999999999999", '"1"')},
    "1,0,15,15": ("item", "'15'", "5 to 14"),
    "1,0,4,15": ("item", "'4'", "5 to 14"),
    "1,0,5,14": ("city", "'14'", "15 to 17"),
    "1,0,5,18": ("city", "'18'", "15 to 17"),
}
BAD_CRITEO = {
    "\t".join(GOOD.split("\t")[:39]): ("too few fields", "39", "40"),
    GOOD.rstrip("\t"): ("too few fields", "17", "40"),
    GOOD + "\t\tx": ("too many fields", "42", "40"),
    "": ("blank line", "40"),
    criteo_line("", [1]): ("bad label", "''", "0 or 1"),
    criteo_line(2, [1]): ("bad label", "'2'", "0 or 1"),
    criteo_line("1.0", [1]): ("bad label", "'1.0'", "0 or 1"),
    criteo_line(0, [1, "1.5"]): ("I2 is not a whole number", "'1.5'", "digits"),
    criteo_line(0, ["-"]): ("I1 is not a whole number", "'-'", "digits"),
    criteo_line(0, [], ["", "xyz"]): ("C2 is not a hexadecimal id", "'xyz'", "hex digits"),
    criteo_line(0, [], ["123456789"]): ("C1 is not a hexadecimal id", "'123456789'", "1 to 8 hex digits"),
    criteo_line(0, [], ["-1"]): ("C1 is not a hexadecimal id", "'-1'", "hex digits"),
    criteo_line(0, [], ["+1"]): ("C1 is not a hexadecimal id", "'+1'", "hex digits"),
}


def frappe_folder(root: Path, train: list[str], name: str = "train.csv", end: str = "\n") -> Path:
    write(root / name, [FRAPPE_HEADER, *train], end)
    write(root / "valid.csv", [FRAPPE_HEADER, *FRAPPE_LINES])
    return root


def refused(call, *args, **kwargs) -> str:
    with pytest.raises(UserError) as caught:
        if call in (open_criteo, open_frappe):
            check_some_keys(kwargs, "data", call)
        call(*args, **kwargs)
    message = str(caught.value)
    assert "\n" not in message and caught.value.exit_code == 2
    return message


@pytest.mark.parametrize("name", ["train.csv", "train.csv.gz"])
@pytest.mark.parametrize("bad", BAD_FRAPPE, ids=repr)
def test_a_bad_frappe_line_is_named(tmp_path: Path, bad: str, name: str) -> None:
    frappe_folder(tmp_path, [*FRAPPE_LINES, bad, "also bad"], name)
    message = refused(open_frappe, **frappe_options(tmp_path))
    assert message.startswith(f"{tmp_path / name}:6: ")  # after the header and four good lines
    assert all(part in message for part in BAD_FRAPPE[bad]), message
    assert all(path.suffix == ".lock" for path in (tmp_path / "cache").iterdir()), "nothing half-written is left"


@pytest.mark.parametrize("name", ["train.tsv", "train.txt.gz"])
@pytest.mark.parametrize("bad", BAD_CRITEO, ids=repr)
def test_a_bad_criteo_line_is_named(tmp_path: Path, bad: str, name: str) -> None:
    write(tmp_path / name, [GOOD] * 7 + [bad, "also bad", GOOD])
    message = refused(open_criteo, **criteo_options(tmp_path))
    assert message.startswith(f"{tmp_path / name}:8: ")
    assert all(part in message for part in BAD_CRITEO[bad]), message
    assert all(path.suffix == ".lock" for path in (tmp_path / "cache").iterdir())


def test_a_bad_line_in_a_later_block_is_named(tmp_path: Path) -> None:
    lines = [GOOD] * 500
    lines[431] = GOOD.replace("68fd1e64", "no hex!")
    for name in ("train.tsv", "train.tsv.gz"):
        path = write(tmp_path / name, lines)
        blocks = []
        with pytest.raises(UserError) as caught:
            blocks.extend(frame.height for frame in text.read_text(path, CRITEO, "fail", text.Reading(), block_bytes=2000))
        assert str(caught.value).startswith(f"{path}:432: C1 is not a hexadecimal id")
        assert len(blocks) > 5 and sum(blocks) <= 431


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_skipping_leaves_bad_lines_out_and_says_so(tmp_path: Path, end: str) -> None:
    frappe_folder(tmp_path, [FRAPPE_LINES[0], "2,0,5,15", *FRAPPE_LINES[1:], "x"], end=end)
    data = open_frappe(**frappe_options(tmp_path, on_bad_line="skip"))
    assert data.splits["train"].rows == 4 and data.splits["validation"].rows == 4
    assert data.notes == ("2 bad lines skipped, the first: train.csv:3: bad label",)
    (tmp_path / "criteo").mkdir()
    write(tmp_path / "criteo" / "train.tsv", [*BAD_CRITEO, *[GOOD] * 10], end)
    criteo = open_criteo(**criteo_options(tmp_path / "criteo", on_bad_line="skip"))
    assert criteo.splits["train"].rows == 9
    assert criteo.notes[0] == f"{len(BAD_CRITEO)} bad lines skipped, the first: train.tsv:1: too few fields"


def test_an_unknown_answer_to_bad_lines(tmp_path: Path) -> None:
    message = refused(open_frappe, **frappe_options(tmp_path, on_bad_line="ignore"))
    assert "data.on_bad_line" in message and "fail, skip" in message


@pytest.mark.parametrize(
    ("root", "expected"),
    [(None, "data.root: the data folder is needed"), ("nowhere", "data.root: not a folder"), ("file", "data.root: not a folder")],
)
def test_no_data_folder(tmp_path: Path, root: str | None, expected: str) -> None:
    (tmp_path / "file").write_text("")
    where = None if root is None else str(tmp_path / root)
    assert refused(open_frappe, **frappe_options(tmp_path) | {"root": where}).startswith(expected)
    assert refused(open_criteo, **criteo_options(tmp_path) | {"root": where}).startswith(expected)


def test_missing_files_say_what_was_looked_for_and_what_is_there(tmp_path: Path) -> None:
    assert "an empty folder" in refused(open_frappe, **frappe_options(tmp_path))
    write(tmp_path / "unlabelled.tsv.gz", [GOOD])
    message = refused(open_criteo, **criteo_options(tmp_path))
    assert (
        "no train file" in message
        and "train.tsv[.gz]" in message
        and "unlabelled.tsv.gz" in message
        and "data.splits.train=FILE" in message
    )
    frappe_folder(tmp_path, FRAPPE_LINES)
    (tmp_path / "valid.csv").unlink()
    assert "no validation file" in refused(open_frappe, **frappe_options(tmp_path))
    message = refused(open_frappe, **frappe_options(tmp_path, splits=Splits(validation="other.csv")))
    assert message.startswith("data.splits.validation: no such file") and "other.csv" in message


def test_wrong_header(tmp_path: Path) -> None:
    frappe_folder(tmp_path, FRAPPE_LINES)
    write(tmp_path / "train.csv", FRAPPE_LINES)
    message = refused(open_frappe, **frappe_options(tmp_path))
    assert message.startswith(f"{tmp_path / 'train.csv'}:1: wrong header") and FRAPPE_HEADER in message and FRAPPE_LINES[0] in message


@pytest.mark.parametrize("empty", ["train", "valid"])
def test_an_empty_split(tmp_path: Path, empty: str) -> None:
    frappe_folder(tmp_path, FRAPPE_LINES)
    write(tmp_path / f"{empty}.csv", [FRAPPE_HEADER])
    assert "split is empty" in refused(open_frappe, **frappe_options(tmp_path))
    (tmp_path / f"{empty}.csv").write_text("")
    assert f"{empty}.csv" in refused(open_frappe, **frappe_options(tmp_path))


def test_criteo_needs_rows_for_both_splits(tmp_path: Path) -> None:
    write(tmp_path / "train.tsv", [])
    assert "train split is empty" in refused(open_criteo, **criteo_options(tmp_path))
    write(tmp_path / "train.tsv", [GOOD])
    assert "split is empty" in refused(open_criteo, **criteo_options(tmp_path))


@pytest.mark.parametrize("damage", ["truncated", "corrupt", "not gzip"])
def test_a_damaged_gz(tmp_path: Path, damage: str) -> None:
    stored = bytearray(gzip.compress("".join(criteo_line(i % 2, [i], [f"{i * 7919:x}"]) + "\n" for i in range(5000)).encode()))
    if damage == "truncated":
        stored = stored[: len(stored) // 2]
    elif damage == "corrupt":
        stored[len(stored) // 2] ^= 0xFF
    else:
        stored = bytearray(b"plain text\n")
    (tmp_path / "train.tsv.gz").write_bytes(stored)
    message = refused(open_criteo, **criteo_options(tmp_path))
    assert "train.tsv.gz" in message and ("truncated or corrupt" in message or "train.tsv.gz:" in message)
    assert all(path.suffix == ".lock" for path in (tmp_path / "cache").iterdir())


def test_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_bytes(f"{GOOD}\n".encode() * 3 + b"\xff\xfe\n")
    assert refused(open_criteo, **criteo_options(tmp_path)).startswith(f"{tmp_path / 'train.tsv'}:4: not UTF-8 text; given byte 0xff")
    frappe_folder(tmp_path, FRAPPE_LINES)
    (tmp_path / "train.csv").write_text(FRAPPE_HEADER, encoding="utf-16")
    assert f"{tmp_path / 'train.csv'}:1: not UTF-8 text" in refused(open_frappe, **frappe_options(tmp_path))


def test_a_file_without_lines(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_bytes(b"0" * (3 << 20))
    assert "longer than 1 MiB" in refused(open_criteo, **criteo_options(tmp_path))


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    frappe_folder(tmp_path, FRAPPE_LINES)
    (tmp_path / "taken").write_text("a file where a folder should be")
    message = refused(open_frappe, **frappe_options(tmp_path, cache=str(tmp_path / "taken" / "cache")))
    assert "data cache cannot be written" in message and "data.cache=DIR" in message


@pytest.mark.parametrize(
    ("changed", "where"),
    [
        ({"validation_share": 1.0}, "data.validation_share"),
        ({"ids": "hash"}, "data.ids"),
        ({"min_count": 0}, "data.min_count"),
        ({"ids": "hashing", "rows_per_table": 0}, "data.rows_per_table"),
        ({"ids": "hashing", "rows_of_tables": [5] * 25}, "data.rows_of_tables"),
        ({"ids": "hashing", "rows_of_tables": [2**31] * 26}, "data.rows_of_tables"),
    ],
)
def test_impossible_options(tmp_path: Path, changed: dict, where: str) -> None:
    write(tmp_path / "train.tsv", [GOOD] * 20)
    assert refused(open_criteo, **criteo_options(tmp_path, **changed)).startswith(where)


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_a_split_of_one_class_is_refused_before_anything_is_trained(tmp_path: Path, split: str) -> None:
    lines = dict.fromkeys(("train", "validation", "test"), FRAPPE_LINES) | {split: [f"0{line[1:]}" for line in FRAPPE_LINES]}
    for name, of_split in lines.items():
        write(tmp_path / f"{name}.csv", [FRAPPE_HEADER, *of_split])
    splits = Splits(**{name: f"{name}.csv" for name in lines})
    data = open_frappe(**frappe_options(tmp_path, splits=splits))
    with pytest.raises(UserError, match=f"data.splits.{split}: split {split} has only label 0: AUC is undefined; given 4 rows of one"):
        check_labels(data)
