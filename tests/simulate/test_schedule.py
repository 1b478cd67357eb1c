"""Which rank an iteration is told of, and what each of its moments is waited for: schedules by hand."""

from __future__ import annotations

import numpy as np
import pytest

from recsys_lab.plan.steps import DENSE_SYNC, MODULE_SYNC, Step
from recsys_lab.simulate.phases import exposed_phases
from recsys_lab.simulate.timeline import Event, Placed, Schedule

COMPUTE = Step("dense", "dense", "forward", (1.0,))
EXCHANGE = Step("rows", "all_to_all", "forward", (1.0,), ((0, 1, 2),))
SYNC = Step("sync", "all_reduce", "backward", (1.0,), ((0, 1, 2),), role=DENSE_SYNC)
COPY = Step("copy", "host_to_device", "input", (1.0,))


def placed(step: Step, stream: str, start: list[float], end: list[float], here: list[bool] | None = None) -> Placed:
    ranks = len(start)
    return Placed(step, stream, np.array(start), np.array(end), np.array(here or [True] * ranks), np.zeros(ranks))


@pytest.mark.parametrize(
    ("computes_ms", "ends_ms", "slowest", "fastest"),
    [
        ([1.0, 3.0, 2.0], [5.0, 5.0, 5.0], 1, 0),  # who computes longest holds the others up
        ([4.0, 1.0, 3.0], [4.5, 5.0, 5.0], 2, 1),  # of those that end last
        ([2.0, 2.0, 2.0], [5.0, 5.0, 5.0], 0, 0),
        ([0.0, 0.0, 0.0], [4.0, 5.0, 5.0], 1, 0),
        ([1.0, 2.0, 1.0], [5.0, 5.0 * (1 - 1e-12), 4.9], 1, 0),  # rounding is no difference
    ],
)
def test_the_slowest_rank_ends_last_and_of_those_computes_longest(
    computes_ms: list[float], ends_ms: list[float], slowest: int, fastest: int
) -> None:
    none = [0.0] * 3
    whole = Schedule((placed(COMPUTE, "compute", none, computes_ms), placed(EXCHANGE, "across", computes_ms, ends_ms)))
    assert (whole.slowest, whole.fastest) == (slowest, fastest)
    assert whole.ends.tolist() == ends_ms


def test_what_a_rank_has_no_part_in_is_neither_its_work_nor_its_end() -> None:
    """Ranks 0 and 1 end at 5; rank 1's long step is rank 2's alone, and its times are those of the last rank that has it."""
    shared = placed(EXCHANGE, "across", [1.0, 1.0, 0.0], [5.0, 5.0, 0.0], [True, True, False])
    alone = placed(COMPUTE, "compute", [0.0, 0.0, 2.0], [0.5, 9.0, 4.0], [True, False, True])
    whole = Schedule((shared, alone))
    assert whole.ends.tolist() == [5.0, 5.0, 4.0] and (whole.slowest, whole.fastest) == (0, 1)
    assert whole.events(1) == [Event(EXCHANGE, 1.0, 5.0, "across"), Event(COMPUTE, 2.0, 4.0, "compute", elsewhere=True)]
    assert whole.events(2) == [Event(EXCHANGE, 1.0, 5.0, "across", elsewhere=True), Event(COMPUTE, 2.0, 4.0, "compute")]
    assert Schedule((shared,)).ends.tolist() == [5.0, 5.0, 0.0]
    at_once = placed(COMPUTE, "compute", [3.0, 0.0, 0.0], [9.0, 0.0, 0.0], [False, True, True])
    assert Schedule((at_once,)).events(0) == [Event(COMPUTE, 0.0, 0.0, "compute", elsewhere=True)]


def told(
    compute: float = 0.0, embeddings: float = 0.0, sync: float = 0.0, host: float = 0.0, copy: float = 0.0, other: float = 0.0
) -> dict:
    return {
        "compute": compute,
        "exposed_embedding_comm": embeddings,
        "exposed_dense_sync": sync,
        "host_launch": host,
        "input_copy": copy,
        "other": other,
    }


def test_a_moment_counts_as_compute_first_then_as_embeddings_then_as_gradients() -> None:
    events = [
        Event(COMPUTE, 0.0, 2.0),
        Event(EXCHANGE, 1.0, 4.0, "across"),
        Event(SYNC, 3.0, 6.0, "dense_sync"),
        Event(COPY, 6.0, 6.5, "copy"),
        Event(COMPUTE, 7.0, 8.0),
        Event(COMPUTE, 8.0, 80.0, elsewhere=True),
    ]
    assert exposed_phases(events) == told(compute=3.0, embeddings=2.0, sync=2.0, copy=0.5, other=0.5)
    assert exposed_phases([Event(COMPUTE, 0.0, 1.0), Event(COPY, 0.5, 3.0, "copy")]) == told(compute=1.0, copy=2.0)


def test_a_pause_of_the_host_beside_gradients_is_the_hosts() -> None:
    """They travel from 1 to 4, and compute goes on at 3: the rank waits for its host until then. What ends by 3 is waited for."""
    events = [Event(COMPUTE, 0.0, 1.0), Event(SYNC, 1.0, 4.0, "dense_sync"), Event(COMPUTE, 3.0, 5.0, issued_ms=3.0)]
    assert exposed_phases(events) == told(compute=3.0, host=2.0)
    events[1] = Event(SYNC, 1.0, 3.0, "dense_sync")
    assert exposed_phases(events) == told(compute=3.0, sync=2.0)


@pytest.mark.parametrize(
    ("issued_ms", "host", "late"), [(0.0, 0.0, 3.0), (1.0, 0.0, 3.0), (2.5, 1.5, 1.5), (4.0, 3.0, 0.0), (9.0, 3.0, 0.0)]
)
def test_a_gap_is_the_hosts_until_it_has_issued_what_comes_next_and_then_the_others(issued_ms: float, host: float, late: float) -> None:
    """From 1 to 4 nothing runs. Before an exchange the rank waits for others that are late; before compute nobody says for what."""
    events = [Event(COMPUTE, 0.0, 1.0), Event(EXCHANGE, 4.0, 5.0, "across", issued_ms=issued_ms)]
    assert exposed_phases(events) == told(compute=1.0, embeddings=1.0 + late, host=host)
    events = [Event(COMPUTE, 0.0, 1.0), Event(COMPUTE, 4.0, 5.0, issued_ms=issued_ms)]
    assert exposed_phases(events) == told(compute=2.0, host=host, other=late)


def test_a_host_that_issues_longer_than_the_device_works_has_the_rest() -> None:
    assert exposed_phases([Event(COMPUTE, 0.0, 2.0)], host_ms=5.0) == told(compute=2.0, host=3.0)
    assert exposed_phases([Event(COMPUTE, 0.0, 2.0)], host_ms=1.0) == told(compute=2.0)


def test_gradients_of_every_module_are_gradients_and_ids_are_embeddings() -> None:
    modules = Step("modules", "all_reduce", "backward", (1.0,), ((0, 1),), role=MODULE_SYNC)
    events = [Event(modules, 0.0, 1.0, "dense_sync"), Event(EXCHANGE, 1.0, 3.0, "input")]
    assert exposed_phases(events) == told(embeddings=2.0, sync=1.0)


def test_an_iteration_is_no_shorter_than_what_its_host_issues() -> None:
    step = placed(COMPUTE, "compute", [0.0, 0.0], [3.0, 5.0])
    assert Schedule((step,), np.array([4.0, 4.0])).ends.tolist() == [4.0, 5.0]
    assert Schedule((step,)).ends.tolist() == [3.0, 5.0]


def test_a_copy_that_begins_beside_gradients_is_what_is_waited_for() -> None:
    """Gradients travel from 0 to 4 in the background; the batch's copy begins at 2."""
    events = [Event(SYNC, 0.0, 4.0, "dense_sync"), Event(COPY, 2.0, 3.0, "copy")]
    assert exposed_phases(events)["input_copy"] == 1.0
