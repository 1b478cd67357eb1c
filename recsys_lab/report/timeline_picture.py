"""The simulated iteration as a picture: what the slowest rank does when, a line a stream. SVG text."""

from __future__ import annotations

from typing import Any

from recsys_lab.report.svg import colour, legend, line, nice_ticks, rect, svg, text, tick_text
from recsys_lab.units import US_PER_MS

WIDTH, _LEFT, _ROW, _TOP = 860.0, 236.0, 26.0, 26.0
_PHASES = {"input": colour(4), "forward": colour(0), "backward": colour(1), "optimizer": colour(2)}
_OTHER = colour(7)


def timeline_picture(trace: dict[str, Any]) -> str | None:
    """Of `trace.json`'s first process, the slowest rank. None where nothing takes time."""
    names = {e["tid"]: str(e["args"].get("name")).removesuffix(" (simulated)") for e in trace["traceEvents"] if _is(e, "thread_name")}
    timed = (e for e in trace["traceEvents"] if e["ph"] == "X" and e["pid"] == 1 and e.get("tid") in names)
    events = [e for e in timed if (e.get("dur") or 0) > 0 and e.get("ts") is not None]
    lanes = [tid for tid in names if any(e["tid"] == tid for e in events)]
    begin, end = min((e["ts"] for e in events), default=0.0), max((e["ts"] + e["dur"] for e in events), default=0.0)
    if not end > begin:
        return None
    ticks = [tick for tick in nice_ticks(0, (end - begin) / US_PER_MS, 6) if tick * US_PER_MS <= 1.02 * (end - begin)]
    bottom = _TOP + _ROW * len(lanes)

    def at(us: float) -> float:
        return _LEFT + (WIDTH - 12 - _LEFT) * (us - begin) / (end - begin)

    parts = [text(0, 14, "simulated: the slowest rank, ms from the first step of the iteration", css="strong")]
    for tick in ticks:
        x = at(begin + tick * US_PER_MS)
        parts += [line(x, _TOP, x, bottom, "grid"), text(x, bottom + 16, tick_text(tick, ticks), "middle")]
    for place, tid in enumerate(lanes):
        y = _TOP + _ROW * place
        parts += [text(_LEFT - 10, y + 17, names[tid], "end"), line(_LEFT, y + _ROW, WIDTH - 12, y + _ROW, "grid")]
        for event in (e for e in events if e["tid"] == tid):
            wide = max(at(event["ts"] + event["dur"]) - at(event["ts"]), 0.8)
            tip = f"{event['name']}: {event['dur'] / US_PER_MS:,.3f} ms"
            parts.append(rect(at(event["ts"]), y + 4, wide, _ROW - 8, _PHASES.get(_phase(event), _OTHER), tip))
    phases = [phase for phase in _PHASES if any(_phase(e) == phase for e in events)]
    drawn, took = legend(_LEFT, bottom + 38, [(phase, _PHASES[phase]) for phase in phases], WIDTH - _LEFT)
    return svg(WIDTH, bottom + 28 + took, [*parts, drawn], f"the simulated iteration of {(end - begin) / US_PER_MS:,.3f} ms as a timeline")


def _phase(event: dict[str, Any]) -> str:
    return str(event.get("args", {}).get("phase"))


def _is(event: dict[str, Any], name: str) -> bool:
    return event["name"] == name and event["ph"] == "M" and event["pid"] == 1 and "tid" in event and "args" in event
