"""Yambda: events by law, the same from Parquet, histories against a plain reading of the rule, and what a bad file says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from omegaconf import OmegaConf

from recsys_lab.data.dataset import OpenDataSet
from recsys_lab.data.yambda import open as opening
from recsys_lab.data.yambda import open_yambda, open_yambda_law, parquet
from recsys_lab.data.yambda.features import CROSSES, READERS, crossed, xxhash64
from recsys_lab.data.yambda.law import EXPONENTS, NO_ALBUM, Law
from recsys_lab.data.yambda.samples import SampleSplit
from recsys_lab.data.yambda.store import HALF, LIKE, ORGANIC, SKIP, UserEvents
from recsys_lab.errors import UserError

CONF = Path(__file__).parents[2] / "conf" / "data"
ROWS = dict.fromkeys(READERS, 500) | {"item_id": 400, "artist_id": 60, "album_id": 90, "uid": 130}
SAMPLES: dict[str, Any] = {
    "rows": ROWS,
    "history": "interleaved",
    "max_history": 24,
    "min_history": 20,
    "scan": 100,
    "first_window": 0,
    "held_out_windows": 20,
}
LAW: dict[str, Any] = SAMPLES | {"users": 130, "median_events": 60, "most_events": 300, "seed_of_truth": 7}


def law() -> Law:
    return Law(130, ROWS, 60, 300, 7)


def written(folder: Path, by_time: bool = False, **changes: pl.Expr) -> Path:
    """The events of `law` as Yambda is published, sorted by user, or by time over all users."""
    events = list(law().blocks())
    users = np.concatenate([np.repeat(block.users, block.counts) for block in events])
    times, items, kinds = (np.concatenate([getattr(block, name) for block in events]) for name in ("times", "items", "kinds"))
    listens = kinds & (HALF | SKIP) > 0
    types = np.where(listens, "listen", np.where(kinds & LIKE > 0, "like", "unlike"))
    frame = pl.DataFrame(
        {
            "uid": users.astype(np.uint32),
            "timestamp": times.astype(np.uint32),
            "item_id": items.astype(np.uint32),
            "is_organic": (kinds & ORGANIC > 0).astype(np.uint8),
            "played_ratio_pct": pl.Series(np.where(kinds & HALF > 0, 50, 49).astype(np.uint16)).set(pl.Series(~listens), None),
            "track_length_seconds": np.full(len(users), 180, np.uint32),
            "event_type": pl.Series(types, dtype=pl.Categorical),
        }
    )
    if by_time:
        frame = frame.sort("timestamp", maintain_order=True)
    (folder / "flat" / "50m").mkdir(parents=True, exist_ok=True)
    frame.with_columns(**changes).write_parquet(folder / "flat" / "50m" / "multi_event.parquet", row_group_size=1000)
    ids = np.arange(ROWS["item_id"])
    for name, own in (("artist", law().artists()), ("album", law().albums())):
        # the lowest of several counts
        more = np.minimum(own + 1, ROWS[f"{name}_id"] - 1)
        mapping = pl.DataFrame({"item_id": np.concatenate([ids, ids]), f"{name}_id": np.concatenate([more, own])})
        mapping.write_parquet(folder / f"{name}_item_mapping.parquet")
    return folder


def opened(folder: Path, cache: Path, **changes: Any) -> OpenDataSet:
    return open_yambda(root=str(folder), size="50m", cache=str(cache), **SAMPLES | changes)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> OpenDataSet:
    return open_yambda_law(cache=str(tmp_path_factory.mktemp("cache")), **LAW)


def test_xxhash64_is_xxhash64() -> None:
    xxhash = pytest.importorskip("xxhash")
    keys = [np.array([0, 5, -3, 2**40], np.int64), np.array([1, 2, 3, 4], np.int64), np.array([9, 8, 7, -6], np.int64)]
    for count in (1, 2, 3):
        by_library = [xxhash.xxh64_intdigest(np.array(key, "<i8").tobytes()) for key in zip(*keys[:count])]
        assert xxhash64(keys[:count]).tolist() == by_library


def test_a_sample_is_the_rule_read_plainly(drawn: OpenDataSet) -> None:
    """Every id, time, action and label of some samples, from the events of a user as a list."""
    events = {}
    for block in law().blocks():
        start = 0
        for user, count in zip(block.users.tolist(), block.counts.tolist()):
            own = slice(start, start + count)
            events[user] = list(zip(block.times[own].tolist(), block.items[own].tolist(), block.kinds[own].tolist()))
            start += count
    artists, albums = law().artists(), law().albums()
    split = drawn.splits["train"]
    assert isinstance(split, SampleSplit)
    anchors = sorted(
        (time // 86400, user, number)
        for user, own in events.items()
        for number, (time, _, kind) in enumerate(own)
        if number >= 20 and kind & (HALF | SKIP)
    )
    assert sum(one.rows for one in drawn.splits.values()) == len(anchors)
    numbers = np.arange(0, split.rows, 37)
    read = split.read(numbers)
    names = [feature.name for feature in drawn.features]
    parts = np.split(read.ids, np.cumsum(read.lengths.sum(1))[:-1])
    found = {name: np.split(part, np.cumsum(lengths)[:-1]) for name, part, lengths in zip(names, parts, read.lengths)}
    assert read.events is not None
    times, actions = (np.split(own, np.cumsum(read.lengths[0])[:-1]) for own in (read.events.times, read.events.actions))
    for row, (_, user, number) in enumerate(anchors[n] for n in numbers):
        time, item, kind = events[user][number]
        before = events[user][max(0, number - 100) : number]
        pools = [[i for i, (*_, of) in enumerate(before) if of & bit][-8:] for bit in (HALF, LIKE, SKIP)]
        history = [before[i] for i in sorted(sum(pools, []))]
        assert found["item_id"][row].tolist() == [i for _, i, _ in history]
        assert found["artist_id"][row].tolist() == [artists[i] for _, i, _ in history]
        assert found["album_id"][row].tolist() == [albums[i] for _, i, _ in history]
        assert times[row].tolist() == [t for t, *_ in history] and actions[row].tolist() == [k & 7 for *_, k in history]
        assert read.events.asked[row] == (history[-1][0] if history else time) and read.labels[row] == (kind & HALF > 0)
        keys = {"uid": user, "item": item, "artist": artists[item], "album": albums[item], "hour": time // 3600 % 24}
        keys["is_organic"] = int(kind & ORGANIC > 0)
        own = {"item_candidate_id": item, "item_candidate_artist_id": artists[item], "item_candidate_album_id": albums[item], "uid": user}
        own |= {table: crossed({k: np.array([v]) for k, v in keys.items()}, table, 500)[0] for table in CROSSES}
        assert {name: int(found[name][row][0]) for name in own} == own
    assert all(lengths.max() <= 24 for lengths in read.lengths[:1])


@pytest.mark.parametrize("by_time", [False, True])
def test_the_reader_gives_what_the_law_drew(drawn: OpenDataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_time: bool) -> None:
    """In blocks and parts of few rows, whatever the order of users in the file."""
    monkeypatch.setattr(parquet, "READ_ROWS", 1500)
    monkeypatch.setattr(parquet, "PART_ROWS", 4000)
    data = opened(written(tmp_path, by_time), tmp_path / "cache")
    assert data.features == drawn.features and [p.name for p in (tmp_path / "cache").glob("yambda-*/part_*")] == []
    for name, split in data.splits.items():
        ours, theirs = (one.read(np.arange(split.rows)) for one in (split, drawn.splits[name]))
        assert ours.events is not None and theirs.events is not None
        for field in ("labels", "lengths", "ids"):
            assert np.array_equal(getattr(ours, field), getattr(theirs, field)), (name, field)
        assert np.array_equal(ours.events.times, theirs.events.times) and np.array_equal(ours.events.actions, theirs.events.actions)
    assert data.access["item_id"].mean_length == pytest.approx(drawn.access["item_id"].mean_length)


def test_windows_follow_each_other_and_the_last_are_held_out(drawn: OpenDataSet) -> None:
    assert drawn.columns is not None
    last = -1
    for name in ("train", "validation", "test"):
        windows = drawn.columns.read("window", name)
        numbers = np.array([int(one) for one in windows.names])[windows.codes]
        assert (np.diff(numbers) >= 0).all() and numbers[0] > last and len(numbers) == drawn.splits[name].rows
        last = numbers[-1]
    assert last == 300
    with pytest.raises(UserError, match="no such column"):
        drawn.columns.read("hour", "test")


def test_the_last_n_of_any_pool(tmp_path: Path) -> None:
    data = open_yambda_law(cache=str(tmp_path), **LAW | {"history": "last_n", "max_history": 15})
    read = data.splits["test"].read(np.arange(data.splits["test"].rows))
    assert set(read.lengths[0]) == {15}


def test_lengths_and_popularity_are_those_published(tmp_path: Path) -> None:
    """Of the full size, by formula: nothing is drawn. A smaller one that is drawn has the lengths of the formula."""
    full: dict[str, Any] = dict(OmegaConf.to_container(OmegaConf.load(CONF / "yambda_law.yaml")).items())  # type: ignore[union-attr]
    for key in ("_target_", "cache", "batch_size", "prefetch_batches", "frequencies"):
        full.pop(key)
    data = open_yambda_law(cache=str(tmp_path), **full)
    length = {feature.name: feature.mean_length for feature in data.features}
    assert length["item_id"] == pytest.approx(2663, rel=0.02) and length["uid"] == 1.0
    assert sum(data.access[table].mean_length for table in READERS) == pytest.approx(3 * length["item_id"] + 11)
    assert data.access["album_id"].bucket_p[0] / data.access["album_id"].mean_length * 7 + 1 == pytest.approx(2.8, rel=0.12)
    assert data.access["artist_id"].bucket_p[0] / data.access["artist_id"].mean_length * 7 + 1 == pytest.approx(1.3, rel=0.12)
    counts = Law(1_000_000, full["rows"], 2695, 27738, 1).counts
    assert np.median(counts) == pytest.approx(2695, rel=0.01) and counts.mean() == pytest.approx(4763, rel=0.06)
    with pytest.raises(UserError, match="too many events to draw"):
        data.splits["train"].read(np.arange(2))
    assert list(tmp_path.iterdir()) == []


def test_a_law_that_is_drawn_has_its_lengths_shares_and_hours(drawn: OpenDataSet) -> None:
    own = Law(3000, ROWS, 60, 300, 3)
    blocks = list(own.blocks())
    kinds, times = (np.concatenate([getattr(block, name) for block in blocks]) for name in ("kinds", "times"))
    assert (kinds & LIKE > 0).mean() == pytest.approx(0.0106, abs=0.001)
    assert (kinds & HALF > 0).mean() == pytest.approx(0.613, abs=0.03)
    hours = np.bincount(times // 3600 % 24, minlength=24)
    assert hours.max() > 1.3 * hours.min() and (times % 5 == 0).all() and times.max() < 301 * 86400
    split = drawn.splits["train"]
    lengths, weights = law().history_lengths(20, 24, 100)
    assert split.read(np.arange(split.rows)).lengths[0].mean() == pytest.approx(np.average(lengths, weights=weights), rel=0.05)


def test_items_are_drawn_by_their_law() -> None:
    own = Law(3000, ROWS, 60, 300, 3)
    items = np.concatenate([block.items for block in own.blocks()])
    shares = np.sort(np.bincount(items, minlength=400))[::-1] / len(items)
    by_law = np.diff(own._law("item_id").share(np.arange(401)))
    assert shares[:10].sum() == pytest.approx(by_law[:10].sum(), rel=0.15) and EXPONENTS["item_id"] == 0.75
    assert len(np.unique(own.artists())) > 50 and (own.albums() == 0).mean() == pytest.approx(NO_ALBUM, abs=0.04)
    assert ((own.artists() == 0) <= (own.albums() == 0)).all()  # who has no artist has no album


def test_the_best_auc_is_that_of_the_truth(drawn: OpenDataSet) -> None:
    assert set(drawn.best_auc) == {"train", "validation", "test"}
    assert 0.75 < drawn.best_auc["train"] < 0.9


def test_a_killed_preparation_leaves_nothing_that_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(opening, "write", dies)
        with pytest.raises(KeyboardInterrupt):
            opened(written(tmp_path), tmp_path / "cache")
    assert list((tmp_path / "cache").glob("yambda-*")) == []
    assert opened(tmp_path, tmp_path / "cache").splits["test"].rows


SECOND_OF_USER_3 = (pl.col("uid") == 3) & (pl.col("uid").cum_count().over("uid") == 5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"event_type": pl.lit("purchase")}, "event_type: no such event type; given purchase, in row 1; allowed: listen, like"),
        (
            {"timestamp": pl.when(SECOND_OF_USER_3).then(0).otherwise(pl.col("timestamp"))},
            "times run backwards; given second 0 after second",
        ),
        ({"item_id": pl.col("item_id") + 1}, "item_id: out of range; given 400; allowed: 0 to 399; a larger data.rows.item_id"),
        ({"uid": pl.col("uid").cast(pl.Int64) - 1}, "uid: out of range; given -1"),
        ({"uid": pl.lit(None, pl.Int64)}, "uid: a value is missing; given nothing in row 1"),
        ({"played_ratio_pct": pl.lit(None, pl.Int64)}, "played_ratio_pct: a value is missing"),
        ({"timestamp": pl.col("timestamp").cast(pl.String)}, "another schema; given column timestamp of String; allowed: whole numbers"),
    ],
)
def test_a_bad_file_is_one_line(tmp_path: Path, changes: dict[str, pl.Expr], message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)) as refused:
        opened(written(tmp_path, **changes), tmp_path / "cache")
    assert "\n" not in str(refused.value) and list((tmp_path / "cache").glob("yambda*")) == []


def test_another_parquet_file_is_one_line(tmp_path: Path) -> None:
    root = written(tmp_path)
    events = root / "flat" / "50m" / "multi_event.parquet"
    pl.DataFrame({"user": [1], "item": [2]}).write_parquet(events)
    with pytest.raises(UserError, match="another schema; given columns user, item; allowed: uid, timestamp"):
        opened(root, tmp_path / "cache")
    events.write_text("uid,timestamp")
    with pytest.raises(UserError, match="no Parquet file"):
        opened(root, tmp_path / "cache")
    events.unlink()
    with pytest.raises(UserError, match="a file is missing.*no flat/50m/multi_event.parquet"):
        opened(root, tmp_path / "cache")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"users": 131}, "more users than rows"),
        ({"min_history": 299}, "too few days|split is empty"),
        ({"held_out_windows": 200}, "too few days"),
        ({"rows": {"item_id": 400}}, "rows of the eleven tables"),
        ({"users": 130, "median_events": 10**7, "most_events": 10**7, "min_history": 10**8}, "no user has so many events"),
    ],
)
def test_a_law_that_cannot_be_is_one_line(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        open_yambda_law(cache=str(tmp_path), **LAW | changes)


def test_the_events_of_a_user_do_not_depend_on_the_others() -> None:
    few = list(Law(10, ROWS, 60, 300, 7).blocks())[0]
    many = next(law().blocks())
    assert isinstance(few, UserEvents) and np.array_equal(few.items, many.items[: len(few.items)])
