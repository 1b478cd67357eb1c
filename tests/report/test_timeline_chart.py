"""The chart of the simulated iteration: its bars are as long as its steps, and steps have what bounds them."""

from __future__ import annotations

import math

from recsys_lab.decide.charts import tornado
from recsys_lab.decide.rows import Change
from recsys_lab.report.charts import LONG_NOTE, limit_of
from recsys_lab.report.timeline_chart import timeline_charts
from tests.report.drawn import tips, words

INPUT = {"phase": "input", "bytes per rank (max)": 2e6, "group": "0-63", "bound by": "links between hosts"}
TRACE = {
    "traceEvents": [
        {"name": "thread_name", "ph": "M", "pid": 1, "tid": 1, "args": {"name": "compute (simulated)"}},
        {"name": "thread_name", "ph": "M", "pid": 1, "tid": 2, "args": {"name": "input distribution (simulated)"}},
        {"name": "thread_name", "ph": "M", "pid": 1, "tid": 5, "args": {"name": "dense gradients (simulated)"}},
        {"name": "row_wise.ids<b>", "ph": "X", "pid": 1, "tid": 2, "ts": 1000.0, "dur": 500.0, "args": INPUT},
        {
            "name": "forward",
            "ph": "X",
            "pid": 1,
            "tid": 1,
            "ts": 1500.0,
            "dur": 1500.0,
            "args": {"phase": "forward", "bound by": "arithmetic"},
        },
        {"name": "nothing", "ph": "X", "pid": 1, "tid": 1, "ts": 3000.0, "dur": 0.0, "args": {"phase": "backward"}},
        {"name": "other rank", "ph": "X", "pid": 2, "tid": 1, "ts": 0.0, "dur": 9000.0, "args": {"phase": "forward"}},
    ]
}


def test_a_step_stands_where_it_begins_and_hovering_says_its_figures() -> None:
    timeline, _ = timeline_charts(TRACE)
    assert timeline.title == "simulated: the slowest rank, 2.000 ms"
    assert tips(timeline) == [
        "row_wise.ids<b>\n0.500 ms, from 0.000 to 0.500\n2.0 MB of the rank with most\ngroup: 0-63\nbound by: links between hosts",
        "forward\n1.500 ms, from 0.500 to 2.000\nbound by: arithmetic",
    ]
    assert {"compute", "input", "forward"} <= set(words(timeline)) and "dense gradients" not in words(timeline)  # an empty line


HOST = [
    {"name": "thread_name", "ph": "M", "pid": 1, "tid": 0, "args": {"name": "the host's launches (simulated)"}},
    {"name": "launch x", "ph": "X", "pid": 1, "tid": 0, "ts": 0.0, "dur": 7600.0, "args": {"phase": "host launch", "kernels": 9}},
]


def test_the_host_is_a_row_of_the_timeline_and_of_what_is_waited_for() -> None:
    facts = {"origin": "simulated", "waited_ms": {"host_launch": 6.9, "forward": 0.7}}
    timeline, bounds = timeline_charts({"otherData": facts, "traceEvents": [*TRACE["traceEvents"], *HOST]})
    assert timeline.title == "simulated: the slowest rank, 7.600 ms" and "runs ahead" in timeline.note
    assert "launch x\n7.600 ms, from 0.000 to 7.600\nkernels: 9" in tips(timeline) and "host launch" in words(timeline)
    assert "host launches and overhead: 7.600 ms, of which the iteration waits for 6.900" in tips(bounds)
    assert {"host launches and overhead, 6.90 ms", "arithmetic, 0.70 ms", "hidden"} <= set(words(bounds))


def test_what_is_hidden_is_drawn_as_hidden() -> None:
    """Nobody waits for the links: they stand in no sum, and the step that uses them has no coloured part."""
    facts = {"waited_ms": {"forward": 1.5}}
    _, bounds = timeline_charts({"otherData": facts, "traceEvents": TRACE["traceEvents"]})
    assert [said.split("\n")[0] for said in tips(bounds)] == ["forward", "row_wise.ids<b>"]
    assert tips(bounds)[1].endswith("hidden: 0.500 ms") and "hidden" not in tips(bounds)[0]
    assert not [word for word in words(bounds) if word.startswith("links between hosts")] and "arithmetic, 1.50 ms" in words(bounds)


def test_one_long_bar_does_not_squash_the_others() -> None:
    assert limit_of([70.0, 68.0, 1.0, -0.5, 0.0]) == 2.0 and limit_of([3.0, 1.0, -2.0]) == limit_of([5.0]) == limit_of([]) == math.inf
    assert limit_of([50.0, 0.0, 0.0]) == math.inf  # beside it there is nothing to be seen
    changes = [Change(name, True, 1.0, 1.0, change, change) for name, change in (("graphs", -0.7), ("batch", -0.04), ("adam", 0.05))]
    (chart,) = tornado(changes, "the row")
    assert (
        [word for word in words(chart) if "-70 %" in word] and chart.note == LONG_NOTE and "graphs: -70.0 % time a sample" in tips(chart)[0]
    )
    (even,) = tornado(changes[1:], "the row")
    assert not even.note and not [word for word in words(even) if word.endswith(" %")]


def test_the_time_before_the_first_step_is_part_of_the_iteration() -> None:
    timeline, _ = timeline_charts({"otherData": {"origin": "simulated"}, **TRACE})
    assert timeline.title == "simulated: the slowest rank, 3.000 ms" and "from 1.000 to 1.500" in tips(timeline)[0]


def test_the_longest_steps_come_first_and_say_what_bounds_them() -> None:
    _, bounds = timeline_charts(TRACE)
    assert [said.split("\n")[0] for said in tips(bounds)] == ["forward", "row_wise.ids<b>"]
    shown = words(bounds)
    assert {"links between hosts, 0.50 ms", "arithmetic, 1.50 ms", "row_wise", "ids<b>", "forward"} <= set(shown)


def test_a_trace_of_an_earlier_version_has_a_timeline_alone() -> None:
    events = [{**event, "args": {k: v for k, v in event["args"].items() if k != "bound by"}} for event in TRACE["traceEvents"]]
    assert [chart.name for chart in timeline_charts({"traceEvents": events})] == ["timeline"]
    assert timeline_charts({"traceEvents": []}) == []
