"""Frappe: global ids become rows of each field's table; splits are found by name or given."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import yaml

from recsys_lab.data.frappe import open_frappe
from recsys_lab.data.measure import measure_access
from recsys_lab.data.sources import Splits
from tests.data.helpers import FRAPPE_HEADER, FRAPPE_LINES, frappe_options, write


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path / "train.csv", [FRAPPE_HEADER, *FRAPPE_LINES])
    write(tmp_path / "valid.csv.gz", [FRAPPE_HEADER, *FRAPPE_LINES[:2]], end="\r\n")
    return tmp_path


def test_ids_lose_their_offset(root: Path) -> None:
    data = open_frappe(**frappe_options(root))
    assert [(f.name, f.rows) for f in data.features] == [("user", 5), ("item", 10), ("city", 3)]
    assert data.dense_features == 0 and data.learnable and not data.best_auc and data.notes == ()
    rows = data.splits["train"].read(np.array([3, 0, 1]))
    assert rows.dense is None and rows.labels.tolist() == [1, 1, 0]
    assert rows.ids.reshape(3, 3).tolist() == [[2, 0, 4], [2, 0, 9], [0, 0, 2]]
    assert rows.ids.dtype == np.int64 and rows.lengths.tolist() == [[1, 1, 1]] * 3
    assert data.splits["validation"].rows == 2 and "test" not in data.splits


def test_access_is_measured_while_reading(root: Path) -> None:
    data = open_frappe(**frappe_options(root))
    assert data.access["city"].bucket_p == (0.5, 0.25) and data.access["city"].bucket_rows == (1, 2)
    assert data.access["city"].origin == "measured" and "4 samples of train.csv" in data.access["city"].detail
    again = measure_access(data)
    for name, table in data.access.tables.items():
        assert (again[name].bucket_rows, again[name].bucket_p) == (table.bucket_rows, table.bucket_p)
    assert data.row_counts()[0].tolist() == [1, 1, 1, 0, 1]


def test_a_further_file_is_the_test_split(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = write(tmp_path_factory.mktemp("elsewhere") / "kept_back.csv", [FRAPPE_HEADER, *FRAPPE_LINES[1:]])
    plain = open_frappe(**frappe_options(root))
    data = open_frappe(**frappe_options(root, splits=Splits(test=str(elsewhere))))
    assert data.splits["test"].rows == 3 and data.fingerprint != plain.fingerprint
    write(root / "test.csv.gz", [FRAPPE_HEADER, FRAPPE_LINES[0]])
    assert open_frappe(**frappe_options(root)).splits["test"].rows == 1
    assert open_frappe(**frappe_options(root, splits={"test": "valid.csv.gz"})).splits["test"].rows == 2


def test_the_fingerprint_is_of_content_not_of_place(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    for name in ("train.csv", "valid.csv.gz"):
        (other / name).write_bytes((root / name).read_bytes())
    one, two = open_frappe(**frappe_options(root)), open_frappe(**frappe_options(other))
    assert one.fingerprint == two.fingerprint
    write(other / "train.csv", [FRAPPE_HEADER, *FRAPPE_LINES[1:], FRAPPE_LINES[0]])
    assert open_frappe(**frappe_options(other)).fingerprint != one.fingerprint


def test_the_lowest_and_the_highest_id_of_each_field_are_good(tmp_path: Path) -> None:
    for name in ("train.csv", "valid.csv"):
        write(tmp_path / name, [FRAPPE_HEADER, "0,0,5,15", "00001,4,14,017"])
    rows = open_frappe(**frappe_options(tmp_path)).splits["train"].read(np.array([0, 1]))
    assert rows.labels.tolist() == [0, 1] and rows.ids.reshape(3, 2).tolist() == [[0, 4], [0, 9], [0, 2]]


@pytest.mark.skipif("RECSYS_LAB_DATA" not in os.environ, reason="set RECSYS_LAB_DATA to the folder that holds frappe")
def test_real_rows(tmp_path: Path) -> None:
    config = yaml.safe_load((Path(__file__).parents[2] / "conf" / "data" / "frappe.yaml").read_text())
    root = Path(os.environ["RECSYS_LAB_DATA"]) / "frappe"
    data = open_frappe(**frappe_options(root, cache=str(tmp_path), fields=config["fields"]))
    assert (data.splits["train"].rows, data.splits["validation"].rows) == (202_027, 57_722)
    positive = {name: int(split.read(np.arange(split.rows)).labels.sum()) for name, split in data.splits.items()}
    assert positive["train"] == 67_604 and positive["validation"] == 19_063
    assert sum(f.rows for f in data.features) == 5_382
