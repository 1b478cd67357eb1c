"""What an iteration waits for, millisecond by millisecond, named so that a reader can act on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from recsys_lab.plan.steps import DENSE_SYNC, MODULE_SYNC, MOVES, WAIT
from recsys_lab.simulate.placed import BACKGROUND, Event, Launch

SYNCS = (DENSE_SYNC, MODULE_SYNC)
COMPUTE, EMBEDDING_COMM, EXPOSED_SYNC = "compute", "exposed_embedding_comm", "exposed_dense_sync"
EXPOSED_STORE = "exposed_store"
LONGEST = "wait_for_longest_rank"
HOST, COPY, OTHER = "host_launch", "input_copy", "other"
#: What counts first where several run.
PHASES = (COMPUTE, EMBEDDING_COMM, EXPOSED_SYNC, EXPOSED_STORE, COPY, LONGEST)


def phase_of(event: Event) -> str:
    if event.step.kind == "host_to_device":
        return COPY
    if event.step.kind == WAIT:
        return LONGEST
    if event.step.kind in MOVES:
        return EXPOSED_STORE
    if not event.step.is_collective:
        return COMPUTE
    return EXPOSED_SYNC if event.step.role in SYNCS else EMBEDDING_COMM


def exposed_phases(events: Iterable[Event], host_ms: float = 0.0) -> dict[str, float]:
    """Milliseconds by what the iteration waits for.

    Compute comes first, then communication that nothing hides. Then come rows of tables with a store (which no other iteration has), the
    input's copy, and the wait for the rank with the longest histories, where these differ. Kernels that read rows where they are compute
    nothing.

    Where nothing runs, the host issues what comes next, or others are late for an exchange that comes next. That time counts as the
    exchange's. Before the first step it is the host's. `host_ms`: until when a GPU's host issues, which may be behind all events.
    Background traffic is waited for when nothing else begins before it is done. Beside pauses of the host it does not take the time.
    """
    events = [event for event in events if not event.elsewhere]
    kinds = {event.step.kind for event in events}
    stored = [EXPOSED_STORE] if not kinds.isdisjoint(MOVES) else []
    uneven = [LONGEST] if WAIT in kinds else []
    phases = dict.fromkeys((*PHASES[:3], *stored, *uneven, HOST, COPY, OTHER), 0.0)
    for what, _, ms in _waits(events, host_ms):
        phases[what if isinstance(what, str) else phase_of(what)] += ms
    return phases


def waited_ms(events: Iterable[Event], launches: Sequence[Launch]) -> dict[str, float]:
    """What the iteration waits for, by name of a step; `HOST` of the host's launches, `EMBEDDING_COMM` of ranks that are late.

    The sum is the iteration. What is not waited for is hidden. Where the host issues longer than its device works, the host alone is waited
    for while it launches, and steps of the device only while the host waits for them.
    """
    events = [event for event in events if not event.elsewhere]
    host_ms = max((launch.end_ms for launch in launches), default=0.0)
    by_host = launches if host_ms > max((event.end_ms for event in events), default=0.0) else ()
    waited: dict[str, float] = {}
    for what, start, ms in _waits(events, host_ms):
        launching = sum(max(min(start + ms, one.end_ms) - max(start, one.start_ms), 0.0) for one in by_host)
        name = what if isinstance(what, str) else what.step.name
        waited[HOST] = waited.get(HOST, 0.0) + launching
        waited[name] = waited.get(name, 0.0) + ms - launching
    return waited


def _waits(events: Sequence[Event], host_ms: float) -> Iterator[tuple[Event | str, float, float]]:
    """What is waited for from when on and how long, ms: an event, or a phase in which nothing runs."""
    begins = [event.start_ms for event in events if not _is_background(event)]
    first = min((e.start_ms for e in events if phase_of(e) != COPY and _waited_for(e, e.start_ms, begins)), default=0.0)
    edges = sorted({0.0, *(e.start_ms for e in events), *(e.end_ms for e in events)})
    for start, end in zip(edges, edges[1:]):
        running = [e for e in events if e.start_ms <= start and e.end_ms >= end and _waited_for(e, start, begins)]
        if running:
            yield min(running, key=_place), start, end - start
            continue
        following = min((e for e in events if e.start_ms >= end), key=lambda e: e.start_ms, default=None)
        begins_alone = host_ms > 0 and end <= first  # a GPU's host, before an iteration's first step
        issuing = end - start if following is None or begins_alone else min(max(following.issued_ms - start, 0.0), end - start)
        late = EMBEDDING_COMM if following is not None and following.step.is_collective else OTHER
        yield HOST, start, issuing
        yield late, start + issuing, end - start - issuing
    yield HOST, edges[-1], max(host_ms - edges[-1], 0.0)


def _place(event: Event) -> int:
    """Of what runs at a time, the least counts: what is on the compute stream, then as in `PHASES`."""
    return 0 if event.stream == "compute" else PHASES.index(phase_of(event))


def _is_background(event: Event) -> bool:
    return event.stream in BACKGROUND or event.step.kind in MOVES and event.stream != "compute"


def _waited_for(event: Event, now_ms: float, begins: Sequence[float]) -> bool:
    """Whether the iteration waits for `event`.

    It waits for every event but background. It waits for background where the rank begins nothing (at one of `begins`) before its end.
    """
    return not _is_background(event) or not any(now_ms <= begin < event.end_ms for begin in begins)
