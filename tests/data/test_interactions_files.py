"""Interaction files: every format reads to the same histories, and every mistake is named."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_lab.data.interactions import open_interactions
from recsys_lab.data.interactions.format import ITEM, OTHER, RATING, TIME, USER, Layout, events_of, sniff, text_format
from recsys_lab.data.parts import source_of
from recsys_lab.data.separators import fields_of
from recsys_lab.data.text import parse
from recsys_lab.errors import UserError
from tests.data.helpers import interactions_options, write
from tests.some_keys import check_some_keys

#: user -> its items in the order of time.
HISTORIES = {"3": ["20", "7", "100", "7"], "10": ["7", "20", "9"], "12": ["9", "100", "20", "7", "9"]}
#: The rows that items 7, 9, 20, 100 get.
ROWS = {"3": [3, 1, 4, 1], "10": [1, 3, 2], "12": [2, 4, 3, 1, 2]}
EVENTS = [(user, item) for user, items in HISTORIES.items() for item in items]
TIMED = [(user, item, 900_000_000 + 7 * i) for i, (user, item) in enumerate(EVENTS)]
MIXED = sorted(TIMED, key=lambda e: (e[2] * 31) % 97)  # neither by user nor by time
FILES = {
    "blanks.txt": [f"{u} {i}" for u, i in EVENTS],
    "many_blanks.txt": [f" {u}   {i} " for u, i in EVENTS],
    "tabs.tsv.gz": [f"{u}\t{i}\t{t}" for u, i, t in MIXED],
    "commas.csv": [f"{u},{i},4.5,{t}" for u, i, t in MIXED],
    "colons.dat": [f"{u}::{i}::3::{t}" for u, i, t in MIXED],
    "typed.inter": ["user_id:token\titem_id:token\trating:float\ttimestamp:float", *(f"{u}\t{i}\t3\t{t}.5" for u, i, t in MIXED)],
    "named.csv.gz": ["userId,timestamp,movieId", *(f"{u},{t},{i}" for u, i, t in MIXED)],
    "sequences.txt": [" ".join([u, *items]) for u, items in HISTORIES.items()],
    "sequences.csv.gz": [",".join([u, *items]) for u, items in HISTORIES.items()],
}


def opened(root: Path, **options):
    return open_interactions(**interactions_options(root, **options))


def histories(data) -> dict[str, list[int]]:
    """What was read, by the place of the user in rising order."""
    found = data.held_out["test"].inputs.histories
    return dict(zip(HISTORIES, (part.tolist() for part in np.split(found.ids, found.first[1:-1]))))


def refused(call, *args, **kwargs) -> str:
    with pytest.raises(UserError) as caught:
        check_some_keys(kwargs, "data", open_interactions)
        call(*args, **kwargs)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("name", FILES)
def test_every_format_reads_to_the_same_histories(tmp_path: Path, name: str, end: str) -> None:
    write(tmp_path / name, FILES[name], end)
    assert histories(opened(tmp_path)) == ROWS


@pytest.mark.parametrize(
    "header",
    ["item_id,user_id", "movieId,userId,timestamp", "rating,item,user", '"user_id","item_id"', "'item','uid'", "ts,thing,user,item"],
)
def test_a_header_is_told_by_its_names_whatever_their_order(tmp_path: Path, header: str) -> None:
    names = [name.strip("\"'") for name in header.split(",")]
    value = {"item": "i", "user": "u", "uid": "u", "user_id": "u", "userId": "u", "item_id": "i", "movieId": "i"}
    cells = [[{"u": u, "i": i}.get(value.get(name, ""), str(t)) for name in names] for u, i, t in TIMED]
    write(tmp_path / "log.csv", [header, *(",".join(line) for line in cells)])
    assert histories(opened(tmp_path)) == ROWS


def test_columns_that_are_given_stand_for_a_header_that_names_too_few(tmp_path: Path) -> None:
    write(tmp_path / "log.csv", ["client,item", *(f"{u},{i}" for u, i in EVENTS)])
    assert "does not name one user column" in refused(opened, tmp_path)
    assert histories(opened(tmp_path, columns=["user", "item"])) == ROWS


def test_a_first_user_of_the_name_of_a_column_is_no_header(tmp_path: Path) -> None:
    assert sniff(source_of(write(tmp_path / "log.csv", ["score,thing", "ann,x", "bob,y"])), None, None).header is None


def test_ids_may_be_words_and_are_kept(tmp_path: Path) -> None:
    write(tmp_path / "log.csv", ["bob,x9", "bob,B00A", "bob,a", "bob,a", "ann,x9", "ann,a", "ann,B00A", "cy,zz"])
    data = opened(tmp_path)
    found = data.held_out["test"].inputs.histories
    assert found.ids.tolist() == [3, 2, 1, 3, 1, 2, 2, 4]  # ann first
    folder = next((tmp_path / "cache").glob("interactions-*"))
    assert (folder / "items.txt").read_text().split() == ["B00A", "a", "x9", "zz"]


def test_equal_times_keep_the_order_of_the_file(tmp_path: Path) -> None:
    write(
        tmp_path / "log.tsv",
        [f"{user}\t{item}\t{1_000_000_000 + item // 3}" for item in (8, 7, 6, 4, 5, 3) for user in (1, 2)] + ["3\t9\t1000000000"],
    )
    data = opened(tmp_path)
    assert data.splits["test"].read(np.array([1])).ids.tolist() == [2, 3, 1, 6, 5]
    assert data.held_out["test"].target(np.array([0, 1])).tolist() == [4, 4]
    assert any("equal times the earlier line is first" in note for note in data.notes)


def test_a_third_field_is_told_by_its_size_or_by_the_user(tmp_path: Path) -> None:
    write(tmp_path / "log.tsv", [f"{u}\t{i}\t{5 - n % 5}" for n, (u, i) in enumerate(EVENTS)])
    assert histories(opened(tmp_path)) == ROWS
    assert "taken for user, item, rating" in " ".join(opened(tmp_path).notes)
    by_time = opened(tmp_path, columns=["user", "item", "time"])
    assert histories(by_time)["3"] == [1, 4, 1, 3]  # times 5, 4, 3, 2: backwards
    assert opened(tmp_path, format="sequences").features[0].rows > 5


def test_categories_of_both_kinds(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    write(tmp_path / "log" / "x.txt", FILES["blanks.txt"])
    (tmp_path / "log" / "items.json").write_text(json.dumps({"20": [30, 5], "7": [4], "100": [], "5": [99]}))
    write(
        tmp_path / "log" / "x.item.gz",
        ["item_id:token\ttitle:token_seq\tclass:token_seq", "20\tHe llo\tWar Comedy", "7\tBye\tDrama", "9\t\t"],
    )
    for name, expected in (("items.json", [0, 1, 0, 2, 0]), ("x.item.gz", [0, 1, 0, 2, 0])):
        data = opened(tmp_path / "log", category=name)
        assert data.held_out["test"].inputs.histories.categories.tolist() == expected
        category = [f for f in data.features if f.name == "category"][0]
        assert (category.rows, category.table) == (3, "category")
        assert opened(tmp_path / "log").fingerprint != data.fingerprint


def test_gaps_in_powers_of_two(tmp_path: Path) -> None:
    times = [10, 10, 11, 13, 17, 10**9, 10**15]
    write(tmp_path / "log.csv", ["user,item,time", *(f"1,{i},{t}" for i, t in enumerate(times)), "1,99,2000000000000000", "2,100,5"])
    found = opened(tmp_path, time=True)
    assert found.held_out["test"].inputs.histories.gaps.tolist() == [0, 1, 2, 3, 4, 31, 47, 47, 0]
    assert "there are no times" in refused(opened, _with(tmp_path / "b", "x.txt", FILES["blanks.txt"]), time=True)


def _with(root: Path, name: str, lines: list[str]) -> Path:
    root.mkdir(exist_ok=True)
    write(root / name, lines)
    return root


BAD = {
    "tabs.tsv": {
        "5": ("too few fields", "3, separated by tabs: user, item, time"),
        "5\t6\t900000000\t1": ("too many fields", "given 4"),
        "5\t6\tsoon": ("the time is not a number", "'soon'"),
        "5\t6\tnan": ("the time is not a number", "'nan'"),
        "5\t\t900000000": ("no item", "''"),
        "\t6\t900000000": ("no user", "''"),
        " 5\t6\t900000000": ("blanks around it", "' 5'"),
        "": ("a blank line",),
        "5\r6\t7\t900000000": ("no user",),
    },
    "sequences.txt": {"5": ("a user without an item", "'5'"), "": ("a user without an item",)},
    "commas.csv": {"1,2,3,4,": ("too many fields", "given 5"), "1,2,x,4": ("the rating is not a number",)},
}


@pytest.mark.parametrize(("name", "bad"), [(name, bad) for name, lines in BAD.items() for bad in lines], ids=repr)
def test_a_bad_line_is_named_or_skipped(tmp_path: Path, name: str, bad: str) -> None:
    good = FILES.get(name) or FILES[f"{name}.gz"]
    path = write(tmp_path / name, [*good, bad, *good])
    message = refused(opened, tmp_path)
    assert message.startswith(f"{path}:{len(good) + 1}: ") and all(part in message for part in BAD[name][bad]), message
    assert not [p for p in (tmp_path / "cache").glob("*") if not p.name.startswith(".")]
    skipped = opened(tmp_path, on_bad_line="skip")
    assert len(skipped.held_out["test"].inputs.histories.ids) == 2 * len(EVENTS)
    assert any(note.startswith("1 bad lines skipped") for note in skipped.notes)


@pytest.mark.parametrize(
    ("lines", "options", "named"),
    [
        ([], {}, "the file is empty"),
        (["1 1", "1 1", "1 1"], {}, "nothing to choose from"),
        (FILES["blanks.txt"], {"file": "none.txt"}, "data.file: no such file"),
        (FILES["blanks.txt"], {"category": "none.json"}, "data.category: no such file"),
        (FILES["blanks.txt"], {"format": "table"}, "data.format: no such choice"),
        (FILES["blanks.txt"], {"columns": ["user", "thing"]}, "data.columns: no such column"),
        (FILES["blanks.txt"], {"columns": ["user", "time"]}, "data.columns: user and item are needed"),
        (FILES["blanks.txt"], {"columns": ["user", "item"], "format": "sequences"}, "data.columns: sequences have no columns"),
        (FILES["blanks.txt"], {"on_bad_line": "ignore"}, "data.on_bad_line"),
        (FILES["blanks.txt"], {"objective": "both"}, "data.objective: no such choice"),
        (FILES["blanks.txt"], {"pooling": "mean"}, "data.pooling: the next item is predicted from a sequence"),
        (FILES["blanks.txt"], {"max_length": 0}, "data.max_length: out of range"),
        (FILES["blanks.txt"], {"passes": 0}, "data.passes: out of range"),
        (["user,thing", "1,2"], {}, "the header does not name one item column"),
        (["item_id,thing", "1,2"], {}, "the header does not name one user column"),
        (['"user_id","thing"', "1,2"], {}, "the header does not name one item column"),
        ([f"{u} {i}" for u in range(40) for i in range(5)], {}, "sorted by item"),
        (["1 2 3 4 5", "2 3 4 5 6"], {"format": "log"}, "do not say what the fields"),
    ],
)
def test_what_cannot_be_read_is_refused(tmp_path: Path, lines: list[str], options: dict, named: str) -> None:
    write(tmp_path / "log.txt", lines)
    assert named in refused(opened, tmp_path, **options)


def test_several_files_are_not_chosen_from(tmp_path: Path) -> None:
    assert "no file to read" in refused(opened, tmp_path)
    for name in ("a.txt", "b.inter.gz"):
        write(tmp_path / name, FILES["blanks.txt"])
    message = refused(opened, tmp_path)
    assert "a.txt, b.inter.gz" in message and "data.file=FILE" in message
    assert histories(opened(tmp_path, file="a.txt")) == ROWS


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("{'20': 1}", "not JSON"),
        ('{"20": 1}', "item 20: an item's attributes are no list"),
        ('{"5": [1]}', "no item of the interactions is in it"),
        ("item_id\ttitle\n1\tx", ":1: no columns for the item and its class"),
        ("item_id\tclass\n1\tx\n7", ":3: too few fields"),
    ],
)
def test_bad_categories_are_named(tmp_path: Path, text: str, named: str) -> None:
    write(tmp_path / "log.txt", FILES["blanks.txt"])
    (tmp_path / "items.json").write_text(text)
    assert named in refused(opened, tmp_path, category="items.json")


LAYOUTS = [
    Layout("log", separator, None, columns)
    for separator in ("\t", "::", ",", " ")
    for columns in ((USER, ITEM), (USER, ITEM, RATING), (OTHER, ITEM, TIME, USER))
] + [Layout("sequences", separator, None, ()) for separator in ("\t", ",", " ")]
FIELD = st.sampled_from(["1", "22", "a b", "é", "", " ", "3.5", "-1", "1e5", "x\ty", "nan", ":", "::", ",", '"', "\x0b", "\x00", "\u2028"])


def is_good(line: str, layout: Layout) -> bool:
    """By Python alone."""
    fields = fields_of(line, layout.separator)
    kinds = layout.columns if layout.kind == "log" else (USER, *[ITEM] * max(1, len(fields) - 1))
    number = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,18})?")
    time = re.compile(number.pattern + r"([eE]\+?[0-9]{1,2})?")
    good = {RATING: number.fullmatch, TIME: time.fullmatch, OTHER: lambda _: True}
    is_id = lambda text: text.strip(" \t") == text != "" and (layout.kind != "log" or text != "nan")  # noqa: E731
    return "\0" not in line and len(fields) == len(kinds) and all(good.get(kind, is_id)(text) for kind, text in zip(kinds, fields))


@settings(max_examples=300)
@given(st.sampled_from(LAYOUTS), st.lists(st.lists(FIELD, min_size=0, max_size=5), min_size=1, max_size=4))
def test_bad_lines_are_those_that_python_finds(layout: Layout, fields: list[list[str]]) -> None:
    lines = [layout.separator.join(line) for line in fields]
    frame, bad = parse("".join(f"{line}\n" for line in lines).encode(), text_format(layout))
    assert sorted(bad) == [number for number, line in enumerate(lines) if not is_good(line, layout)]
    good = [fields_of(line, layout.separator) for number, line in enumerate(lines) if number not in bad]
    events = events_of(frame, layout).select(USER, ITEM).rows()
    if layout.kind == "log":
        assert events == [(line[layout.columns.index(USER)], line[layout.columns.index(ITEM)]) for line in good]
    else:
        assert events == [(line[0], item) for line in good for item in line[1:]]


@pytest.mark.skipif("RECSYS_LAB_DATA" not in os.environ, reason="set RECSYS_LAB_DATA to the folder that holds amazon_beauty and others")
def test_real_files(tmp_path: Path) -> None:
    root = Path(os.environ["RECSYS_LAB_DATA"])
    beauty = opened(root / "amazon_beauty", cache=str(tmp_path), category="Beauty_item2attributes.json.gz")
    assert beauty.notes[0].startswith("22,363 users, 12,101 items, 198,502 interactions")
    first = beauty.splits["train"].read(np.array([0]))
    assert first.ids[:4].tolist() == [1, 2, 2, 3] and beauty.held_out["test"].target(np.array([0])).tolist() == [5]
    games = opened(root / "amazon_games", cache=str(tmp_path))
    assert games.notes[0].startswith("31,013 users, 23,715 items, 287,107 interactions")
    assert games.splits["test"].rows == 30_901
    movies = opened(root / "ml-100k", cache=str(tmp_path), time=True, category="ml-100k.item.gz")
    assert movies.notes[0].startswith("943 users, 1,682 items, 100,000 interactions")
    assert "several files" in refused(opened, root / "ml-1m_ncf", cache=str(tmp_path))
    assert "sorted by item" in refused(opened, root / "ml-1m_ncf", cache=str(tmp_path), file="ml-1m.train.rating.gz")
