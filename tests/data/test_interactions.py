"""Interactions as a data set: who is held out, what each row reads, negatives that are no part of a history."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_lab.data import hashing
from recsys_lab.data.interactions import open_interactions
from recsys_lab.data.interactions.held_out import distinct_below
from recsys_lab.data.interactions.histories import Unseen, histories_of
from recsys_lab.data.loader import RankLoader
from recsys_lab.data.measure import measure_access
from tests.data.helpers import interactions_options, write

#: Users 1 to 5 with 6, 5, 3, 2 and 1 of items 1 to 9; the last one holds the ids together.
SEQUENCES = {1: [5, 3, 8, 3, 1, 2], 2: [7, 6, 5, 4, 3], 3: [9, 1, 2], 4: [4, 8], 5: [6]}


def opened(root: Path, **options):
    if not (root / "log.txt").exists():
        write(root / "log.txt", [" ".join(map(str, [user, *items])) for user, items in SEQUENCES.items()])
    return open_interactions(**interactions_options(root, **options))


def features_of(data, rows) -> list[dict[str, list[int]]]:
    """Each row's ids by feature."""
    out: list[dict[str, list[int]]] = [{} for _ in range(rows.lengths.shape[1])]
    begin = 0
    for feature, lengths in zip(data.features, rows.lengths):
        for row, length in zip(out, lengths):
            row[feature.name] = rows.ids[begin : begin + length].tolist()
            begin += length
    assert begin == len(rows.ids)
    return out


def everything(data, split: str) -> list[dict[str, list[int]]]:
    found = data.splits[split]
    return features_of(data, found.read(np.arange(found.rows)))


def test_leave_one_out(tmp_path: Path) -> None:
    data = opened(tmp_path)
    assert {name: split.rows for name, split in data.splits.items()} == {"train": 3, "validation": 3, "test": 3}
    train = everything(data, "train")
    assert [(row["item"], row["positive"]) for row in train] == [([5, 3, 8], [3, 8, 3]), ([7, 6], [6, 5]), ([4], [8])]
    assert [row["item"] for row in everything(data, "validation")] == [[5, 3, 8, 3], [7, 6, 5], [9]]
    assert [row["item"] for row in everything(data, "test")] == [[5, 3, 8, 3, 1], [7, 6, 5, 4], [9, 1]]
    who = np.arange(3)
    assert data.held_out["validation"].target(who).tolist() == [1, 4, 1]
    assert data.held_out["test"].target(who).tolist() == [2, 3, 2]
    lengths, seen = data.held_out["test"].seen(who)
    assert lengths.tolist() == [5, 4, 2] and seen.tolist() == [5, 3, 8, 3, 1, 7, 6, 5, 4, 9, 1]
    assert "2 users with fewer than 3 interactions are in train alone" in data.notes


def test_a_history_is_cut_to_its_last_items(tmp_path: Path) -> None:
    data = opened(tmp_path, max_length=2)
    assert [(row["item"], row["positive"]) for row in everything(data, "train")][:2] == [([3, 8], [8, 3]), ([7, 6], [6, 5])]
    assert everything(data, "test")[0]["item"] == [3, 1]
    assert data.held_out["test"].seen(np.array([0]))[0].tolist() == [5]  # what is excluded is not cut


def test_clicks_are_pairs_of_a_positive_and_a_negative(tmp_path: Path) -> None:
    data = opened(tmp_path, objective="click")
    train = everything(data, "train")
    labels = data.splits["train"].read(np.arange(len(train))).labels
    assert labels.tolist() == [1, 0] * 6
    positives = [(row["item"], row["candidate"]) for row in train[::2]]
    assert positives == [([5], [3]), ([5, 3], [8]), ([5, 3, 8], [3]), ([7], [6]), ([7, 6], [5]), ([4], [8])]
    assert [row["item"] for row in train[1::2]] == [item for item, _ in positives]
    test = everything(data, "test")
    assert [(row["item"], row["candidate"]) for row in test[::2]] == [([5, 3, 8, 3, 1], [2]), ([7, 6, 5, 4], [3]), ([9, 1], [2])]
    assert all(row["candidate"][0] not in SEQUENCES[user] for user, row in zip((1, 2, 3), test[1::2]))


def test_pooled_features_for_models_that_pool(tmp_path: Path) -> None:
    data = opened(tmp_path, objective="click", pooling="mean")
    assert [(f.name, f.pooling, f.table) for f in data.features] == [("item", "mean", "item"), ("candidate", "mean", "item")]


def test_candidates_of_a_click_model(tmp_path: Path) -> None:
    data = opened(tmp_path, objective="click")
    held_out = data.held_out["test"]
    drawn = held_out.candidates(3)
    rows = features_of(data, drawn.read(np.arange(drawn.rows)))
    assert drawn.rows == 12 and [row["candidate"] for row in rows[::4]] == [[2], [3], [2]]
    assert [[rows[4 * u + j]["candidate"][0] for j in (1, 2, 3)] for u in range(3)] == held_out.sampled(np.arange(3), 3).tolist()
    assert [row["item"] for row in rows[4:8]] == [[7, 6, 5, 4]] * 4
    whole = held_out.candidates(0)
    assert [row["candidate"][0] for row in features_of(data, whole.read(np.arange(whole.rows)))] == [*range(1, 10)] * 3


def test_negatives_are_no_part_of_the_train_history_and_differ_by_pass(tmp_path: Path) -> None:
    data = opened(tmp_path, passes=50)
    rows = everything(data, "train")
    drawn: dict[int, set[int]] = {1: set(), 2: set(), 4: set()}
    for number, row in enumerate(rows):
        user = (1, 2, 4)[number % 3]
        assert len(row["negative"]) == len(row["item"])
        drawn[user] |= set(row["negative"])
    trained = {1: {5, 3, 8}, 2: {7, 6, 5}, 4: {4, 8}}
    assert drawn == {user: set(range(1, 10)) - items for user, items in trained.items()}
    assert rows[0]["item"] == rows[3]["item"] and any(rows[0]["negative"] != rows[3 * p]["negative"] for p in range(1, 50))
    other = everything(opened(tmp_path, passes=50, seed_of_negatives=2), "train")
    assert [r["negative"] for r in other] != [r["negative"] for r in rows] and [r["item"] for r in other] == [r["item"] for r in rows]


@pytest.mark.parametrize("objective", ["next_item", "click"])
def test_a_row_is_a_function_of_its_number(tmp_path: Path, objective: str) -> None:
    data = opened(tmp_path, objective=objective, passes=3)
    for split in data.splits:
        whole = everything(data, split)
        order = np.random.default_rng(1).permutation(len(whole))
        again = features_of(data, data.splits[split].read(order))
        assert again == [whole[i] for i in order]


@pytest.mark.parametrize("objective", ["next_item", "click"])
def test_the_ranks_together_read_what_one_reads(tmp_path: Path, objective: str) -> None:
    data = opened(tmp_path, objective=objective, passes=4)

    def batches(rank: int, ranks: int):
        loader = RankLoader(
            data.splits["train"],
            data,
            batch_size=5,
            rank=rank,
            world_size=ranks,
            seed=3,
            shuffle=True,
            prefetch_batches=0,
            pin_memory=False,
        )
        return list(loader)

    def rows(batch) -> list[list[list[int]]]:
        parts = [batch.sparse[f.name] for f in data.features]
        return [[part.to_dense()[row].tolist() for part in parts] for row in range(batch.valid)]

    for alone, *parts in zip(batches(0, 1), *(batches(rank, 3) for rank in range(3))):
        assert rows(alone) == [row for part in parts for row in rows(part)]
        assert sum(part.valid for part in parts) == alone.global_valid


@pytest.mark.parametrize("objective", ["next_item", "click"])
def test_access_is_that_of_the_rows(tmp_path: Path, objective: str) -> None:
    data = opened(tmp_path, objective=objective, passes=2)
    assert list(data.access.tables) == ["item"]
    samples = data.splits["train"].rows // 2
    again = measure_access(data, samples)["item"]
    assert (again.bucket_rows, again.bucket_p) == (data.access["item"].bucket_rows, data.access["item"].bucket_p)
    counts = data.row_counts()[0]
    rows = features_of(data, data.splits["train"].read(np.arange(samples)))
    flat = [i for row in rows for f in row.values() for i in f]
    assert counts.tolist() == np.bincount(flat, minlength=10).tolist() and counts[0] == 0
    assert data.hottest("item", 4).tolist() == sorted(range(10), key=lambda i: (-counts[i], i))[:4]
    for feature in data.features:
        assert feature.mean_length == pytest.approx(np.mean([len(row[feature.name]) for row in rows]))


def test_a_user_that_had_everything_is_left_out(tmp_path: Path) -> None:
    write(tmp_path / "log.txt", ["1 1 2 3 1 2", "2 1 2 3 1", "3 3 2 4 1 1"])
    data = opened(tmp_path)
    assert data.held_out["test"].users.tolist() == [0, 1]  # user 3 has had all four
    write(tmp_path / "b.txt", ["1 1 2 3 1 2 1"])
    click = opened(tmp_path, objective="click", file="log.txt")
    assert click.splits["test"].rows == 4


@settings(max_examples=60)
@given(st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=20), min_size=1, max_size=6))
def test_unseen_items_are_all_the_others_in_rising_order(histories: list[list[int]]) -> None:
    users = np.repeat(np.arange(len(histories)), [len(h) for h in histories])
    unseen = Unseen.of(users, np.concatenate(histories), len(histories), 12)
    for user, items in enumerate(histories):
        rest = sorted(set(range(1, 13)) - set(items))
        assert unseen.count(np.array([user])).tolist() == [len(rest)]
        assert unseen.item(np.full(len(rest), user), np.arange(len(rest))).tolist() == rest


@settings(max_examples=40)
@given(st.integers(0, 30), st.integers(1, 10), st.integers(0, 10**6))
def test_drawn_numbers_are_distinct_and_below_the_limit(limit: int, wanted: int, counter: int) -> None:
    stream = hashing.key("test")
    alone = distinct_below(np.array([limit]), wanted, stream, np.array([counter]))
    among = distinct_below(np.array([29, limit, 3]), wanted, stream, np.array([1, counter, 7]))
    assert alone[0].tolist() == among[1].tolist()
    kept = alone[alone >= 0]
    assert len(kept) == min(limit, wanted) == len(set(kept.tolist())) and (kept < max(limit, 1)).all()


def test_every_number_is_as_likely(tmp_path: Path) -> None:
    counts = np.zeros(9)
    drawn = distinct_below(np.full(9000, 9), 3, hashing.key("test"), np.arange(9000))
    np.add.at(counts, drawn.ravel(), 1)
    assert np.abs(counts - 3000).max() < 5 * np.sqrt(3000)
    few = distinct_below(np.full(9000, 6), 3, hashing.key("test"), np.arange(9000))
    assert np.abs(np.bincount(few.ravel()) - 4500).max() < 5 * np.sqrt(4500)


def test_times_sort_what_the_file_does_not() -> None:
    users, ids, times = np.array([1, 0, 1, 0, 1]), np.array([1, 2, 3, 4, 5]), np.array([5.0, 2.0, 1.0, 1.0, 1.0])
    assert histories_of(users, ids, times, 2, 5, None).ids.tolist() == [4, 2, 3, 5, 1]
    assert histories_of(users, ids, None, 2, 5, None).ids.tolist() == [2, 4, 1, 3, 5]


def test_event_times_are_those_of_the_items(tmp_path: Path) -> None:
    """In seconds, also of a log in nanoseconds; asked at the last one."""
    rows = [(user, (user + 3 * n) % 9, 10**18 + (n * n + user) * 10**9) for user in range(6) for n in range(5)]
    (tmp_path / "log.csv").write_text("user_id,item_id,timestamp\n" + "".join(f"{u},{i},{t}\n" for u, i, t in rows))
    data = opened(tmp_path, event_times=True, max_length=3, file="log.csv")
    read = data.splits["test"].read(np.arange(6))
    assert read.events.times.reshape(6, 3).tolist() == [[10**9 + n * n + user for n in (1, 2, 3)] for user in range(6)]
    assert read.events.asked.tolist() == [10**9 + 9 + user for user in range(6)]
    train = data.splits["train"].read(np.arange(6))
    assert len(train.events.times) == train.lengths[0].sum()
    assert opened(tmp_path, file="log.csv").splits["test"].read(np.arange(6)).events is None
