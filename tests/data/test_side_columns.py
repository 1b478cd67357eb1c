"""Side columns of logs: what each row of a history reads, what is learnt of train alone, and what is refused."""

from __future__ import annotations

import random
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_lab.data.interactions import open_interactions
from recsys_lab.errors import UserError
from tests.data.helpers import interactions_options, write
from tests.data.test_interactions import everything

#: User a has 5 events, b 4, c 3; the last of each is test, the one before it validation. Genres are the items', ratings the events'.
HEADER = "user_id,item_id,timestamp,rating,genre"
GENRE = {"x": "war", "y": "love", "z": "", "w": "new", "~": ""}
EVENTS = [
    ("a", "x", 1, "5"), ("a", "y", 2, "3"), ("a", "z", 3, "1"), ("a", "x", 4, "4"), ("a", "w", 5, "2"),
    ("b", "y", 1, "5"), ("b", "x", 2, "1"), ("b", "z", 3, "3"), ("b", "y", 4, "5"),
    ("c", "z", 1, "3"), ("c", "y", 2, "5"), ("c", "x", 3, "5"),
    ("d", "~", 1, "3"),
]  # fmt: skip


def opened(root: Path, events=EVENTS, genres=GENRE, **options):
    write(root / "log.csv", [HEADER, *(f"{u},{i},{t},{r},{genres[i]}" for u, i, t, r in events)])
    return open_interactions(**interactions_options(root, **options))


def refused(root: Path, **options) -> str:
    with pytest.raises(UserError) as caught:
        opened(root, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_an_event_reads_its_own_rating_and_its_items_genre(tmp_path: Path) -> None:
    data = opened(tmp_path, side=["rating", "genre"])
    assert {f.name: (f.rows, f.pooling) for f in data.features[3:]} == {"side_rating": (4, "none"), "side_genre": (3, "none")}
    # of train are 5, 3, 1 of a, 5 and 1 of b, 3 of c and d: rows 1, 2, 3 are 1, 3, 5
    test = everything(data, "test")
    assert [row["item"] for row in test] == [[2, 3, 4, 2], [3, 2, 4], [4, 3]]  # w, x, y, z, ~
    assert [row["side_rating"] for row in test] == [[3, 2, 1, 0], [3, 1, 2], [2, 3]]
    assert [row["side_genre"] for row in test] == [[2, 1, 0, 2], [1, 2, 0], [0, 1]]
    assert [row["side_rating"] for row in everything(data, "train")] == [[3, 2], [3]]
    (note,) = [note for note in data.notes if note.startswith("side columns")]
    assert "rating (of each event: 3 values)" in note and "genre (of each item: 2 values)" in note


def test_no_row_reads_what_the_held_out_event_says(tmp_path: Path) -> None:
    """A rating of an event is read at later places alone: another one of the target changes no row that is asked about it."""
    plain = opened(tmp_path, side=["rating"])
    last = {user: max(t for u, _, t, _ in EVENTS if u == user) for user in "abcd"}
    other = [(u, i, t, "3" if u != "d" and t == last[u] else r) for u, i, t, r in EVENTS]
    changed = opened(tmp_path, other, side=["rating"])
    for split in ("train", "validation", "test"):
        assert everything(plain, split) == everything(changed, split)
    before = [(u, i, t, "5" if t == last[u] - 1 else r) for u, i, t, r in EVENTS]
    changed = opened(tmp_path, before, side=["rating"])
    assert everything(plain, "validation") == everything(changed, "validation")
    assert everything(plain, "test") != everything(changed, "test")


def test_lists_have_several_ids_an_event(tmp_path: Path) -> None:
    genres = {"x": "war|love", "y": "love", "z": "", "w": "new|war|odd", "~": ""}
    data = opened(tmp_path, genres=genres, side=["genre", "rating"], lists={"genre": "|"})
    test = everything(data, "test")
    assert [row["side_genre"] for row in test] == [[2, 1, 1, 0, 2, 1], [1, 2, 1, 0], [0, 1]]
    rows = data.splits["test"].read(np.arange(3))
    assert rows.events is not None
    assert {name: counts.tolist() for name, counts in rows.events.counts.items()} == {"side_genre": [2, 1, 1, 2, 1, 2, 1, 1, 1]}
    mean = {f.name: f.mean_length for f in data.features}
    assert mean["side_rating"] == mean["item"] and mean["side_genre"] > mean["item"]
    assert any("1.3 each, averaged" in note for note in data.notes)


def test_parquets_lists_need_no_separator(tmp_path: Path) -> None:
    genres = {"x": "war|love", "y": "love", "z": "", "w": "new|war|odd", "~": ""}
    by_text = opened(tmp_path, genres=genres, side=["genre"], lists={"genre": "|"})
    columns = dict(zip(("user_id", "item_id", "timestamp", "rating"), zip(*EVENTS)))
    folder = tmp_path / "parquet"
    folder.mkdir()
    pl.DataFrame(columns | {"genre": [genres[i].split("|") for _, i, _, _ in EVENTS]}).write_parquet(folder / "log.parquet")
    data = open_interactions(**interactions_options(folder, side=["genre"]))
    for split in ("train", "validation", "test"):
        assert everything(data, split) == everything(by_text, split)


def test_numbers_with_many_values_are_put_into_buckets_of_train(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    events = [(f"u{u}", f"i{rng.integers(9)}", t, f"{rng.gamma(2.0):.4f}") for u in range(30) for t in range(8)]
    write(tmp_path / "log.csv", ["user_id,item_id,timestamp,price", *(",".join(map(str, event)) for event in events)])
    data = open_interactions(**interactions_options(tmp_path, side=["price"]))
    (price,) = [f for f in data.features if f.name == "side_price"]
    assert price.rows == 33
    counts = np.bincount(np.concatenate([row["side_price"] for row in everything(data, "train")]), minlength=33)
    assert counts[0] == 0 and counts[1:].min() > 0 and counts.max() < 3 * counts[1:].mean()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"side": ["genres"]}, "data.side: no such column; given genres; allowed: rating, genre; did you mean 'genre'?"),
        ({"side": ["item_id"]}, "the item is no side column"),
        ({"side": ["timestamp"]}, "the time is no side column"),
        ({"side": ["genre", "genre"]}, "named twice"),
        ({"side": ["genre"], "lists": {"rating": "|"}}, "data.lists: no side column; given rating"),
        ({"side": ["genre"], "lists": {"genre": ""}}, "no separator"),
        ({"side": ["genre"], "objective": "click"}, "side columns are for the next item"),
    ],
)
def test_what_cannot_be_read_is_refused(tmp_path: Path, options: dict, named: str) -> None:
    assert named in refused(tmp_path, **options)


def test_columns_without_a_header_are_named_by_a_key(tmp_path: Path) -> None:
    by_header = opened(tmp_path, side=["genre"])
    folder = tmp_path / "bare"
    folder.mkdir()
    write(folder / "log.csv", [f"{u},{i},{t},{r},{GENRE[i]}" for u, i, t, r in EVENTS])
    data = open_interactions(**interactions_options(folder, side=["genre"], columns=["user", "item", "time", "rating", "genre"]))
    assert everything(data, "test") == everything(by_header, "test")


def test_cells_that_look_like_lists_are_named_with_their_key(tmp_path: Path) -> None:
    data = opened(tmp_path, genres={"x": "war|love", "y": "love", "z": "a|b", "w": "new", "~": ""}, side=["genre"])
    assert any("several values in a cell" in note and 'data.lists={genre: "|"}' in note for note in data.notes)


def test_a_file_of_items_and_one_of_users(tmp_path: Path) -> None:
    by_log = opened(tmp_path, side=["genre"])
    write(
        tmp_path / "films.tsv",
        ["item_id:token\tkind:token\tyear:float", "y\tlove\t1990", "x\twar\t", "w\tnew\t1991", "q\todd\t1992", "x\todd\t1"],
    )
    write(tmp_path / "people.jsonl", ['{"user_id": "a", "age": 30, "likes": ["b", "c"]}', '{"user_id": "c", "age": 40, "likes": []}'])
    options = {"items_file": "films.tsv", "users_file": "people.jsonl", "lists": {"likes": "json"}}
    data = opened(tmp_path, side=["kind", "age", "likes", "year"], **options)
    test, plain = everything(data, "test"), everything(by_log, "test")
    assert [row["side_kind"] for row in test] == [row["side_genre"] for row in plain]
    assert [row["user_age"] for row in test] == [[1], [0], [2]] and [row["user_likes"] for row in test] == [[1, 2], [0], [0]]
    assert {f.name: f.mean_length for f in data.features}["user_likes"] == 1.25
    notes = " ".join(data.notes)
    assert "films.tsv: 2 of 5 items are not in it" in notes and "1 rows have the item of another" in notes
    assert "people.jsonl: 2 of 4 users are not in it" in notes and "age (of each user: 2 values)" in notes
    assert data.fingerprint != by_log.fingerprint
    other = opened(tmp_path, side=["kind"], items_file="films.tsv", file="log.csv")
    write(tmp_path / "films.tsv", ["item_id,kind", "y,war", "x,love"])
    assert opened(tmp_path, side=["kind"], items_file="films.tsv", file="log.csv").fingerprint != other.fingerprint


def test_json_of_attributes_is_a_file_of_items_beside_sequences(tmp_path: Path) -> None:
    write(tmp_path / "log.txt", ["1 5 3 4 6", "2 6 5 4", "3 3 6 4"])
    write(tmp_path / "attributes.json", ['{"5": [7, 8], "3": [8], "9": [1]}'])
    data = open_interactions(**interactions_options(tmp_path, file="log.txt", side=["attributes"], items_file="attributes.json"))
    (side,) = [f for f in data.features if f.name == "side_attributes"]
    assert side.rows == 3 and any("2 of 4 items are not in it" in note for note in data.notes)


@pytest.mark.parametrize(
    ("lines", "options", "named"),
    [
        (["item_id,kind", "x,war"], {"side": ["kinds"]}, "no such column; given kinds; allowed: rating, genre, kind; did you mean 'kind'?"),
        (["item_id,genre", "x,war"], {"side": ["genre"]}, "a column of this name is in two files; given genre: log.csv, films.csv"),
        (["item_id,kind", "x,war"], {"side": ["rating"]}, "data.items_file: nothing is read of it; given films.csv; allowed: kind"),
        (["name,kind", "x,war"], {"side": ["kind"]}, "no column of the items; given name, kind"),
        (["item_id,kind"], {"side": ["kind"]}, "no item of the interactions is in it; given no rows"),
        (["item_id,kind", "q,war"], {"side": ["kind"]}, "no item of the interactions is in it; given 1 others"),
        ([], {"side": ["kind"]}, "the file is empty"),
        (["item_id,kind", "x"], {"side": ["kind"]}, "films.csv:2"),
    ],
)
def test_a_bad_file_of_items_is_refused(tmp_path: Path, lines: list[str], options: dict, named: str) -> None:
    write(tmp_path / "films.csv", lines)
    assert named in refused(tmp_path, file="log.csv", items_file="films.csv", **options)


@pytest.mark.parametrize("parquet", [True, False])
def test_a_folders_name_is_a_side_column(tmp_path: Path, parquet: bool) -> None:
    by_log = opened(tmp_path, side=["genre"])
    log = pl.read_csv(tmp_path / "log.csv", infer_schema=False).with_columns(pl.col("genre").fill_null(""))
    for genre, own in log.group_by("genre"):
        folder = tmp_path / "parts" / f"genre={genre[0] or '__HIVE_DEFAULT_PARTITION__'}"
        folder.mkdir(parents=True)
        own = own.drop("genre")
        own.write_parquet(folder / "a.parquet") if parquet else own.write_csv(folder / "a.csv")
    data = open_interactions(**interactions_options(tmp_path / "parts", side=["genre"]))
    assert everything(data, "test") == everything(by_log, "test")


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6))
def test_rows_are_those_of_a_plain_reading(seed: int) -> None:
    """Of random logs, unsorted, with missing values and lists: every row reads the cells of its events, by values of train."""
    draw = random.Random(seed)
    events = [
        (f"u{u}", f"i{draw.randrange(12)}", draw.randrange(10**6), "|".join(draw.sample("abcdefg", draw.choice([0, 1, 1, 2, 3]))))
        for u in range(draw.randrange(4, 9))
        for _ in range(draw.randrange(2, 9))
    ]
    draw.shuffle(events)
    with TemporaryDirectory() as folder:
        write(Path(folder) / "log.csv", ["user_id,item_id,timestamp,tags", *(",".join(map(str, event)) for event in events)])
        data = open_interactions(**interactions_options(Path(folder), side=["tags"], lists={"tags": "|"}))
        by_user = {user: sorted((e for e in events if e[0] == user), key=lambda e: e[2]) for user in sorted({e[0] for e in events})}
        in_train = [e for own in by_user.values() for e in (own[:-2] if len(own) > 2 else own)]
        values = sorted({value for e in in_train for value in e[3].split("|") if value})
        ids = {id(e): [values.index(v) + 1 for v in e[3].split("|") if v in values] or [0] for e in events}
        for split, back in (("validation", 2), ("test", 1)):
            held_out = data.held_out[split]
            rows = data.splits[split].read(np.arange(held_out.rows))
            own = [list(by_user.values())[user][:-back] for user in held_out.users]
            assert rows.ids_by_feature()[-1].tolist() == [i for user in own for e in user for i in ids[id(e)]]
            assert rows.events is not None
            assert rows.events.counts["side_tags"].tolist() == [len(ids[id(e)]) for user in own for e in user]
