"""Tables of clicks as JSON lines: read as the same rows in CSV."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from recsys_lab.errors import UserError
from tests.data.helpers import write
from tests.data.test_table_values import opened

ROWS = [{"label": i % 2, "user": f"u{i % 5}", "price": i / 4} for i in range(60)]


def contents(root: Path, **options) -> list:
    data = opened(root, **options)
    rows = data.splits["train"].read(np.arange(data.splits["train"].rows))
    return [data.features, rows.labels.tolist(), rows.dense.tolist(), rows.ids.tolist()]


@pytest.mark.parametrize("name", ["clicks.jsonl", "clicks.ndjson.gz", "part-00000.jsonl"])
def test_json_lines_are_a_table(tmp_path: Path, name: str) -> None:
    (tmp_path / "csv").mkdir()
    (tmp_path / "json").mkdir()
    write(tmp_path / "csv" / "clicks.csv", ["label,user,price", *(",".join(map(str, row.values())) for row in ROWS)])
    write(tmp_path / "json" / name, [json.dumps(row) for row in ROWS])
    assert contents(tmp_path / "json") == contents(tmp_path / "csv")


def test_a_key_that_a_row_lacks_is_a_missing_value(tmp_path: Path) -> None:
    (tmp_path / "csv").mkdir()
    (tmp_path / "json").mkdir()
    rows = [ROWS[1], *({"price": row["price"], "label": row["label"]} if i % 7 == 0 else row for i, row in enumerate(ROWS[1:]))]
    write(tmp_path / "csv" / "clicks.csv", ["label,user,price", *(f"{r['label']},{r.get('user', '')},{r['price']}" for r in rows)])
    write(tmp_path / "json" / "clicks.jsonl", [json.dumps(row) for row in rows])
    assert contents(tmp_path / "json") == contents(tmp_path / "csv")


def test_lists_and_objects_in_cells_are_said(tmp_path: Path) -> None:
    rows = [row | {"tags": [f"t{i % 3}", f"t{i % 4}"], "place": {"lat": i % 5}} for i, row in enumerate(ROWS)]
    write(tmp_path / "clicks.jsonl", [json.dumps(row) for row in rows])
    (note,) = [note for note in opened(tmp_path).notes if note.startswith("check these columns")]
    assert "tags has several values in a cell" in note and 'data.lists={tags: "json"}' in note
    assert "place has objects of JSON" in note and "data.drop=[place]" in note
    features = {feature.name: feature for feature in opened(tmp_path, drop=["place"], lists={"tags": "json"}).features}
    assert set(features) == {"user", "tags"} and features["tags"].mean_length == 2


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([json.dumps(row) for row in ROWS] + ["{'label': 1}"], ":61: not a JSON object"),
        ([str(row) for row in ROWS], ":1: objects of Python"),
        (["[", *(json.dumps(row) + "," for row in ROWS), "]"], "polars.read_json"),
        (["{", '"label": 1', "}"], "polars.read_json"),
    ],
)
def test_other_json_is_refused_with_what_writes_it(tmp_path: Path, lines: list[str], said: str) -> None:
    write(tmp_path / "clicks.jsonl", lines)
    with pytest.raises(UserError) as caught:
        opened(tmp_path)
    assert said in str(caught.value)


def test_words_in_braces_are_no_json(tmp_path: Path) -> None:
    write(tmp_path / "clicks.csv", ["{user},label", *(f"{{3F25-{i % 5}}},{i % 2}" for i in range(60))])
    assert opened(tmp_path).features[0].rows == 7
