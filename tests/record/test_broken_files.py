"""A broken file in a run folder is one line that names it and says what to do: in `show`, in `compare`, in the table of a sweep.

Every leaf of every JSON file is replaced by values of other types and taken away, one at a time: nothing may end in a traceback.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from recsys_lab.__main__ import main
from recsys_lab.base.files import read_json
from recsys_lab.errors import UserError
from recsys_lab.record.run_folder import read_run
from recsys_lab.report.page import page
from tests.record.fake_run import make_result, write_run

FILES = ("result.json", "plan.json", "plan_here.json", "environment.json", "trace.json", "reasons.json", "stores.json", "metrics.csv")
FILES += ("config.yaml",)
REASONS = {"told": {"sentences": ["why"], "columns": ["plan", "bytes"], "rows": [["this", "1"], ["that", "2"]]}, "reasons": {}}
POINT = {"memory_gb": 1.0, "cached_share": 0.1, "tables": 1, "iteration_ms": 9.0, "chosen": True}
WHOLE = {"memory_gb": 2.0, "cached_share": 1.0, "tables": 0, "iteration_ms": 8.0, "chosen": False}
STORES = {"cluster": "h100x64", "profile": "torchrec", "points": [POINT, WHOLE]}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = write_run(tmp_path / "run", make_result())
    if not (folder / "reasons.json").exists():
        (folder / "reasons.json").write_text(json.dumps(REASONS))
    (folder / "stores.json").write_text(json.dumps(STORES))
    assert {name for name in FILES if not (folder / name).exists()} <= {"trace.json"}
    if not (folder / "trace.json").exists():
        events = [
            {"name": "thread_name", "ph": "M", "pid": 1, "tid": 1, "args": {"name": "compute"}},
            {"name": "forward", "ph": "X", "pid": 1, "tid": 1, "ts": 0.0, "dur": 5.0, "args": {"phase": "forward"}},
        ]
        (folder / "trace.json").write_text(json.dumps({"traceEvents": events}))
    return folder


def ended(capsys: pytest.CaptureFixture, *words: object) -> tuple[int, str]:
    """The exit code of a command and what it said on stderr: nothing, or one line with code 2."""
    code = main([str(word) for word in words])
    output = capsys.readouterr().err
    assert (code, output) == (0, "") or code == 2 and output.startswith("error: ") and output.count("\n") == 1, (words, code, output)
    return code, output


BINARY = bytes(range(256)) * 8
CONTENTS: dict[str, bytes] = {
    "nothing": b"",
    "binary": BINARY,
    "half": b"",  # of what is there
    "null": b"null",
    "a list": b"[]",
    "a number": b"3",
    "a text": b'"words"',
    "an empty object": b"{}",
    "too deep": b"[" * 5_000,
    "too deep an object": b'{"a":' * 5_000,
    "a number of too many digits": b'{"schema": ' + b"1" * 5000 + b"}",
    "NaN": b'{"schema": NaN}',
    "another file": b"step,loss\n1,2\n",
    "a page": b"<html>not found</html>",
    "UTF-16": "{}".encode("utf-16"),
}
#: What is as good as no file, or says nothing that is wrong.
HARMLESS = {("environment.json", "an empty object"), ("config.yaml", "NaN"), ("config.yaml", "half"), ("metrics.csv", "half")}


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("name", FILES)
def test_another_content_is_one_line(run: Path, name: str, content: str, capsys: pytest.CaptureFixture) -> None:
    whole = (run / name).read_bytes()
    (run / name).write_bytes(whole[: len(whole) // 2].rstrip(b"\n") if content == "half" else CONTENTS[content])
    for words in (("show", run), ("show", run, "--plan"), ("show", run, "--json"), ("compare", run, run), ("compare", run, run, "--json")):
        code, output = ended(capsys, *words)
        if (name, content) not in HARMLESS:
            assert code == 2 and name in output and ("; " in output), (words, output)


@pytest.mark.parametrize("name", FILES)
def test_what_is_no_file_is_one_line_and_never_waited_for(run: Path, name: str, capsys: pytest.CaptureFixture) -> None:
    for make in (lambda path: path.mkdir(), os.mkfifo, lambda path: path.symlink_to(path.name), lambda path: path.symlink_to("/dev/zero")):
        (run / name).rmdir() if (run / name).is_dir() else (run / name).unlink()
        make(run / name)
        code, output = ended(capsys, "show", run)
        assert code == 2 and name in output


def leaves(data: Any, place: tuple = ()) -> Iterator[tuple]:
    """The place of everything in `data`: objects and lists too; of a list the first and the last."""
    if place:
        yield place
    if isinstance(data, dict):
        for key, item in data.items():
            yield from leaves(item, (*place, key))
    elif isinstance(data, list) and data:
        for at in {0, len(data) - 1}:
            yield from leaves(data[at], (*place, at))


GONE = object()
OTHERS = (GONE, None, "words", "", -1, 0, 1.5, 1e308, 10**400, True, [], ["words"], [None], [[]], {}, {"a": None}, {"a": {"a": 1}})


def with_other(data: Any, place: tuple, value: Any) -> Any:
    copy_of_data = copy.deepcopy(data)
    inner = copy_of_data
    for step in place[:-1]:
        inner = inner[step]
    if value is GONE:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    return copy_of_data


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith((".json", ".yaml"))])
def test_any_value_in_place_of_any_other_is_shown_or_refused_in_one_line(
    run: Path, name: str, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = run / name
    text = path.read_text()
    data = yaml.safe_load(text) if name.endswith(".yaml") else json.loads(text)
    places = list(leaves(data))
    step = max(1, len(places) * len(OTHERS) // (15 if name.endswith(".yaml") else 30))  # enough of all pairs of a large file
    for number, (place, value) in enumerate((place, value) for place in places for value in OTHERS):
        if number % step:
            continue
        content = with_other(data, place, value)
        path.write_text(yaml.safe_dump(content) if name.endswith(".yaml") else json.dumps(content))
        for words in (
            (("show", run), ("compare", run, run, "--json")) if number % (2 * step) else (("show", run, "--plan"), ("compare", run, run))
        ):
            code, output = ended(capsys, *words)
            assert code == 0 or name in output, (place, value, output)
        try:
            page(read_run(run))
        except UserError as error:
            assert name in str(error)


METRICS = {
    "words for a number": ("10,0,640,zero" + "," * 10, ":2: train_loss is no figure; given 'zero'"),
    "no step": ("," * 13, ":2: step is no figure; given ''; allowed: a number;"),
    "NaN": ("10,0,640,nan" + "," * 10, ":2: train_loss is no figure; given 'nan'"),
    "infinity": ("10,0,640,inf" + "," * 10, ":2: train_loss is no figure"),
    "too few": ("10,0,640", ":2: more or fewer cells than columns; allowed: 14"),
    "too many": ("10" + "," * 20, ":2: more or fewer cells than columns"),
}


@pytest.mark.parametrize("case", METRICS)
def test_a_bad_row_of_metrics_is_named(run: Path, case: str, capsys: pytest.CaptureFixture) -> None:
    path, (row, message) = run / "metrics.csv", METRICS[case]
    header, *rows = path.read_text().splitlines()
    path.write_text("\n".join([header, row, *rows, ""]))
    assert f"metrics.csv{message}" in ended(capsys, "show", run)[1]


CONFIGS = {
    "nothing": ("", "the config is no mapping; given nothing"),
    "a comment": ("# nothing\n", "the config is no mapping; given nothing"),
    "a list": ("- a\n- b\n", "the config is no mapping; given a list"),
    "a text": ("words", "the config is no mapping; given a str"),
    "tabs": ("a:\n\t- b", "not YAML"),
    "an object of Python": ("a: !!python/object/apply:os.system [ls]", "not YAML"),
    "a date": ("a: {b: [2020-01-01]}", "a value that is not plain; given date"),
    "bytes": ("a: !!binary aGVsbG8=", "a value that is not plain; given bytes"),
    "an alias": ("a: &x [1]\nb: *x\n", "not YAML: an alias"),
    "an alias of itself": ("a: &x [*x]\n", "not YAML: an alias"),
    "a bomb": (
        "a: &a [x, x]\n" + "".join(f"{chr(98 + i)}: &{chr(98 + i)} [*{chr(97 + i)}, *{chr(97 + i)}]\n" for i in range(24)),
        "not YAML",
    ),
    "too deep": ("a: " + "[" * 5000, "not YAML"),
    "a cluster that is none": ("cluster: [1]", "cluster is of another shape"),
    "memory in words": (
        "cluster: {device: {memory_gb: much}}",
        "cluster.device.memory_gb is of another shape",
    ),
    "memory without end": ("cluster: {device: {memory_gb: .inf}}", "cluster.device.memory_gb is of another shape; given inf"),
}


@pytest.mark.parametrize("case", CONFIGS)
def test_a_bad_config_is_said(run: Path, case: str, capsys: pytest.CaptureFixture) -> None:
    text, message = CONFIGS[case]
    (run / "config.yaml").write_text(text)
    for words in (("show", run), ("compare", run, run)):
        assert f"config.yaml: {message}" in ended(capsys, *words)[1]


def test_a_study_without_its_table_is_one_line(run: Path, capsys: pytest.CaptureFixture) -> None:
    record = json.loads((run / "result.json").read_text())
    (run / "result.json").write_text(json.dumps(record | {"study": {"verdict": {}}}))
    assert "table.md: no such file" in ended(capsys, "show", run)[1]


@pytest.mark.parametrize("name", ["result.json", "config.yaml", ".hydra/overrides.yaml", "metrics.csv", "sweep.json"])
@pytest.mark.parametrize("content", ["nothing", "binary", "a list", "an empty object", "too deep", "a number of too many digits"])
def test_a_broken_job_of_a_sweep_leaves_the_others_their_table(
    tmp_path: Path, name: str, content: str, capsys: pytest.CaptureFixture
) -> None:
    sweep = tmp_path / "sweep"
    for job, model in enumerate(("dlrm", "dcn", "xlrm")):
        write_run(sweep / str(job), make_result(model=model), [f"model={model}", "seed=1"])
    assert ended(capsys, "ablation", sweep) == (0, "")
    path = sweep / name if name == "sweep.json" else sweep / "1" / name
    path.write_bytes(CONTENTS[content])
    (sweep / "ablation.csv").unlink()
    code, output = ended(capsys, "ablation", sweep)
    if name in ("result.json", "config.yaml", "sweep.json"):
        assert code == 2 and name in output and "; " in output, output
    if name in ("result.json", "config.yaml"):
        rows = (sweep / "ablation.csv").read_text().splitlines()
        assert "dlrm" in rows[1] and "completed" in rows[1] and f"1/{name}" in rows[2], rows
        assert f"1/{name}" in (sweep / "ablation.html").read_text()


def test_numbers_that_json_does_not_have_are_no_json(tmp_path: Path) -> None:
    for text in ("NaN", "[Infinity]", '{"a": -Infinity}'):
        (tmp_path / "x.json").write_text(text)
        with pytest.raises(UserError, match=r"x.json: not JSON: (NaN|-?Infinity) is no number"):
            read_json(tmp_path / "x.json")
