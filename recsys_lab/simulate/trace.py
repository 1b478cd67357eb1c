"""The simulated timeline as a Chrome trace: opens in Perfetto (ui.perfetto.dev) or chrome://tracing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from recsys_lab.base.files import write_text
from recsys_lab.cluster import ranks_text
from recsys_lab.simulate.phases import waited_ms
from recsys_lab.simulate.placed import STREAMS, Event, Launch
from recsys_lab.simulate.simulated import Timeline
from recsys_lab.units import US_PER_MS

TRACKS = {
    1: "compute (simulated)",
    2: "input distribution (simulated)",
    3: "embeddings across hosts (simulated)",
    4: "embeddings within a host (simulated)",
    5: "dense gradients (simulated)",
    6: "copies from the host (simulated)",
    7: "the host's disk (simulated)",
}
#: Of the host. Streams have tracks from 1 on.
HOST_TRACK, HOST_PHASE = 0, "host launch"
#: Nearer than this, one event ends as the next begins.
CLOSE_MS = 1e-9


def trace_json(timeline: Timeline, bounds: Mapping[str, str] | None = None) -> dict:
    """Complete events in microseconds, a track for each stream, and more for what is in flight beside others of its stream.

    The slowest rank comes first, then the one that computes least. Memory is counters. `bounds`: by name of a step, what bounds it.
    `waited_ms` of the slowest rank: what its iteration waits for (`phases.py`).
    """
    named = _rank(1, timeline.title, timeline.events, bounds or {}) + _host(1, timeline.launches)
    if timeline.least:
        named += _rank(2, f"{timeline.title}, the rank that computes least", timeline.least, bounds or {})
        named += _host(2, timeline.least_launches)
    for at in timeline.memory:
        held = {"lasting": at.lasting, "activations": at.activations, "communication": at.communication}
        named.append({"name": "memory, bytes (simulated)", "ph": "C", "pid": 1, "ts": at.ms * US_PER_MS, "args": held})
    facts = {"origin": "simulated", "waited_ms": waited_ms(timeline.events, timeline.launches)}
    return {"displayTimeUnit": "ms", "otherData": facts, "traceEvents": named}


def _rank(process: int, title: str, events: Sequence[Event], bounds: Mapping[str, str]) -> list[dict]:
    named: list[dict] = [{"name": "process_name", "ph": "M", "pid": process, "args": {"name": title}}]
    tracks = _tracks(events)
    for tid in sorted({*TRACKS, *tracks}):
        track = {"name": TRACKS[1 + (tid - 1) % len(TRACKS)]}
        named.append({"name": "thread_name", "ph": "M", "pid": process, "tid": tid, "args": track})
    for event, tid in zip(events, tracks):
        step = event.step
        facts: dict = {"origin": "simulated", "phase": step.phase, "bytes per rank (max)": step.max_bytes}
        if step.is_collective:
            facts["group"] = ranks_text(step.groups[0])
        if step.store:
            facts |= {"store": step.store, "records per rank (max)": max(step.rows_of_rank, default=0.0)}
        if step.name in bounds:
            facts["bound by"] = bounds[step.name]
        if event.elsewhere:
            facts["on other ranks only"] = True
        named.append(
            {
                "name": step.name,
                "cat": step.kind,
                "ph": "X",
                "pid": process,
                "tid": tid,
                "ts": event.start_ms * US_PER_MS,
                "dur": event.ms * US_PER_MS,
                "args": facts,
            }
        )
    return named


def _host(process: int, launches: Sequence[Launch]) -> list[dict]:
    """A track of what the host issues. It may be a whole iteration ahead of its device."""
    busy = [launch for launch in launches if launch.end_ms > launch.start_ms]
    if not busy:
        return []
    named: list[dict] = [
        {"name": "thread_name", "ph": "M", "pid": process, "tid": HOST_TRACK, "args": {"name": "the host's launches (simulated)"}}
    ]
    for launch in busy:
        named.append(
            {
                "name": launch.words,
                "cat": "host_launch",
                "ph": "X",
                "pid": process,
                "tid": HOST_TRACK,
                "ts": launch.start_ms * US_PER_MS,
                "dur": (launch.end_ms - launch.start_ms) * US_PER_MS,
                "args": {"origin": "simulated", "phase": HOST_PHASE, "kernels": launch.kernels},
            }
        )
    return named


def _tracks(events: Sequence[Event]) -> list[int]:
    """The first track of its stream that is free when an event starts, for each event. A viewer shows one thing at a time on each."""
    busy_until: dict[int, float] = {}
    tracks = [0] * len(events)
    for number in sorted(range(len(events)), key=lambda number: events[number].start_ms):
        event = events[number]
        tid = 1 + STREAMS.index(event.stream)
        while busy_until.get(tid, 0.0) > event.start_ms + CLOSE_MS:
            tid += len(TRACKS)
        tracks[number], busy_until[tid] = tid, event.end_ms
    return tracks


def write_trace(timeline: Timeline, path: Path, bounds: Mapping[str, str] | None = None) -> None:
    """Write `trace.json`, whole or not at all. Raises UserError where the folder cannot be written."""
    write_text(path, json.dumps(trace_json(timeline, bounds), indent=1))
