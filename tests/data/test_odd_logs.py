"""Logs as they are found: any separator, quotes, times of many forms, no header. Read right, or refused with the line that is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.data.helpers import write
from tests.data.test_interactions_files import EVENTS, MIXED, ROWS, TIMED, histories, opened, refused

SECOND = 900_000_000


def iso(seconds: int, form: str) -> str:
    day = np.datetime64(seconds, "s")
    return {
        "T": f"{day}Z",
        "blank": f"{str(day).replace('T', ' ')} UTC",
        "fraction": f"{day}.250Z",
        "offset": f"{day + np.timedelta64(7200, 's')}+02:00",
        "basic": str(day).replace("-", "").replace(":", ""),
        "ns": f"{seconds}141592653",
        "sci": f"{seconds:.9e}",
    }[form]


@pytest.mark.parametrize("form", ["T", "blank", "fraction", "offset", "basic", "ns", "sci"])
def test_times_of_any_form_order_a_log(tmp_path: Path, form: str) -> None:
    write(tmp_path / "log.csv", ["user_id,item_id,timestamp", *(f"{u},{i},{iso(t, form)}" for u, i, t in MIXED)])
    data = opened(tmp_path, time=True)
    assert histories(data) == ROWS
    unit_gap = data.held_out["test"].inputs.histories.gaps[1]
    assert unit_gap == 2 + 2  # 7 seconds


def test_nanoseconds_are_told_apart_exactly(tmp_path: Path) -> None:
    times = [1556559573141592653, 1556559573141592650, 1556559573141592652, 1556559573141592654]
    write(tmp_path / "log.csv", ["user_id,item_id,ts", *(f"1,{i},{t}" for i, t in enumerate(times)), "2,7,1556559573141592653"])
    assert opened(tmp_path).held_out["test"].inputs.histories.ids[:4].tolist() == [2, 3, 1, 4]


@pytest.mark.parametrize("name", ["event_time", "datetime", "created_at", "date", "eventdate", "Event-Time", "timestamp:float"])
def test_columns_called_as_times_are_times(tmp_path: Path, name: str) -> None:
    write(tmp_path / "log.csv", [f"user_id,item_id,{name}", *(f"{u},{i},{t}" for u, i, t in MIXED)])
    data = opened(tmp_path)
    assert histories(data) == ROWS
    assert any(note.startswith("taken for user: user_id, item: item_id, time: ") for note in data.notes)


@pytest.mark.parametrize("separator", [",", ";", "|", "\t"])
@pytest.mark.parametrize("header", [True, False])
def test_separators_and_quotes_are_those_of_a_table(tmp_path: Path, separator: str, header: bool) -> None:
    names = [separator.join(['"user_id"', '"title"', '"item_id"', '"time"'])] if header else []
    rows = [separator.join(f'"{field}"' for field in (u, f'a {separator} ""b""', i, t)) for u, i, t in MIXED]
    write(tmp_path / "log.csv", [*names, *rows])
    assert histories(opened(tmp_path, columns=None if header else ["user", "other", "item", "time"])) == ROWS


def test_lines_after_a_bad_quote_are_read_when_bad_lines_are_skipped(tmp_path: Path) -> None:
    rows = [f'"{u}",{i},{t}' for u, i, t in TIMED]
    write(tmp_path / "log.csv", ["user,item,time", *rows[:5], '"3"x,7,900000000', '"3,7,900000000', *rows[5:]])
    assert "log.csv:7: a quote within a field" in refused(opened, tmp_path)
    data = opened(tmp_path, on_bad_line="skip")
    assert histories(data) == ROWS and any(note.startswith("2 bad lines skipped") for note in data.notes)


def test_a_log_without_header_is_told_by_its_times(tmp_path: Path) -> None:
    write(tmp_path / "clicks.dat", [f"{u},{iso(t, 'fraction')},{i},S" for u, i, t in MIXED])
    data = opened(tmp_path)
    assert histories(data) == ROWS
    assert "fields without names are taken for user, time, item, other (else: data.columns)" in data.notes


def test_sessions_are_users_where_there_are_none_and_the_finest_clock_counts(tmp_path: Path) -> None:
    rows = [f"{u};NA;{i};{t};2016-05-0{n % 2 + 1}" for n, (u, i, t) in enumerate(MIXED)]
    write(tmp_path / "views.csv", ["sessionId;userId;itemId;timeframe;eventdate", *rows])
    data = opened(tmp_path)
    assert histories(data) == ROWS
    assert "taken for user: sessionId, item: itemId, time: timeframe (else: data.columns)" in data.notes


CONTRADICTED = {
    "an epoch for an item": ([f"{u},{t},{i}" for u, i, t in TIMED], "[user,time,item]"),
    "a price for an item": ([f"{u},{n}.99,{i}" for n, (u, i) in enumerate(EVENTS)], "[user,other,item]"),
    "a constant time": ([f"{u},{i},{SECOND}" for u, i in EVENTS], "[user,item,other]"),
    "an item a line": ([f"{u},x{n},{i}" for n, (u, i) in enumerate(EVENTS)], "[user,other,item]"),
    "a time of another name": (["user,item,begun", *(f"{u},{i},{t}" for u, i, t in MIXED)], "[user,item,time]"),
    "five fields": ([f"{u},NA,{i},5,{iso(t, 'T')}" for u, i, t in TIMED], "[user,"),
}


@pytest.mark.parametrize("case", CONTRADICTED)
def test_a_guess_that_the_values_contradict_is_refused_with_the_right_line(tmp_path: Path, case: str) -> None:
    lines, right = CONTRADICTED[case]
    write(tmp_path / "log.csv", lines)
    message = refused(opened, tmp_path)
    assert f"data.columns={right}" in message, message


DAY = 86_400
#: Logs that were read wrongly without a word: their lines, and what the refusal says.
REFUSED = {
    "a header of unknown names": (["who,what", *(f"{u},{i}" for u, i in EVENTS)], "data.columns=[user,item]"),
    "the same of ids with letters": (["who,what", *(f"u{u},i{i}" for u, i in EVENTS)], "data.columns=[user,item]"),
    "a word after the time": ([f"{u},{i},3,{iso(t * 3, 'T')},x" for u, i, t in TIMED], "data.columns=[user,item,other,time,other]"),
    "check-ins": ([f"{u}\t{iso(t, 'T')}\t30.23{n}\t-97.7{n}\t{i}" for n, (u, i, t) in enumerate(TIMED)], "[user,time,other,other,item]"),
    "the year last": (["user,item,time", *(f"{u},{i},1{n % 9}0{1 + n % 7}2017" for n, (u, i) in enumerate(EVENTS))], "with the year last"),
    "two units": (["user,item,time", *(f"{u},{i},{t if n % 2 else t * 1000}" for n, (u, i, t) in enumerate(TIMED))], "others milliseconds"),
    "a clock beside its day": (
        ["user,item,date,hour", *(f"{u},{i},2017-01-1{n % 9},10:{n:02d}" for n, (u, i) in enumerate(EVENTS))],
        "the clock stands in a field of its own",
    ),
    "times of the items": (
        ["user,item,date", *(f"{u},{i},{iso(SECOND + DAY * i, 'T')}" for u in range(9) for i in range(6))],
        "each item has one time",
    ),
    "items before users": ([f"B{int(i):09d},A{u:>013},5.0,{t}" for u, i, t in TIMED], "data.columns=[item,user,rating,time]"),
    "items before users by their ids": ([f"N{u}\tU{i}\t{t}" for u, i, t in TIMED], "data.columns=[item,user,time]"),
    "a comment among the rows": ([*(f"{u} {i} {t}" for u, i, t in TIMED), "# 5 6"], "log.txt:13: a comment"),
    "a line a user, of three items each": ([f"{u} {u + 1} {u + 20} {u + 3}" for u in range(30)], "data.format=sequences"),
    "lists of ids as great as times": ([f"{u};115292150460766{u:04d};11529215046070{u:05d}" for u in range(9)], "data.format=sequences"),
    "ratings as many as lines": ([f"{u % 5},{u % 7},{u * 37 % 1000}" for u in range(60)], "data.columns=[user,item,other]"),
    "a header behind a comment sign": (["#user_id,item_id", *(f"{u},{i}" for u, i in EVENTS)], "a comment that may be the header"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_was_read_wrongly_is_refused_with_the_line_that_is_right(tmp_path: Path, case: str) -> None:
    lines, said = REFUSED[case]
    write(tmp_path / "log.txt", lines)
    assert said in (message := refused(opened, tmp_path)), message


PASSED_OVER = {"Excel's word": ["sep=,"], "comments": ["# of 2019", "% 12 20"], "blank lines": ["", ""]}


@pytest.mark.parametrize("case", PASSED_OVER)
def test_lines_before_the_header_are_passed_over(tmp_path: Path, case: str) -> None:
    write(tmp_path / "log.csv", [*PASSED_OVER[case], "user_id,item_id,timestamp", *(f"{u},{i},{t}" for u, i, t in MIXED)])
    data = opened(tmp_path)
    assert histories(data) == ROWS
    assert any("passed over before the first row" in note for note in data.notes) == (case != "blank lines")


@pytest.mark.parametrize(("form", "columns"), [("{};{};4,5", None), ("{};{};1,500,000", ["user", "item", "other"]), ("{};{};3,5,7", None)])
def test_commas_within_numbers_separate_nothing(tmp_path: Path, form: str, columns: list[str] | None) -> None:
    head = ["user;item;rating"] if columns is None else []
    write(tmp_path / "log.csv", [*head, *(form.format(u, i) for u, i in EVENTS)])
    if form.endswith("3,5,7"):
        assert "the rating is not a number" in refused(opened, tmp_path)
    else:
        assert histories(opened(tmp_path, columns=columns)) == ROWS


def test_times_that_may_be_missing_are_said(tmp_path: Path) -> None:
    write(tmp_path / "log.csv", ["user_id,item_id,timestamp", *(f"{u},{i},{t if n else 0}" for n, (u, i, t) in enumerate(TIMED))])
    assert any(note.startswith("1 times are 0 or less, beside times since 1979") for note in opened(tmp_path).notes)


def test_the_line_of_a_refusal_works_with_a_header_of_other_names(tmp_path: Path) -> None:
    write(tmp_path / "log.csv", ["who,what,begun", *(f"{u},{i},{iso(t, 'T')}" for u, i, t in MIXED)])
    assert histories(opened(tmp_path, columns=["user", "item", "time"])) == ROWS


def ties(step: int) -> list[str]:
    """Users with nine items of one day each, every user's lines sorted by item (`step` 1), or as they were drawn (0)."""
    draw = np.random.default_rng(1)
    items = [draw.choice(200, 9, replace=False) for _ in range(100)]
    lines = [f"{u},{i},{SECOND + 86400 * u}" for u, own in enumerate(items) for i in (sorted(own) if step else own)]
    return ["user_id,item_id,timestamp", *lines]


def test_equal_times_sorted_by_item_do_not_give_the_next_item_away(tmp_path: Path) -> None:
    write(tmp_path / "log.csv", ties(1))
    data = opened(tmp_path)
    steps = np.diff(data.held_out["test"].inputs.histories.ids.astype(int).reshape(100, 9))
    assert 0.4 < (steps > 0).mean() < 0.6
    assert any("800 interactions" in note and "sorted by item" in note for note in data.notes)


def test_equal_times_in_no_order_of_items_keep_that_of_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "log.csv", ties(0))
    found = opened(tmp_path).held_out["test"].inputs.histories
    written = [int(line.split(",")[1]) for line in path.read_text().splitlines()[1:]]
    assert np.array_equal(np.unique(written, return_inverse=True)[1] + 1, found.ids)


def sessions(seed: int) -> list[tuple[int, int, int]]:
    """60 users with two sessions of nine of 40 items each, sorted by time: (user, item, time)."""
    draw = np.random.default_rng(seed)
    begins = draw.integers(SECOND, SECOND + 300 * DAY, (60, 2))
    events = [(u, int(draw.integers(40)), int(begin) + 50 * n) for u, own in enumerate(begins) for begin in own for n in range(9)]
    return sorted(events, key=lambda event: event[2])


def test_users_are_told_by_their_sessions(tmp_path: Path) -> None:
    write(tmp_path / "log.csv", [f"{u},{i + 100},5,{t}" for u, i, t in sessions(1)])
    assert opened(tmp_path).notes[0].startswith("60 users, 40 items")
    write(tmp_path / "log.csv", [f"{i + 100},{u},5,{t}" for u, i, t in sessions(1)])
    message = refused(opened, tmp_path)
    assert "field 2 may be the user: its events come in sessions" in message and "data.columns=[item,user,rating,time]" in message
    assert opened(tmp_path, columns=["item", "user", "rating", "time"]).notes[0].startswith("60 users, 40 items")
    assert opened(tmp_path, columns=["user", "item", "rating", "time"]).notes[0].startswith("40 users, 60 items")


@pytest.mark.parametrize("header", [["user_id,item_id"], []])
def test_a_log_without_times_that_stands_item_by_item_has_no_order(tmp_path: Path, header: list[str]) -> None:
    events = sorted(sessions(2), key=lambda event: event[1] * 7 % 40)
    write(tmp_path / "log.csv", [*header, *(f"{u},{i + 100}" for u, i, _ in events)])
    message = refused(opened, tmp_path)
    assert "stand item by item: the order of events is lost" in message and ("data.columns=[item,user]" in message) == (not header)
    assert opened(tmp_path, columns=["user", "item"]).notes[0].startswith("60 users, 40 items")


def test_an_id_that_a_float_has_rounded_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "log.csv", ["user_id,item_id", *(f"{u},1.234567890123{i}e+18" for u, i in EVENTS)])
    assert "log.csv:2: the item is a float" in refused(opened, tmp_path)


@pytest.mark.parametrize("way", ["item by item", "as words"])
def test_equal_times_in_any_order_of_items_do_not_give_the_next_item_away(tmp_path: Path, way: str) -> None:
    """A file that goes item by item, in no order of ids; and users' lines sorted as text sorts them, 10 before 9."""
    draw = np.random.default_rng(1)
    place = draw.permutation(200)
    key = {"item by item": lambda line: place[line[1]], "as words": lambda line: (line[0], str(line[1]))}[way]
    items = [draw.choice(200 if way == "item by item" else 25, 9, replace=False) for _ in range(100)]
    lines = sorted(((u, int(i), SECOND + 86400 * u) for u, own in enumerate(items) for i in own), key=key)
    write(tmp_path / "log.csv", ["user_id,item_id,timestamp", *(",".join(map(str, line)) for line in lines)])
    data = opened(tmp_path)
    assert any("sorted by item" in note for note in data.notes), data.notes
    ids = data.held_out["test"].inputs.histories.ids.astype(int).reshape(100, 9)
    rank = np.array([0, *(place if way == "item by item" else np.argsort(np.argsort([str(i) for i in range(25)])))])
    assert 0.4 < (np.diff(rank[ids], axis=1) > 0).mean() < 0.6


def test_a_log_in_any_order_of_lines_is_the_same_log(tmp_path: Path) -> None:
    draw = np.random.default_rng(2)
    lines = [f"{u},{draw.integers(30)},{SECOND + 60 * t}" for u in range(40) for t in draw.permutation(1000)[:8]]
    rising = sorted(lines, key=lambda line: line.split(",")[2])
    histories = []
    for name, own in {"rising": rising, "shuffled": draw.permutation(lines), "falling": rising[::-1]}.items():
        (tmp_path / name).mkdir()
        write(tmp_path / name / "log.csv", ["user_id,item_id,timestamp", *own])
        histories.append(opened(tmp_path / name).held_out["test"].inputs.histories)
    for other in histories[1:]:
        assert all(np.array_equal(getattr(other, name), getattr(histories[0], name)) for name in ("ids", "first", "gaps", "instants"))


def test_users_of_one_event_and_items_that_train_never_saw_are_said_and_ranked(tmp_path: Path) -> None:
    """User 3 has one event. Item 9 is a test item alone, item 8 a validation item alone: both stay candidates of everybody."""
    users = {0: [1, 2, 3, 4], 1: [2, 3, 8, 1], 2: [4, 1, 2, 9], 3: [5], 4: [5, 6, 7, 1, 2]}
    lines = [f"{u},{i},{SECOND + n}" for u, own in users.items() for n, i in enumerate(own)]
    write(tmp_path / "log.csv", ["user_id,item_id,timestamp", *lines])
    data = opened(tmp_path)
    assert "1 of them have one interaction, which no item comes before or after: nothing is learnt from it" in data.notes
    (said,) = [note for note in data.notes if "in no train part" in note]
    assert said.startswith("2 of 9 items are in no train part. They are the test item of 1 of 4 users and the validation item of 1")
    held_out = data.held_out["test"]
    assert held_out.users.tolist() == [0, 1, 2, 4] and held_out.target(np.arange(4)).tolist() == [4, 1, 9, 2] and held_out.items == 9
    assert data.splits["train"].rows == 4 and {8, 9} <= set(held_out.sampled(np.array([0]), 5)[0].tolist()) | set(users[0])
