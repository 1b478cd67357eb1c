"""Collectives beside each other: bytes follow one another, on a CPU messages too, and a rank waits only for what it needs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_lab.plan import Steps
from recsys_lab.plan.lower import lower
from recsys_lab.simulate import simulate, trace_json
from recsys_lab.simulate.collectives import collective_ms, groups_cost
from recsys_lab.simulate.timeline import Event, schedule
from tests.plan.plans import FP32, LENGTHS, TABLES, access, plan, workload
from tests.simulate.clusters import cluster, profile
from tests.simulate.test_simulate import factors, lowered, schemes, sizes

TOGETHER, APART = (profile(*overlaps, launch_overhead_us=0.0) for overlaps in (("collectives",), ()))


def gradients(events: list[Event]) -> list[Event]:
    return [e for e in events if e.step.is_collective and e.step.phase == "backward"]


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
@pytest.mark.parametrize("cross_us", [10.0, 10_000.0])
def test_gradients_of_three_tiers_are_under_way_together(kind: str, cross_us: float) -> None:
    """The dense gradients leave when the backward pass ends. Those of the tiers leave when they are taken apart, and the host-sharded
    tier's for a second time when its first exchange is done. Across hosts bytes follow one another. So do the messages that a CPU's cores
    send. On GPUs latencies pass side by side.
    """
    steps, (_, work) = lowered(("flexshard",), 2, 2)
    on = cluster(2, 2, kind=kind, cross_us=cross_us)
    events = schedule(steps, on, TOGETHER, work)
    ends = {e.step.name: e.end_ms for e in events}
    found, sent_ms = gradients(events), 0.0
    assert len(found) == 5
    for event in found:
        if kind == "cpu":
            first = max(ends[name] for name in event.step.after)
            assert event.start_ms == pytest.approx(max(first, sent_ms))
            sent_ms = event.start_ms + max(groups_cost(event.step, on)).messages_ms
        elif event.step.name.startswith("replicated"):  # issued behind the one that waits
            assert event.start_ms == ends["host_sharded.gradient.all_gather"]
        else:
            assert event.start_ms == max(ends[name] for name in event.step.after)
    across = [e for e in found if e.step.groups[0][-1] > 1]
    begin, end = across[0].start_ms, max(e.end_ms for e in across)
    carried = sum(max(groups_cost(e.step, on)).wire_ms for e in across)
    alone = [e.start_ms + collective_ms(e.step, on) for e in across]
    assert end >= max(begin + carried, *alone) * (1 - 1e-12)
    assert end - begin <= max(max(alone) - begin + carried, *alone) and end - begin < sum(collective_ms(e.step, on) for e in across)


def test_a_collective_alone_takes_what_it_takes() -> None:
    steps, (_, work) = lowered(("row_wise",), 2, 2)
    for event in schedule(steps, cluster(2, 2), TOGETHER, work):
        if event.step.is_collective and event.step.phase == "forward":
            assert event.ms == pytest.approx(collective_ms(event.step, cluster(2, 2)))


def test_blocking_collectives_follow_one_another() -> None:
    made, work = plan(("table_wise",), 2, 2), workload(512, dense_parameters=1_000_000)
    steps = lower(made, access(TABLES, LENGTHS), FP32, work, overlap=False)
    blocking = sorted(gradients(schedule(steps, cluster(2, 2), TOGETHER, work)), key=lambda e: e.start_ms)
    assert len(blocking) > 1 and all(a.end_ms <= b.start_ms for a, b in zip(blocking, blocking[1:]))


@settings(max_examples=100)
@given(schemes, sizes, sizes, factors, factors, st.sampled_from(["cpu", "cuda"]))
def test_together_is_never_slower(kinds: tuple[str, ...], hosts: int, ranks: int, cross: float, latency: float, kind: str) -> None:
    steps, planned = lowered(kinds, hosts, ranks)
    on = cluster(hosts, ranks, cross=10 / cross, cross_us=10 * latency, kind=kind)
    together, apart = (simulate(steps, on, software, *planned)[0] for software in (TOGETHER, APART))
    assert together.iteration_ms <= apart.iteration_ms * (1 + 1e-12)


def test_a_track_of_the_trace_shows_one_thing_at_a_time() -> None:
    def tracks(steps: Steps) -> dict[int, list[tuple[float, float]]]:
        found: dict[int, list[tuple[float, float]]] = {}
        for e in trace_json(simulate(steps, cluster(2, 2), TOGETHER, *planned)[1])["traceEvents"]:
            if e["ph"] == "X" and e["pid"] == 1:
                found.setdefault(e["tid"], []).append((e["ts"], e["ts"] + e["dur"]))
        return found

    steps, planned = lowered(("flexshard",), 2, 2)
    shown = tracks(steps)
    assert max(shown) > 6
    for spans in shown.values():
        assert all(end <= begin + 1e-6 for (_, end), (begin, _) in zip(sorted(spans), sorted(spans)[1:]))
