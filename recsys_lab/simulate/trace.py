"""The simulated timeline as a Chrome trace: opens in Perfetto (ui.perfetto.dev) or chrome://tracing."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from recsys_lab.cluster import ranks_text
from recsys_lab.errors import unwritable
from recsys_lab.simulate.simulated import Timeline
from recsys_lab.simulate.timeline import HOST_TIER
from recsys_lab.units import US_PER_MS

TRACKS = {1: "compute (simulated)", 2: "communication (simulated)", 3: "communication of the host-sharded tier (simulated)"}


def trace_json(timeline: Timeline) -> dict:
    """Complete events in microseconds, one track for compute and one for communication."""
    named: list[dict] = [{"name": "process_name", "ph": "M", "pid": 1, "args": {"name": timeline.title}}]
    named += [{"name": "thread_name", "ph": "M", "pid": 1, "tid": tid, "args": {"name": name}} for tid, name in TRACKS.items()]
    for event in timeline.events:
        step = event.step
        facts: dict = {"origin": "simulated", "phase": step.phase, "bytes per rank (max)": step.max_bytes}
        if step.is_collective:
            facts["group"] = ranks_text(step.groups[0])
        named.append(
            {
                "name": step.name,
                "cat": step.kind,
                "ph": "X",
                "pid": 1,
                "tid": 1 if not step.is_collective else 3 if step.name.startswith(HOST_TIER) else 2,
                "ts": event.start_ms * US_PER_MS,
                "dur": event.ms * US_PER_MS,
                "args": facts,
            }
        )
    return {"displayTimeUnit": "ms", "otherData": {"origin": "simulated"}, "traceEvents": named}


def write_trace(timeline: Timeline, path: Path) -> None:
    """Write `trace.json`, whole or not at all. Raises UserError where the folder cannot be written."""
    part = path.with_name(path.name + ".part")
    try:
        part.write_text(json.dumps(trace_json(timeline), indent=1))
        os.replace(part, path)
    except OSError as error:
        with suppress(OSError):
            part.unlink()
        raise unwritable(error, path) or error from error
