"""One test for each kind of file that was once read wrongly: the line of a newcomer, without further keys, and what it must give.

The files are written here. Where RECSYS_LAB_DATA has a folder odd_files, those in it must give the same.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from recsys_lab.data.dataset import OpenDataSet
from recsys_lab.data.table import open_table
from recsys_lab.errors import UserError
from recsys_lab.experiment import Experiment, of_words
from recsys_lab.planning import plan_for
from tests.data.helpers import write
from tests.data.test_table import options

ROWS = 600
GIVEN = Path(os.environ.get("RECSYS_LAB_DATA", "nowhere")) / "odd_files"
#: The label, the user, the item and the price of each row.
DRAW = np.random.default_rng(5)
CLICKS = [
    (int(label), f"u{user}", f"i{item}", 100 + int(price)) for label, user, item, price in DRAW.integers(0, [2, 37, 41, 800], (ROWS, 4))
]


@dataclass
class Lines:
    """The two lines of a newcomer, over a folder that each test fills anew."""

    root: Path
    log: Experiment
    table: Experiment

    def empty(self) -> Path:
        shutil.rmtree(self.root)
        self.root.mkdir()
        return self.root

    def planned(self, experiment: Experiment) -> OpenDataSet:
        """The data, once a plan for them was made, as by mode=plan."""
        data = experiment.open_data()
        experiment = experiment.with_default_hyperparameters(data)
        experiment.check(data)
        assert plan_for(experiment, data).plan.fingerprint
        return data


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Lines:
    root, cache = tmp_path_factory.mktemp("data"), tmp_path_factory.mktemp("cache")
    both = [f"data.root={root}", f"data.cache={cache}", "mode=plan", "logger=none", "sharder=torchrec_row_wise"]
    log = of_words(["data=interactions", "model=sequence", *both], "test")
    return Lines(root, log, of_words(["data=table", "data.label=click", *both], "test"))


def histories(data: OpenDataSet) -> list[list[str]]:
    """The items of each user, as the file writes them."""
    assert data.item_names is not None
    found, names = data.held_out["test"].inputs.histories, ["", *data.item_names()]
    return [[names[item] for item in found.ids[first:last]] for first, last in zip(found.first, found.first[1:])]


SESSIONS = [(1, 81, 500, "09"), (1, 31, 1000, "09"), (1, 32, 1500, "09"), (2, 81, 500, "10"), (2, 32, 900, "10"), (2, 31, 1200, "10")]
#: By name of the folder: its file, its lines, the histories, and the field that is the time.
LOGS: dict[str, tuple[str, list[str], list[list[str]] | None, str]] = {
    "min_yoochoose": (
        "clicks.dat",
        [f"{user},2014-04-07T{clock}Z,{item},0" for user, clock, item in (
            (1, "10:51:09.277", 501), (1, "10:54:09.868", 502), (1, "10:54:46.998", 501), (2, "11:00:00.100", 502),
            (2, "11:00:10.200", 501), (2, "11:00:20.300", 503), (1, "10:55:00.111", 503), (2, "11:00:30.400", 501),
        )],
        [["501", "502", "501", "503"], ["502", "501", "503", "501"]],
        "fields without names are taken for user, time, item, other",
    ),
    "min_event_time": (
        "log.csv",
        ["user_id,item_id,event_time", "1,10,1556559573", "1,11,1556550000", "1,12,1556555000", "1,13,1556569999",
         "2,11,1556559573", "2,10,1556550000", "2,13,1556555000"],
        [["11", "12", "10", "13"], ["10", "13", "11"]],
        "time: event_time",
    ),
    "min_semicolon": (
        "views.csv",
        ["sessionId;userId;itemId;timeframe;eventdate", *(f"{user};NA;{item};{ms};2016-05-{day}" for user, item, ms, day in SESSIONS)],
        [["81", "31", "32"], ["81", "32", "31"]],
        "taken for user: sessionId, item: itemId, time: timeframe",
    ),
    "min_iso": (
        "log.csv",
        ["user_id,item_id,timestamp", *(f"1,{10 + n},2019-05-07T08:16:0{7 + n}+00:00" for n in range(3))],
        [["10", "11", "12"]],
        "time: timestamp",
    ),
    "min_ns": (
        "log.csv",
        ["user_id,item_id,timestamp", *(f"{1 + n // 3},{10 + n % 3},15565595{73 + n % 3}141592653" for n in range(6))],
        [["10", "11", "12"], ["10", "11", "12"]],
        "time: timestamp",
    ),
    "quoted_log": (
        "ratings.csv",
        ['"User-ID","ISBN","Book-Rating"', *(f'"{user}","{(user * 7 + n * 31) % 60:09d}X","{n}"' for n in range(5) for user in range(200))],
        None,
        "taken for user: User-ID, item: ISBN",
    ),
    "sci_times": (
        "log.csv",
        ["user_id,item_id,timestamp", *(f"{n % 50},{n * 7 % 70},{1.5570e9 + n * 31 % 997 * 1000:.6e}" for n in range(400))],
        None,
        "time: timestamp",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LOGS)
def test_a_log_is_read_in_the_order_of_its_times(lines: Lines, name: str) -> None:
    file, content, expected, said = LOGS[name]
    write(lines.empty() / file, content)
    data = lines.planned(lines.log)
    assert said in " ".join(data.notes)
    assert expected is None or histories(data) == expected
    if name == "sci_times":
        _, rows = content[0], [line.split(",") for line in content[1:]]
        of_user = {u: [item for u_, item, t in sorted(rows, key=lambda row: float(row[2])) if u_ == u] for u, _, _ in rows}
        assert sorted(histories(data)) == sorted(of_user.values())


def test_a_log_too_short_to_train_on_is_planned_and_not_trained(lines: Lines) -> None:
    """It says what was read, and what is missing."""
    write(lines.empty() / "log.csv", LOGS["min_iso"][1])
    data = lines.planned(lines.log)
    assert data.notes[0] == "1 users, 3 items, 3 interactions (a line an interaction: user, item, time)"
    assert data.notes[-1].startswith("too few interactions to train on: nothing is in train, validation, test")
    words = [f"data.root={lines.root}", "data=interactions", "model=sequence", "sharder=torchrec_row_wise", "logger=none", "mode=train"]
    train = of_words(words, "test")
    with pytest.raises(UserError, match="the train split is empty; given 1 users, 3 items, .*time: timestamp.*; or mode=plan"):
        train.check(data)


def test_equal_times_sorted_by_item_give_nothing_away(lines: Lines) -> None:
    """The ten items after the last known one are a guess that hits as often as chance, 0.052."""
    draw = np.random.default_rng(11)
    events = [(u, i, 1387670400 + 86400 * (u % 300)) for u in range(500) for i in sorted(draw.choice(200, 9, replace=False))]
    write(lines.empty() / "ratings.csv", ["user_id,item_id,rating,timestamp", *(f"{u},{i},5.0,{t}" for u, i, t in events)])
    data = lines.planned(lines.log)
    assert any("stand sorted by item, which gives the next item away" in note for note in data.notes)
    steps = np.array([int(items[-1]) - int(items[-2]) for items in histories(data)])
    assert 0.02 < ((steps > 0) & (steps <= 10)).mean() < 0.09


def table(root: Path, name: str, columns: list[str], rows: list[list], separator: str = ",") -> None:
    quoted = [[f'"{cell}"' if separator in str(cell) else str(cell) for cell in row] for row in rows]
    write(root / name, [separator.join(columns), *(separator.join(row) for row in quoted)])


def prices(root: Path, form: Callable[[int], str], separator: str = ",") -> None:
    rows = [[label, user, item, form(price)] for label, user, item, price in CLICKS]
    table(root, "clicks.csv", ["click", "user", "item", "price"], rows, separator)


PLAIN = ["click", "user", "item", "price"]
WRITTEN = {"thousands": ".", "thousands_all": ".", "euro": ",", "currency": "."}


def write_numbers(root: Path, name: str) -> None:
    form = {
        "thousands": lambda cents: f"{cents * 10:,}" if cents % 3 else f"{cents}",
        "thousands_all": lambda cents: f"{cents * 10:,}",
        "euro": lambda cents: f"{cents * 10:,},00".replace(",", ".", 1),
        "currency": lambda cents: f"${cents / 100:.2f}",
    }[name]
    prices(root, form, ";" if name == "euro" else ",")


@pytest.mark.parametrize("name", WRITTEN)
def test_numbers_that_are_written_out_are_noticed_and_read_by_one_key(lines: Lines, name: str) -> None:
    write_numbers(lines.empty(), name)
    note = lines.planned(lines.table).notes[-1]
    assert "price looks like numbers with " in note and f"""'data.decimal={{price: "{WRITTEN[name]}"}}'""" in note


@pytest.mark.parametrize("name", ["thousands", "thousands_all"])
def test_three_digits_after_every_comma_have_two_readings(lines: Lines, name: str) -> None:
    write_numbers(lines.empty(), name)
    with pytest.raises(UserError, match="data.decimal=.* where .,..0 is ...0, 'data.decimal=.* where it is .[.]..0"):
        open_table(**options(lines.root, label="click", split_column=None, dense=["price"]))


LISTS = {"mv_caret": "^", "mv_comma": ",", "mv_semi": ";", "mv_blank": " ", "mv_json": "json"}


@pytest.mark.parametrize("name", LISTS)
def test_lists_in_cells_are_noticed_with_the_key_that_reads_them(lines: Lines, name: str) -> None:
    separator = LISTS[name]
    own = [DRAW.integers(0, 30, 1 + i % 5).tolist() for i in range(ROWS)]
    cells = [json.dumps(one) if separator == "json" else separator.join(map(str, one)) for one in own]
    table(lines.empty(), "clicks.csv", [*PLAIN, "hist"], [[*click, cell] for click, cell in zip(CLICKS, cells)])
    note = lines.planned(lines.table).notes[-1]
    assert "hist has several values in a cell" in note and f"""'data.lists={{hist: "{separator}"}}'""" in note


@pytest.mark.parametrize("name", ["spark", "parts", "hive"])
def test_a_folder_of_parts_is_one_table(lines: Lines, name: str) -> None:
    folder = lines.empty() / {"spark": "clicks.parquet"}.get(name, "")
    whole = pl.DataFrame(CLICKS, PLAIN, orient="row")
    for number in range(3):
        part = folder / (f"day=2024-01-0{number + 1}" if name == "hive" else "")
        part.mkdir(parents=True, exist_ok=True)
        whole[number * ROWS // 3 : (number + 1) * ROWS // 3].write_parquet(part / f"part-0000{number}-abc.snappy.parquet")
    (folder / "_SUCCESS").touch()
    data = lines.planned(lines.table)
    assert sum(split.rows for split in data.splits.values()) == ROWS
    assert [feature.name for feature in data.features] == ["user", "item", "price"] + ["day"] * (name == "hive")


@pytest.mark.parametrize("name", ["nolabel", "zerolabel"])
def test_a_test_file_without_labels_is_passed_over(lines: Lines, name: str) -> None:
    table(lines.empty(), "train.csv", PLAIN, [list(click) for click in CLICKS])
    later = [["0", *click[1:]] if name == "zerolabel" else list(click[1:]) for click in CLICKS[:100]]
    table(lines.root, "test.csv", PLAIN if name == "zerolabel" else PLAIN[1:], later)
    data = lines.planned(lines.table)
    note = next(note for note in data.notes if "it is for predictions and passed over" in note)
    assert "mode=predict" in note and "train: train.csv (else: data.splits.train=FILE)" in note
    assert sum(split.rows for split in data.splits.values()) == ROWS
    assert any(note.startswith("held out of train.csv: 10% validation, 10% test") for note in data.notes)


def test_latin_1_has_the_line_that_converts_it(lines: Lines) -> None:
    table(lines.empty(), "clicks.csv", PLAIN, [list(click) for click in CLICKS])
    whole = (lines.root / "clicks.csv").read_text().replace("i5", "Café")
    (lines.root / "clicks.csv").write_bytes(whole.encode("latin-1"))
    with pytest.raises(UserError, match="iconv -f WINDOWS-1252 -t UTF-8"):
        lines.planned(lines.table)
    (lines.root / "clicks.csv").write_bytes((lines.root / "clicks.csv").read_bytes().decode("cp1252").encode())
    assert lines.planned(lines.table).features


def test_a_table_sorted_by_its_label_has_the_key_that_divides_it(lines: Lines) -> None:
    table(lines.empty(), "clicks.csv", PLAIN, [list(click) for click in sorted(CLICKS, reverse=True)])
    with pytest.raises(UserError, match="the last rows have one label.*data.held_out=random"):
        lines.planned(lines.table)


@pytest.mark.skipif(not GIVEN.is_dir(), reason="set RECSYS_LAB_DATA to the folder that holds odd_files")
@pytest.mark.parametrize("name", sorted(path.name for path in GIVEN.iterdir() if path.is_dir()) if GIVEN.is_dir() else [])
def test_the_given_files_give_the_same(lines: Lines, name: str) -> None:
    shutil.copytree(GIVEN / name, lines.root, dirs_exist_ok=True) if lines.empty() else None
    if name in LOGS:
        data = lines.planned(lines.log)
        assert LOGS[name][3] in " ".join(data.notes)
        assert LOGS[name][2] is None or histories(data) == LOGS[name][2]
    elif name in ("latin1", "sorted_label"):
        with pytest.raises(UserError, match="iconv -f" if name == "latin1" else "data.held_out=random"):
            lines.planned(lines.table)
    else:
        data = lines.planned(lines.table)
        rows, notes = sum(split.rows for split in data.splits.values()), " ".join(data.notes)
        assert rows == {"spark": 1800, "parts": 1800, "hive": 1200}.get(name, 2000)
        said = {"nolabel": "for predictions", "zerolabel": "for predictions", **dict.fromkeys(WRITTEN, "data.decimal")}
        assert said.get(name, "data.lists" if name in LISTS else "one table") in notes
