"""Logs as Parquet, as JSON lines and as folders of part files: read as the same log in one text file, or refused in a line."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

from tests.data.helpers import write
from tests.data.test_interactions_files import EVENTS, MIXED, ROWS, TIMED, histories, opened, refused

HEADER = "user_id,item_id,timestamp"
LOG = pl.DataFrame(MIXED, schema=["user_id", "item_id", "timestamp"], orient="row")
MOMENTS = [datetime.fromtimestamp(time, UTC).replace(tzinfo=None) for _, _, time in MIXED]


def json_lines(**more) -> list[str]:
    return [json.dumps({"user_id": int(u), "item_id": i, "timestamp": t} | more) for u, i, t in MIXED]


FRAMES = {
    "words": LOG,
    "numbers": LOG.with_columns(pl.col("user_id", "item_id").cast(pl.Int64)),
    "floats": LOG.with_columns(pl.col("user_id", "item_id").cast(pl.Float64)),
    "categories": LOG.with_columns(pl.col("user_id", "item_id").cast(pl.Categorical)),
    "bytes": LOG.with_columns(pl.col("user_id", "item_id").cast(pl.Binary)),
    "moments": LOG.with_columns(timestamp=pl.Series(MOMENTS)),
    "nanoseconds": LOG.with_columns(timestamp=pl.Series(MOMENTS).dt.cast_time_unit("ns")),
    "zones": LOG.with_columns(timestamp=pl.Series(MOMENTS).dt.replace_time_zone("UTC").dt.convert_time_zone("Europe/Paris")),
    "float times": LOG.with_columns(pl.col("timestamp").cast(pl.Float64)),
    "others": LOG.with_columns(genres=pl.lit(["a", "b"]), place=pl.struct(a=pl.lit(1))).select(
        "genres", "timestamp", pl.exclude("genres", "timestamp")
    ),
}


@pytest.mark.parametrize("name", FRAMES)
def test_parquet_is_read_as_text_is(tmp_path: Path, name: str) -> None:
    FRAMES[name].write_parquet(tmp_path / "log.parquet")
    data = opened(tmp_path)
    assert histories(data) == ROWS and [*data.item_names()] == ["7", "9", "20", "100"]
    assert "taken for user: user_id, item: item_id, time: timestamp (else: data.columns)" in data.notes


def test_columns_of_other_names_are_told_by_one_key(tmp_path: Path) -> None:
    LOG.rename({"user_id": "who", "item_id": "what", "timestamp": "begun"}).write_parquet(tmp_path / "log.parquet")
    message = refused(opened, tmp_path)
    assert "the names of the columns are not known" in message and "data.columns=[user,item,time]" in message
    assert histories(opened(tmp_path, columns=["user", "item", "time"])) == ROWS
    assert "3 columns" in refused(opened, tmp_path, columns=["user", "item"])


BAD_FRAMES = {
    "no user": (LOG.with_columns(user_id=pl.when(pl.int_range(pl.len()) != 4).then("user_id")), "log.parquet, row 5: no user"),
    "no time": (LOG.with_columns(timestamp=pl.when(pl.int_range(pl.len()) != 4).then("timestamp")), "row 5: the time is not"),
    "rounded": (LOG.with_columns(item_id=pl.col("item_id").cast(pl.Float64) + 2.0**60), "the item is a float"),
    "lists": (LOG.group_by("user_id", maintain_order=True).all(), ".explode("),
    "a struct": (LOG.with_columns(item_id=pl.struct("item_id")), "numbers, of words in UTF-8, or of dates"),
    "empty": (LOG.clear(), "no interactions"),
}


@pytest.mark.parametrize("name", BAD_FRAMES)
def test_bad_parquet_is_named(tmp_path: Path, name: str) -> None:
    frame, said = BAD_FRAMES[name]
    frame.write_parquet(tmp_path / "log.parquet")
    assert said in (message := refused(opened, tmp_path)), message
    if "row 5" in said:
        assert any("1 bad lines skipped, the first: log.parquet, row 5" in note for note in opened(tmp_path, on_bad_line="skip").notes)


def test_what_is_no_parquet_is_said(tmp_path: Path) -> None:
    write(tmp_path / "log.parquet", ["user_id,item_id", "1,2"])
    assert "not a Parquet file" in refused(opened, tmp_path)


JSON = {
    "log.jsonl": json_lines(),
    "log.ndjson.gz": json_lines(note="a\nb", place={"lat": 1}, kinds=[1, 2]),
    "log.json": [line.replace('"timestamp": ', '"timestamp":') for line in json_lines()],
    "nan.jsonl": json_lines(price=float("nan")),
    "exponents.jsonl": [json.dumps({"user_id": float(u), "item_id": i}).rstrip("}") + f', "ts": {t:.9e}}}' for u, i, t in MIXED],
    "iso.jsonl": [json.dumps({"item": i, "user": u, "created_at": f"{m.isoformat()}Z"}) for (u, i, _), m in zip(MIXED, MOMENTS)],
}


@pytest.mark.parametrize("name", JSON)
def test_json_lines_are_read_as_text_is(tmp_path: Path, name: str) -> None:
    write(tmp_path / name, JSON[name])
    data = opened(tmp_path)
    assert histories(data) == ROWS and [*data.item_names()] == ["7", "9", "20", "100"]


BAD_JSON = {
    "a bad line": ([*json_lines()[:4], "{'user_id': 1}", *json_lines()], "log.jsonl:5: not a JSON object"),
    "a list": ([*json_lines()[:4], "[1, 2]", *json_lines()], "log.jsonl:5: not a JSON object"),
    "no user": ([*json_lines()[:4], '{"item_id": 3, "timestamp": 5}', *json_lines()], "log.jsonl:5: no user"),
    "rounded": ([line.replace('"20"', "1.2345678901234568e+18") for line in json_lines()], "the item is a float"),
    "python": ([str(json.loads(line)) for line in json_lines()], "single quotes"),
    "an array": (["[", *(f"{line}," for line in json_lines())], "polars.read_json"),
    "unknown names": ([line.replace("user_id", "who") for line in json_lines()], "does not name one user"),
}


@pytest.mark.parametrize("name", BAD_JSON)
def test_bad_json_is_named(tmp_path: Path, name: str) -> None:
    lines, said = BAD_JSON[name]
    write(tmp_path / "log.jsonl", lines)
    assert said in (message := refused(opened, tmp_path)), message


def cut(root: Path, folder: str, name: str, header: str | None = HEADER) -> None:
    """The log as three part files, the second of which has no rows."""
    (root / folder).mkdir(exist_ok=True)
    (root / folder / "_SUCCESS").touch()
    lines = [f"{u},{i},{t}" for u, i, t in MIXED]
    for number, own in enumerate((lines[:5], [], lines[5:])):
        write(root / folder / name.format(number), [*([header] if header and own else []), *own])


@pytest.mark.parametrize("folder", ["", "log"])
@pytest.mark.parametrize("name", ["part-0000{}.csv", "part-0000{}-4f3a.c000.csv.gz", "part-0000{}"])
@pytest.mark.parametrize("header", [HEADER, None])
def test_part_files_are_one_log(tmp_path: Path, folder: str, name: str, header: str | None) -> None:
    cut(tmp_path, folder, name, header)
    data = opened(tmp_path)
    assert histories(data) == ROWS
    assert any(note.startswith("3 files are one log: ") for note in data.notes)


def test_part_files_in_parquet_with_columns_in_another_order(tmp_path: Path) -> None:
    LOG[:5].write_parquet(tmp_path / "part-0.parquet")
    LOG[5:].select("timestamp", "item_id", "user_id").write_parquet(tmp_path / "part-1.parquet")
    assert histories(opened(tmp_path)) == ROWS


def test_a_folder_that_is_named_is_one_log(tmp_path: Path) -> None:
    lines = [f"{u},{i},{t}" for u, i, t in MIXED]
    write(tmp_path / "2019-Oct.csv", [HEADER, *lines[:5]])
    write(tmp_path / "2019-Nov.csv", [HEADER, *lines[5:]])
    message = refused(opened, tmp_path)
    assert "data.file=FILE" in message and "data.file=." in message
    assert histories(opened(tmp_path, file=".")) == ROWS


@pytest.mark.parametrize("parquet", [True, False])
def test_names_of_folders_are_columns(tmp_path: Path, parquet: bool) -> None:
    for user, own in LOG.group_by("user_id"):
        folder = tmp_path / f"user_id={user[0]}"
        folder.mkdir()
        own = own.drop("user_id")
        own.write_parquet(folder / "a.parquet") if parquet else own.write_csv(folder / "a.csv")
    assert histories(opened(tmp_path)) == ROWS


def test_days_of_folders_order_a_log_without_times(tmp_path: Path) -> None:
    for number, (user, item, _) in enumerate(TIMED):
        folder = tmp_path / f"day=2024-01-{28 - number:02d}"
        folder.mkdir()
        write(folder / "part-0.csv", ["user_id,item_id", f"{user},{item}"])
    backwards = {user: items[::-1] for user, items in ROWS.items()}
    assert "day, such as 2024-01-" in (message := refused(opened, tmp_path)) and "data.columns=[user,item,time]" in message
    assert histories(opened(tmp_path, columns=["user", "item", "time"])) == backwards


def test_part_files_of_several_tables_are_not_mixed(tmp_path: Path) -> None:
    cut(tmp_path, "clicks", "part-{}.csv")
    cut(tmp_path, "buys", "part-{}.csv")
    message = refused(opened, tmp_path)
    assert "buys, clicks" in message and "data.file=FOLDER" in message
    assert histories(opened(tmp_path, file="clicks")) == ROWS


def test_a_part_with_another_header_is_named(tmp_path: Path) -> None:
    cut(tmp_path, "", "part-{}.csv")
    write(tmp_path / "part-3.csv", ["item_id,user_id,timestamp", "7,3,900000000"])
    assert "part-3.csv:1: wrong header" in refused(opened, tmp_path)


def test_the_log_is_read_again_when_a_part_changes(tmp_path: Path) -> None:
    cut(tmp_path, "", "part-{}.csv")
    before = opened(tmp_path)
    write(tmp_path / "part-1.csv", [HEADER, "99,7,900000000"])
    after = opened(tmp_path)
    assert "3 users" in before.notes[0] and "4 users" in after.notes[0] and before.fingerprint != after.fingerprint


def test_histories_of_lists_are_told_how_to_become_a_log(tmp_path: Path) -> None:
    frame = pl.DataFrame(EVENTS, schema=["user_id", "item_id"], orient="row").group_by("user_id", maintain_order=True).all()
    frame.write_parquet(tmp_path / "log.parquet")
    assert ".explode('item_id')" in refused(opened, tmp_path)


def test_a_first_part_of_a_header_alone_says_nothing_of_the_log(tmp_path: Path) -> None:
    write(tmp_path / "part-0.txt", [HEADER.replace(",", " ")])
    write(tmp_path / "part-1.txt", [HEADER.replace(",", " "), *(f"{u} {i} {t}" for u, i, t in MIXED)])
    assert histories(opened(tmp_path)) == ROWS


def test_a_first_part_of_unknown_names_alone_is_no_line_of_a_user(tmp_path: Path) -> None:
    write(tmp_path / "part-0.txt", ["who what begun"])
    write(tmp_path / "part-1.txt", ["who what begun", *(f"{u} {i} 2017-07-14 02:40:{n:02d}" for n, (u, i) in enumerate(EVENTS))])
    assert "the clock stands in a field of its own" in refused(opened, tmp_path)
