"""The simulated iteration as charts that zoom: what the slowest rank does when, and what bounds its longest steps."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from recsys_lab.report.charts import APART, LEGEND, Chart, colour, words
from recsys_lab.units import US_PER_MS, human_bytes

PHASES = {"input": colour(4), "forward": colour(0), "backward": colour(1), "optimizer": colour(2), "host launch": colour(3)}
OTHER = colour(7)
#: The longest steps are listed one by one.
MOST_STEPS = 20
LETTERS = 16  # of a line of a lane's name


def timeline_charts(trace: dict[str, Any]) -> list[Chart]:
    """Of `trace.json`'s first process, the slowest rank. None where nothing takes time."""
    lanes = {e["tid"]: str(e["args"].get("name")).removesuffix(" (simulated)") for e in trace["traceEvents"] if _is_name(e)}
    timed = (e for e in trace["traceEvents"] if e["ph"] == "X" and e["pid"] == 1 and e.get("tid") in lanes)
    events = [e for e in timed if (e.get("dur") or 0) > 0 and e.get("ts") is not None]
    if not events:
        return []
    used = [tid for tid in lanes if any(e["tid"] == tid for e in events)]
    begin = 0.0 if trace.get("otherData") else min(e["ts"] for e in events)  # a CPU's first step begins behind its launch
    whole_ms = (max(e["ts"] + e["dur"] for e in events) - begin) / US_PER_MS
    charts = [_timeline(events, {tid: lanes[tid] for tid in used}, begin, whole_ms)]
    bounded = [event for event in events if "bound by" in _facts(event)]
    return [*charts, _bounds(bounded)] if bounded else charts


def _timeline(events: Sequence[dict[str, Any]], lanes: dict[int, str], begin: float, whole_ms: float) -> Chart:
    names = {tid: "<br>".join(textwrap.wrap(words(name), LETTERS)) + APART * i for i, (tid, name) in enumerate(lanes.items())}
    data = []
    for phase in [*PHASES, ""]:
        own = [e for e in events if (_phase(e) == phase if phase else _phase(e) not in PHASES)]
        if own:
            data.append(
                {
                    "type": "bar",
                    "orientation": "h",
                    "name": phase or "other",
                    "base": [(e["ts"] - begin) / US_PER_MS for e in own],
                    "x": [e["dur"] / US_PER_MS for e in own],
                    "y": [names[e["tid"]] for e in own],
                    "customdata": [_told(e, begin) for e in own],
                    "hovertemplate": "%{customdata}<extra></extra>",
                    "marker": {"color": PHASES.get(phase, OTHER), "line": {"color": "rgba(255,255,255,0.6)", "width": 0.5}},
                }
            )
    layout = {
        "barmode": "overlay",
        "bargap": 0.25,
        "hovermode": "closest",
        "xaxis": {"title": {"text": "ms"}, "range": [-0.01 * whole_ms, 1.01 * whole_ms]},
        "yaxis": {"fixedrange": True, "categoryorder": "array", "categoryarray": [names[tid] for tid in reversed(lanes)]},
        "showlegend": True,
        "legend": LEGEND,
    }
    title = f"simulated: the slowest rank, {whole_ms:,.3f} ms"
    ahead = " A GPU's host runs ahead of it: it may issue the next iteration." if any(_phase(e) == "host launch" for e in events) else ""
    note = f"Drag to zoom, double click to see all.{ahead} trace.json has the same for Perfetto."
    return Chart("timeline", title, data, layout, 130 + 46 * len(lanes), note)


def _told(event: dict[str, Any], begin: float) -> str:
    """A step's figures, a line each."""
    facts, start_ms, ms = _facts(event), (event["ts"] - begin) / US_PER_MS, event["dur"] / US_PER_MS
    lines = [f"<b>{words(str(event['name']))}</b>", f"{ms:,.3f} ms, from {start_ms:,.3f} to {start_ms + ms:,.3f}"]
    size = facts.get("bytes per rank (max)")
    if isinstance(size, int | float) and size:
        lines.append(f"{human_bytes(size)} of the rank with most")
    lines += [f"{key}: {words(str(facts[key]))}" for key in ("group", "bound by", "kernels") if key in facts]
    return "<br>".join(lines)


def _bounds(events: Sequence[dict[str, Any]]) -> Chart:
    """A bar a step, the longest first, coloured by what bounds it."""
    longest = sorted(events, key=lambda e: -e["dur"])[:MOST_STEPS]
    order = [_step_name(event, place) for place, event in enumerate(longest)]
    bounds = list(dict.fromkeys(str(_facts(event)["bound by"]) for event in events))
    data = []
    for place, bound in enumerate(bounds):
        own = [(name, event) for name, event in zip(order, longest) if _facts(event)["bound by"] == bound]
        whole = sum(e["dur"] for e in events if _facts(e)["bound by"] == bound) / US_PER_MS
        if own:
            data.append(
                {
                    "type": "bar",
                    "orientation": "h",
                    "name": f"{words(bound)}, {whole:,.2f} ms",
                    "x": [event["dur"] / US_PER_MS for _, event in own],
                    "y": [name for name, _ in own],
                    "customdata": [_told(event, event["ts"]) for _, event in own],
                    "hovertemplate": "%{customdata}<extra></extra>",
                    "marker": {"color": colour(place)},
                }
            )
    layout = {
        "barmode": "overlay",
        "hovermode": "closest",
        "xaxis": {"title": {"text": "ms"}, "rangemode": "tozero"},
        "yaxis": {"fixedrange": True, "categoryorder": "array", "categoryarray": order[::-1], "dtick": 1, "tickfont": {"size": 11}},
        "showlegend": True,
        "legend": LEGEND,
    }
    title = f"simulated: what bounds the {len(longest)} longest steps" if len(events) > len(longest) else "simulated: what bounds each step"
    note = "A step is bound by the part of the cluster whose doubling would shorten it most. Steps overlap, so their sum is no iteration."
    return Chart("bounds", title, data, layout, 150 + 32 * len(longest), note)


def _step_name(event: dict[str, Any], place: int) -> str:
    """In two lines, and of its own even where two steps have one name."""
    scheme, _, rest = str(event["name"]).partition(".")
    lines = (line if len(line) <= 1.5 * LETTERS else f"{line[: LETTERS + 7]}\N{HORIZONTAL ELLIPSIS}" for line in (scheme, rest) if line)
    return "<br>".join(map(words, lines)) + APART * place


def _facts(event: dict[str, Any]) -> dict[str, Any]:
    return event.get("args") or {}


def _phase(event: dict[str, Any]) -> str:
    return str(_facts(event).get("phase"))


def _is_name(event: dict[str, Any]) -> bool:
    return event["name"] == "thread_name" and event["ph"] == "M" and event["pid"] == 1 and "tid" in event and "args" in event
