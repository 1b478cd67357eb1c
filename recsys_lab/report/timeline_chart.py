"""The simulated iteration as charts: what the slowest rank does when, and what bounds its longest steps."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from recsys_lab.report.charts import LONG_NOTE, OPEN, WIDE, Chart, bar, box, chart, colour, drawing, legend, legend_height, limit_of
from recsys_lab.simulate.bounds import HOST_LAUNCHES
from recsys_lab.simulate.phases import HOST
from recsys_lab.simulate.trace import HOST_PHASE
from recsys_lab.units import US_PER_MS, human_bytes

PHASES = {"input": colour(4), "forward": colour(0), "backward": colour(1), "optimizer": colour(2), HOST_PHASE: colour(3)}
OTHER = colour(7)
BOUNDS_NOTE = (
    "A step is bound by the part of the cluster whose doubling would shorten it most. What is grey is hidden behind something else: "
    "the iteration does not wait for it. The coloured parts of all steps and of the host are the iteration."
)
HIDDEN = "hidden"
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
    return [*charts, _bounds(_bars(events, trace.get("otherData") or {}))] if bounded else charts


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


@dataclass(frozen=True)
class _Bar:
    """A step, or all launches of the host. `waited_ms` of its `ms`: what the iteration waits for."""

    name: str
    bound: str
    ms: float
    waited_ms: float
    words: str


def _bars(events: Sequence[dict[str, Any]], facts: dict[str, Any]) -> list[_Bar]:
    """What the iteration waits for longest first. A trace of an earlier version does not say what it waits for: it is all of a step."""
    waited = facts.get("waited_ms")
    bars = []
    for event in events:
        if "bound by" in _facts(event):
            ms = event["dur"] / US_PER_MS
            shown = ms if waited is None else min(waited.get(event["name"], 0.0), ms)
            words = _words(event, event["ts"]) + (f"\nhidden: {ms - shown:,.3f} ms" if ms - shown > 0.0005 else "")
            bars.append(_Bar(str(event["name"]), str(_facts(event)["bound by"]), ms, shown, words))
    launches_ms = sum(event["dur"] for event in events if _phase(event) == HOST_PHASE) / US_PER_MS
    exposed_ms = min((waited or {}).get(HOST, 0.0), launches_ms)
    if launches_ms:
        words = f"{HOST_LAUNCHES}: {launches_ms:,.3f} ms, of which the iteration waits for {exposed_ms:,.3f}"
        bars.append(_Bar("the host", HOST_LAUNCHES, launches_ms, exposed_ms, words))
    return sorted(bars, key=lambda one: (-one.waited_ms, -one.ms))


def _bounds(bars: Sequence[_Bar]) -> Chart:
    """A bar a step and one of the host, coloured by what bounds it where the iteration waits for it."""
    longest = bars[:MOST_STEPS]
    sums_ms: dict[str, float] = {}
    for one in bars:
        sums_ms[one.bound] = sums_ms.get(one.bound, 0.0) + one.waited_ms
    listed = [bound for bound in sums_ms if any(one.bound == bound and one.waited_ms for one in longest)]
    names = [f"{bound}, {sums_ms[bound]:,.2f} ms" for bound in listed]
    hidden = [HIDDEN] if any(one.ms > one.waited_ms for one in longest) else []
    below = 42 + legend_height([*names, *hidden])
    limit = limit_of([one.ms for one in longest])
    with drawing(height=10 + 31 * len(longest) + below, left=158, bottom=below) as axes:
        for row, one in enumerate(longest):
            figure = f"{one.ms:,.2f} ms"
            if one.ms > one.waited_ms:
                bar(axes, row, one.ms, limit, OPEN, one.words, figure)
                figure = ""
            if one.waited_ms:
                bar(axes, row, one.waited_ms, limit, colour(listed.index(one.bound)), one.words, figure)
        widest = max(min(one.ms, limit) for one in longest)
        axes.set(xlabel="ms", xlim=(0, (1.03 if limit == math.inf else 1.3) * widest), ylim=(len(longest) - 0.5, -0.5))
        axes.set_yticks(range(len(longest)), [step_name(one.name) for one in longest])
        axes.grid(visible=False, axis="y")
        legend(axes, [*names, *hidden], [*(colour(number) for number in range(len(listed))), *(OPEN for _ in hidden)])
        some = f"the first {len(longest)}" if len(bars) > len(longest) else "step by step"
        note = BOUNDS_NOTE if limit == math.inf else f"{BOUNDS_NOTE} {LONG_NOTE}"
        return chart(axes, "bounds", f"simulated: what the iteration waits for, {some}", note)


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
