"""The chart of the simulated iteration: its bars are as long as its steps, and steps have what bounds them."""

from __future__ import annotations

from recsys_lab.report.timeline_chart import timeline_charts

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


def test_a_bar_is_as_long_as_its_step_and_stands_where_it_begins() -> None:
    timeline, _ = timeline_charts(TRACE)
    assert timeline.title == "simulated: the slowest rank, 2.000 ms"
    assert {trace["name"]: (trace["base"], trace["x"]) for trace in timeline.data} == {"input": ([0.0], [0.5]), "forward": ([0.5], [1.5])}
    assert timeline.data[0]["customdata"] == [
        "<b>row_wise.ids&lt;b&gt;</b><br>0.500 ms, from 0.000 to 0.500<br>2.0 MB of the rank with most<br>group: 0-63"
        "<br>bound by: links between hosts"
    ]
    assert "dense gradients" not in str(timeline.layout)  # an empty line


def test_the_host_is_a_row_of_the_timeline_and_bounds_nothing() -> None:
    host = [
        {"name": "thread_name", "ph": "M", "pid": 1, "tid": 0, "args": {"name": "the host's launches (simulated)"}},
        {"name": "launch x", "ph": "X", "pid": 1, "tid": 0, "ts": 0.0, "dur": 7600.0, "args": {"phase": "host launch", "kernels": 9}},
    ]
    timeline, bounds = timeline_charts({"traceEvents": [*TRACE["traceEvents"], *host]})
    assert timeline.title == "simulated: the slowest rank, 7.600 ms" and "runs ahead" in timeline.note
    own = next(trace for trace in timeline.data if trace["name"] == "host launch")
    assert own["x"] == [7.6] and own["customdata"] == ["<b>launch x</b><br>7.600 ms, from 0.000 to 7.600<br>kernels: 9"]
    assert "launch x" not in str(bounds.data)


def test_the_time_before_the_first_step_is_part_of_the_iteration() -> None:
    timeline, _ = timeline_charts({"otherData": {"origin": "simulated"}, **TRACE})
    assert timeline.title == "simulated: the slowest rank, 3.000 ms" and timeline.data[0]["base"] == [1.0]


def test_the_longest_steps_come_first_and_say_what_bounds_them() -> None:
    _, bounds = timeline_charts(TRACE)
    assert [name.rstrip("\u200b") for name in bounds.layout["yaxis"]["categoryarray"]] == ["row_wise<br>ids&lt;b&gt;", "forward"]
    assert {trace["name"]: trace["x"] for trace in bounds.data} == {"links between hosts, 0.50 ms": [0.5], "arithmetic, 1.50 ms": [1.5]}


def test_a_trace_of_an_earlier_version_has_a_timeline_alone() -> None:
    events = [{**event, "args": {k: v for k, v in event["args"].items() if k != "bound by"}} for event in TRACE["traceEvents"]]
    assert [chart.name for chart in timeline_charts({"traceEvents": events})] == ["timeline"]
    assert timeline_charts({"traceEvents": []}) == []
