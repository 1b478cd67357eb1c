"""The simulated iteration as charts: what the slowest rank does when, and what bounds its longest steps."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from recsys_lab.report.charts import WIDE, Chart, box, chart, colour, drawing, legend, legend_height
from recsys_lab.units import US_PER_MS, human_bytes

PHASES = {"input": colour(4), "forward": colour(0), "backward": colour(1), "optimizer": colour(2), "host launch": colour(3)}
OTHER = colour(7)
BOUNDS_NOTE = "A step is bound by the part of the cluster whose doubling would shorten it most. Steps overlap: their sum is no iteration."
#: The longest steps are listed one by one.
MOST_STEPS = 20
LETTERS = 16  # of a line of a lane's name
LONGEST_STEP = 24


def timeline_charts(trace: dict[str, Any]) -> list[Chart]:
    """Of `trace.json`'s first process, the slowest rank. None where nothing takes time."""
    lanes = {e["tid"]: str(e["args"].get("name")).removesuffix(" (simulated)") for e in trace["traceEvents"] if _is_name(e)}
    timed = (e for e in trace["traceEvents"] if e["ph"] == "X" and e["pid"] == 1 and e.get("tid") in lanes)
    events = [e for e in timed if (e.get("dur") or 0) > 0 and e.get("ts") is not None]
    if not events:
        return []
    used = {tid: name for tid, name in lanes.items() if any(e["tid"] == tid for e in events)}
    begin = 0.0 if trace.get("otherData") else min(e["ts"] for e in events)  # a CPU's first step begins behind its launch
    charts = [_timeline(events, used, begin)]
    bounded = [event for event in events if "bound by" in _facts(event)]
    return [*charts, _bounds(bounded)] if bounded else charts


def _timeline(events: Sequence[dict[str, Any]], lanes: dict[int, str], begin: float) -> Chart:
    whole_ms = (max(e["ts"] + e["dur"] for e in events) - begin) / US_PER_MS
    rows = {tid: row for row, tid in enumerate(lanes)}
    phases = [phase for phase in (*PHASES, "other") if any(_phase(event) == phase for event in events)]
    below = 42 + legend_height(phases, WIDE)
    with drawing(WIDE, 10 + 40 * len(lanes) + below, left=128, bottom=below) as axes:
        for event in events:
            start_ms, ms = (event["ts"] - begin) / US_PER_MS, event["dur"] / US_PER_MS
            fill = PHASES.get(_phase(event), OTHER)
            box(axes, start_ms, rows[event["tid"]] - 0.38, ms, 0.76, fill, _words(event, begin))
        axes.set(xlabel="ms", xlim=(0, whole_ms), ylim=(len(lanes) - 0.5, -0.5))
        axes.set_yticks(range(len(lanes)), ["\n".join(textwrap.wrap(name, LETTERS)) for name in lanes.values()])
        axes.grid(visible=False, axis="y")
        legend(axes, phases, [PHASES.get(phase, OTHER) for phase in phases])
        ahead = " A GPU's host runs ahead of it: it may issue the next iteration." if "host launch" in phases else ""
        note = f"Hover for a step's figures.{ahead} trace.json has the same for Perfetto, which zooms."
        return chart(axes, "timeline", f"simulated: the slowest rank, {whole_ms:,.3f} ms", note)


def _words(event: dict[str, Any], begin: float) -> str:
    """A step's figures, a line each."""
    facts, start_ms, ms = _facts(event), (event["ts"] - begin) / US_PER_MS, event["dur"] / US_PER_MS
    lines = [str(event["name"]), f"{ms:,.3f} ms, from {start_ms:,.3f} to {start_ms + ms:,.3f}"]
    size = facts.get("bytes per rank (max)")
    if isinstance(size, int | float) and size:
        lines.append(f"{human_bytes(size)} of the rank with most")
    return "\n".join([*lines, *(f"{key}: {facts[key]}" for key in ("group", "bound by", "kernels") if key in facts)])


def _bounds(events: Sequence[dict[str, Any]]) -> Chart:
    """A bar a step, the longest first, coloured by what bounds it."""
    longest = sorted(events, key=lambda e: -e["dur"])[:MOST_STEPS]
    bounds = list(dict.fromkeys(str(_facts(event)["bound by"]) for event in events))
    sums_ms = {bound: sum(e["dur"] for e in events if _facts(e)["bound by"] == bound) / US_PER_MS for bound in bounds}
    listed = [bound for bound in bounds if any(_facts(event)["bound by"] == bound for event in longest)]
    names = [f"{bound}, {sums_ms[bound]:,.2f} ms" for bound in listed]
    below = 42 + legend_height(names)
    with drawing(height=10 + 31 * len(longest) + below, left=158, bottom=below) as axes:
        for row, event in enumerate(longest):
            fill = colour(bounds.index(str(_facts(event)["bound by"])))
            box(axes, 0, row - 0.35, event["dur"] / US_PER_MS, 0.7, fill, _words(event, event["ts"]))
        axes.set(xlabel="ms", xlim=(0, 1.03 * longest[0]["dur"] / US_PER_MS), ylim=(len(longest) - 0.5, -0.5))
        axes.set_yticks(range(len(longest)), [step_name(str(event["name"])) for event in longest])
        axes.grid(visible=False, axis="y")
        legend(axes, names, [colour(bounds.index(bound)) for bound in listed])
        some = f"the {len(longest)} longest steps" if len(events) > len(longest) else "each step"
        return chart(axes, "bounds", f"simulated: what bounds {some}", BOUNDS_NOTE)


def step_name(name: str) -> str:
    """In two lines: the scheme, and what it does."""
    scheme, _, rest = name.partition(".")
    lines = (line if len(line) <= LONGEST_STEP else f"{line[: LONGEST_STEP - 1]}\N{HORIZONTAL ELLIPSIS}" for line in (scheme, rest) if line)
    return "\n".join(lines)


def _facts(event: dict[str, Any]) -> dict[str, Any]:
    return event.get("args") or {}


def _phase(event: dict[str, Any]) -> str:
    phase = str(_facts(event).get("phase"))
    return phase if phase in PHASES else "other"


def _is_name(event: dict[str, Any]) -> bool:
    return event["name"] == "thread_name" and event["ph"] == "M" and event["pid"] == 1 and "tid" in event and "args" in event
