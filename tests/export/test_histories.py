"""Raw histories become the rows of tables that training read: items, their categories, the time between them."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

import recsys_lab.export.served as served
from recsys_lab.data.dataset import OpenDataSet
from recsys_lab.data.interactions import open_interactions
from recsys_lab.export.inputs import RawInputs, raw_inputs
from recsys_lab.tables import Table
from tests.data.helpers import interactions_options


@pytest.fixture
def log(tmp_path: Path) -> list[tuple[str, list[str], list[int]]]:
    """User, items and times of a log with categories, users in the order of their rows."""
    draw, users = random.Random(3), []
    for number in range(12):
        items = [f"i{draw.randrange(20):02d}" for _ in range(draw.randrange(3, 12))]
        times = np.cumsum([draw.choice([0, 1, 5, 70, 9000]) for _ in items]).tolist()
        users.append((f"u{number:02d}", items, [10**9 + time for time in times]))
    lines = [f"{user},{item},{time}" for user, items, times in users for item, time in zip(items, times)]
    (tmp_path / "log.csv").write_text("\n".join(["user_id,item_id,timestamp", *lines]) + "\n")
    (tmp_path / "categories.json").write_text(json.dumps({f"i{n:02d}": [f"c{n % 4}"] for n in range(20)}))
    return users


def exported_inputs(data: OpenDataSet, folder: Path) -> RawInputs:
    """What an export of a model of the next item reads of `data`, its words in `folder`/words.safetensors."""
    assert data.keep is not None
    data.keep(folder / "vocabulary")
    read = {f.name: Table(f.table_name, f.rows, 4, (f.name,), f.pooling) for f in data.features if f.name not in ("positive", "negative")}
    inputs = raw_inputs(folder / "vocabulary", read, 0)
    inputs.write_words(folder / "words.safetensors")
    return inputs


@pytest.mark.parametrize(("objective", "pooling"), [("next_item", "none"), ("click", "sum")])
def test_a_history_has_the_rows_of_the_test_split(
    objective: Any, pooling: Any, log: list[tuple[str, list[str], list[int]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(served.__file__).parent))
    serve = __import__("serve")
    sys.modules.pop("serve")
    data = open_interactions(
        root=str(tmp_path),
        file="log.csv",
        format=None,
        columns=None,
        on_bad_line="fail",
        category="categories.json",
        time=True,
        event_times=False,
        objective=objective,
        pooling=pooling,
        max_length=5,
        loss="binary",
        negatives=None,
        passes=1,
        seed_of_negatives=1,
        cache=str(tmp_path / "cache"),
    )
    assert data.item_names is not None
    inputs = exported_inputs(data, tmp_path)
    model = object.__new__(serve.Model)
    with safe_open(tmp_path / "words.safetensors", "pt") as file:
        model.words, model.categories = {"item": serve.Words(file, "item")}, file.get_tensor("categories").tolist()
    model.history = inputs.history
    split, names = data.splits["test"], data.item_names()
    for row in range(split.rows):
        rows = split.read(np.array([row]))
        expected = dict(zip((f.name for f in data.features), np.split(rows.ids, np.cumsum(rows.lengths[:, 0])[:-1])))
        _, items, times = log[row if objective == "next_item" else row // 2]
        raw: dict[str, Any] = {"item": items[:-1], "time": times[:-1]}
        if objective == "click":
            raw["candidate"] = names[int(expected["candidate"][0]) - 1]
        for name, feature in inputs.features.items():
            assert model.ids(raw, feature) == expected[name].tolist(), (row, name)
        text = {"item": " ".join(raw["item"]), "time": " ".join(map(str, raw["time"]))}
        assert model.ids(raw | text, inputs.features["time"]) == expected["time"].tolist()
    with pytest.raises(ValueError, match="a time is needed"):
        model.ids(raw | {"time": times}, inputs.features["time"])


def test_side_columns_have_the_rows_of_the_test_split(
    log: list[tuple[str, list[str], list[int]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(served.__file__).parent))
    serve = __import__("serve")
    sys.modules.pop("serve")
    draw, cells = random.Random(4), {}
    lines = ["user_id,item_id,timestamp,tags,price"]
    for user, items, times in log:
        cells[user] = [(draw.choice(["", "a", "a|b", "c|NA|a", f"rare {user}", "NA"]), f"{draw.gauss(3, 2):.2f}") for _ in items]
        lines += [f"{user},{item},{time},{','.join(own)}" for item, time, own in zip(items, times, cells[user])]
    (tmp_path / "log.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "films.tsv").write_text("\n".join(["item_id\tgenre", *(f"i{n:02d}\tg{n % 4};g{n % 3}" for n in range(18))]) + "\n")
    (tmp_path / "people.csv").write_text("\n".join(["user_id,age", *(f"u{n:02d},{n % 5}.0" for n in range(9))]) + "\n")
    data = open_interactions(
        **interactions_options(
            tmp_path,
            file="log.csv",
            side=["tags", "price", "genre", "age"],
            lists={"tags": "|", "genre": ";"},
            items_file="films.tsv",
            users_file="people.csv",
            max_length=5,
        )
    )
    inputs = exported_inputs(data, tmp_path)
    model = object.__new__(serve.Model)
    with safe_open(tmp_path / "words.safetensors", "pt") as file:
        model.words = {name: serve.Words(file, name) for name in inputs.words}
        model.of_items = {"side_genre": (file.get_tensor("side_genre.of_items"), file.get_tensor("side_genre.item_ends"))}
    model.history, split = inputs.history, data.splits["test"]
    for row in range(split.rows):
        rows = split.read(np.array([row]))
        expected = dict(zip((f.name for f in data.features), np.split(rows.ids, np.cumsum(rows.lengths[:, 0])[:-1])))
        user, items, _ = log[row]
        tags, prices = zip(*cells[user][:-1])
        raw = {"item": items[:-1], "tags": list(tags), "price": list(prices), "age": int(user[1:]) % 5 if int(user[1:]) < 9 else None}
        for name, feature in inputs.features.items():
            if name != "item":
                found = model.cells(name, raw, feature)
                assert [i for cell in found for i in cell] == expected[name].tolist(), (row, name)
                if rows.events is not None and name in rows.events.counts:
                    assert [len(cell) for cell in found] == rows.events.counts[name].tolist()
