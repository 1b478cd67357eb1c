"""The picture of the simulated iteration: its bars are as long as its steps."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from recsys_lab.report.page import write_page
from recsys_lab.report.timeline_picture import timeline_picture
from tests.record.fake_run import write_run

TRACE = {
    "traceEvents": [
        {"name": "thread_name", "ph": "M", "pid": 1, "tid": 1, "args": {"name": "compute (simulated)"}},
        {"name": "thread_name", "ph": "M", "pid": 1, "tid": 2, "args": {"name": "input distribution (simulated)"}},
        {"name": "thread_name", "ph": "M", "pid": 1, "tid": 5, "args": {"name": "dense gradients (simulated)"}},
        {"name": "ids", "ph": "X", "pid": 1, "tid": 2, "ts": 1000.0, "dur": 500.0, "args": {"phase": "input"}},
        {"name": "forward", "ph": "X", "pid": 1, "tid": 1, "ts": 1500.0, "dur": 1500.0, "args": {"phase": "forward"}},
        {"name": "nothing", "ph": "X", "pid": 1, "tid": 1, "ts": 3000.0, "dur": 0.0, "args": {"phase": "backward"}},
        {"name": "other rank", "ph": "X", "pid": 2, "tid": 1, "ts": 0.0, "dur": 9000.0, "args": {"phase": "forward"}},
    ]
}


def test_a_bar_is_as_long_as_its_step_and_stands_where_it_begins(tmp_path: Path) -> None:
    picture = timeline_picture(TRACE)
    assert picture is not None
    bars = {r.find("title").text: r for r in ElementTree.fromstring(picture).iter("rect") if r.find("title") is not None}
    assert set(bars) == {"ids: 0.500 ms", "forward: 1.500 ms"}
    first, second = (bars[name] for name in ("ids: 0.500 ms", "forward: 1.500 ms"))
    assert float(second.get("width")) == pytest.approx(3 * float(first.get("width")), rel=1e-3)
    assert float(second.get("x")) == pytest.approx(float(first.get("x")) + float(first.get("width")), abs=0.02)
    assert "dense gradients" not in picture  # an empty line
    folder = write_run(tmp_path / "run")
    (folder / "trace.json").write_text(json.dumps(TRACE))
    assert "the slowest rank" in write_page(folder).read_text()
