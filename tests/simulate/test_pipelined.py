"""A simulated run overlaps its input where the executor's option has it so, and its profile says that it does."""

from __future__ import annotations

import pytest

from recsys_lab.experiment import of_words
from recsys_lab.planning import plan_for, price
from recsys_lab.simulate import simulate
from tests.simulate.clusters import cluster
from tests.simulate.clusters import profile as profile_with
from tests.simulate.test_simulate import lowered


@pytest.mark.parametrize(
    ("words", "overlaps"), [((), False), (("sharder.executor.pipeline=true",), True), (("sharder=torchrec_strong",), True)]
)
def test_the_profile_follows_the_executor(words: tuple[str, ...], overlaps: bool) -> None:
    experiment = of_words(["mode=simulate", "data=synthetic_brief", "simulate.profile.overlaps=[dense_sync]", *words], where="test")
    planned = plan_for(experiment, experiment.open_data())
    profile = experiment.profile.pipelined if overlaps else experiment.profile
    assert profile.overlaps == (["input", "dense_sync"] if overlaps else ["dense_sync"])
    priced, _ = price(planned, experiment.profile)
    assert priced == simulate(planned.steps, planned.cluster, profile, planned.plan, planned.workload)[0]
    assert priced.profile == experiment.profile.name + ("_pipelined" if overlaps else "")


def test_an_input_that_overlaps_is_hidden_and_overlaps_once() -> None:
    steps, planned = lowered(("row_wise", "table_wise"), 2, 2)
    plain = profile_with("dense_sync")
    alone, _ = simulate(steps, cluster(2, 2), plain, *planned)
    beside, _ = simulate(steps, cluster(2, 2), plain.pipelined, *planned)
    assert beside.iteration_ms < alone.iteration_ms
    assert beside.phases_ms["exposed_embedding_comm"] < alone.phases_ms["exposed_embedding_comm"]
    assert plain.pipelined.pipelined == plain.pipelined


def test_background_traffic_beside_pauses_of_the_host_is_not_what_an_iteration_waits_for() -> None:
    """With a millisecond before each launch nothing waits for the next batch's ids, however long they are under way."""
    steps, planned = lowered(("row_wise", "table_wise"), 2, 2)
    slow_host = profile_with("dense_sync", launch_overhead_us=1000.0)
    alone, _ = simulate(steps, cluster(2, 2), slow_host, *planned)
    beside, timeline = simulate(steps, cluster(2, 2), slow_host.pipelined, *planned)
    foreground = [e for e in timeline.events if e.stream != "input"]
    last_ms = beside.iteration_ms - max(e.end_ms for e in foreground)  # when only ids are under way
    exchanges_ms = sum(e.ms for e in foreground if e.step.is_collective)
    assert beside.phases_ms["exposed_embedding_comm"] <= exchanges_ms + last_ms + 1e-9
    assert beside.phases_ms["exposed_embedding_comm"] < alone.phases_ms["exposed_embedding_comm"]
