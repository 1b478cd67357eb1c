"""What TorchRec's dry run plans for: read as a model's tables, planned and priced without its code, and every bad file in one line.

`docs/dry_run.json` was written by TorchRec 1.9.0 with the lines of docs/torchrec.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import run
from recsys_lab.__main__ import main
from recsys_lab.errors import UserError
from recsys_lab.tables.table_file import read_table_file
from recsys_lab.tables.torchrec_dry_run import batch_of_request

FILE = Path(__file__).parents[2] / "docs" / "dry_run.json"
CSV = "name,rows,dim,mean_ids,pooling,table\n" + "\n".join(
    [
        "clicked,10000000,64,42.5,mean,item",
        "bought,10000000,64,3,mean,item",
        *(f"{name},5000000,64,1,sum,{name}" for name in ("query", "shop", "user")),
    ]
)


def test_the_lines_are_those_of_a_csv_with_the_same_tables(tmp_path: Path) -> None:
    (tmp_path / "tables.csv").write_text(CSV)
    assert read_table_file(str(FILE)) == read_table_file(str(tmp_path / "tables.csv"))
    assert batch_of_request(str(FILE)) == (1024, 64) and batch_of_request(str(tmp_path / "tables.csv")) is None


@pytest.mark.parametrize("mode", ["plan", "simulate"])
def test_run_py_plans_and_prices_it_with_the_batch_of_the_request(tmp_path: Path, mode: str) -> None:
    (tmp_path / "tables.csv").write_text(CSV)
    words = [f"mode={mode}", "model=tables", "cluster=h100x64", "sharder=torchrec_row_wise", "logger=none"]
    given = {"json": [f"model.file={FILE}"], "csv": [f"model.file={tmp_path / 'tables.csv'}", "simulate.batch_size=1024"]}
    records = {}
    for name, more in given.items():
        assert run.main([*words, *more, f"hydra.run.dir={tmp_path / name}"]) == 0
        record = json.loads((tmp_path / name / "result.json").read_text())
        records[name] = record["plan"], record["simulated"]
    assert records["json"] == records["csv"]


def test_decide_takes_the_batch_of_the_request(capsys: pytest.CaptureFixture) -> None:
    words = ["clusters=h100x16:2,h100x64:2", "sharders=torchrec_row_wise", "precisions=fp32", "optimizers=adam", "profiles=torchrec"]
    assert main(["decide", "model=tables", f"model.file={FILE}", *words, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert {row["cluster"]: row["batch_per_rank"] for row in rows} == {"h100x16": 4096, "h100x64": 1024}  # 65,536 samples in all
    assert main(["decide", "model=tables", f"model.file={FILE}", *words, "batch=32768", "--json"]) == 0
    assert {row["batch"] for row in json.loads(capsys.readouterr().out)["rows"]} == {32768}


def test_one_pooling_factor_holds_for_each_feature(tmp_path: Path) -> None:
    data = json.loads(FILE.read_text())
    data["request"]["constraints"]["item"]["pooling_factors"] = [7.0]
    (tmp_path / "a.json").write_text(json.dumps(data))
    assert [line.mean_ids for line in read_table_file(str(tmp_path / "a.json"))] == [7.0, 7.0, 1.0, 1.0, 1.0]


def _set(*path: str | int, value: Any) -> Callable[[dict], None]:
    def change(data: Any) -> None:
        for key in path[:-1]:
            data = data[key]
        if value is None:
            del data[path[-1]]
        else:
            data[path[-1]] = value

    return change


ITEM = ("model_arch", "tables", 0)
FACTORS = ("request", "constraints", "item")


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (_set("torchrec", value="1.10.0"), ["of another version of TorchRec; given 1.10.0; allowed: 1.9.x", "docs/torchrec.md"]),
        (_set("torchrec", value=None), ["torchrec is of another shape"]),
        (_set("model_arch", value=None), ["model_arch is of another shape", "field required"]),
        (_set("request", "batch_size", value=-4), ["batch_size", "given -4"]),
        (_set(*ITEM, "num_embeddings", value=-5), ["table item, rows", "given -5"]),
        (_set(*ITEM, "embedding_dim", value="64"), ["embedding_dim is of another shape", "given 64"]),
        (_set(*ITEM, "embedding_dim", value=32), ["tables of several dimensions", "model=tables_concat"]),
        (_set(*ITEM, "pooling", value=None), ["table item: no pooled table", "allowed: SUM, MEAN", "model=hstu"]),
        (_set(*ITEM, "data_type", value="INT8"), ["table item: no weights that are trained here", "allowed: FP32, FP16, BF16"]),
        (_set(*ITEM, "feature_names", value=[]), ["table item: a table without features"]),
        (_set(*ITEM, "feature_names", value=["clicked", "user"]), ["table user: a name stands twice", "given user"]),
        (_set("model_arch", "tables", value=[]), ["no number of tables", "given 0 lines"]),
        (_set(*FACTORS, "pooling_factors", value=[1.0, 2.0, 3.0]), ["another number of pooling factors", "given 3", "allowed: 2"]),
        (_set(*FACTORS, "pooling_factors", value=[1.0, 0.0]), ["table item, mean_ids", "more than 0"]),
        (_set(*FACTORS, "num_poolings", value=[1.0, 2.0]), ["a batch of its own for a feature", "num_poolings [1.0, 2.0]"]),
        (_set(*FACTORS, "batch_sizes", value=[1024, 512]), ["a batch of its own for a feature", "allowed: 1024"]),
    ],
)
def test_a_bad_file_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture, change: Callable, parts: list[str]) -> None:
    data = json.loads(FILE.read_text())
    change(data)
    (tmp_path / "a.json").write_text(json.dumps(data))
    assert main(["decide", "model=tables", f"model.file={tmp_path / 'a.json'}", "clusters=h100x64:2"]) == 2
    out, err = capsys.readouterr()
    assert not out and err.count("\n") == 1 and all(part in err for part in parts), err


def test_what_is_no_json_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("name,rows\n")
    with pytest.raises(UserError, match="not JSON"):
        read_table_file(str(tmp_path / "a.json"))
