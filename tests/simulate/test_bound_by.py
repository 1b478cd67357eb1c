"""What is named as the bound of an iteration is what shortens it most at twice the speed; what it does not wait for is called hidden."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product

import pytest

from recsys_lab.cluster import Cluster, Link
from recsys_lab.config.choices import built
from recsys_lab.experiment import Experiment, of_words
from recsys_lab.planning import Planned, plan_for, price, with_bounds
from recsys_lab.simulate import Profile, trace_json
from recsys_lab.simulate.bounds import PARTS
from recsys_lab.simulate.phases import HOST
from recsys_lab.units import US_PER_MS

CASES = [*product(("dcn", "dlrm_small"), ("torchrec_row_wise", "dmt", "neo_4d"), ("h100x16", "a100x64"), ("torchrec", "hugectr"))][::2]
CASES += [("dlrm_small", *rest, "hugectr") for rest in product(("torchrec_row_wise", "dmt"), ("h100x16", "a100x64"))]
CASES += [("dcn_mlperf", "torchrec_row_wise", "h100x8", profile) for profile in ("torchrec", "sok")]
CASES += [("dlrm_small", "torchrec_row_wise", "clx64", "cpu"), ("dcn", "flexshard_2tier", "h100x16", "torchrec")]


@cache
def planned(model: str, sharder: str, cluster: str) -> tuple[Experiment, Planned]:
    experiment = of_words(
        [f"model={model}", f"sharder={sharder}", f"cluster={cluster}", "data=random", "data.rows_train=4096"], where="test"
    )
    return experiment, plan_for(experiment, experiment.open_data())


def twice_as_fast(profile: Profile, cluster: Cluster) -> dict[str, tuple[Profile, Cluster]]:
    """In the words of this test, which share nothing with the code."""

    def software(*times: str) -> tuple[Profile, Cluster]:
        return replace(profile, **{name: 0.5 * getattr(profile, name) for name in times}), cluster

    def device(**figures: float | dict[str, float] | None) -> tuple[Profile, Cluster]:
        return profile, replace(cluster, device=replace(cluster.device, **figures))

    def link(name: str, factor: float, *fields: str) -> tuple[Profile, Cluster]:
        of: Link = getattr(cluster, name)
        return profile, replace(cluster, **{name: replace(of, **{f: factor * x for f in fields if (x := getattr(of, f)) is not None})})

    rates = ("bandwidth_gb_s", "ring_gb_s", "in_network_gb_s", "line_gb_s")
    latencies = ("latency_us", "message_us", "start_us", "exchange_us")
    of = cluster.device
    return {
        "host launches and overhead": software("launch_overhead_us", "iteration_overhead_ms"),
        "overhead of kernels": software("kernel_us", "table_overhead_us", "tier_overhead_us", "lookup_ns"),
        "arithmetic": device(peak_tflops={name: 2 * peak for name, peak in of.peak_tflops.items()}),
        "memory bandwidth": device(memory_bandwidth_gb_s=2 * of.memory_bandwidth_gb_s),
        "host link": device(host_link_gb_s=2 * of.host_link_gb_s if of.host_link_gb_s else None),
        "links between hosts": link("cross_host", 2.0, *rates),
        "links in a host": link("intra_host", 2.0, *rates),
        "latency between hosts": link("cross_host", 0.5, *latencies),
        "latency in a host": link("intra_host", 0.5, *latencies),
        "latency of NCCL": (profile, replace(cluster, library_latency=0.5)),
    }


@pytest.mark.parametrize(("model", "sharder", "cluster", "software"), CASES)
def test_the_first_is_what_changes_the_time_most_and_waits_agree(model: str, sharder: str, cluster: str, software: str) -> None:
    experiment, made = planned(model, sharder, cluster)
    profile = built("profile", software)
    experiment = replace(experiment, profile=profile)
    simulated, timeline = price(made, profile)
    now = simulated.iteration_ms
    bounds = with_bounds(simulated, made, experiment, experiment.open_data()).bound_by
    assert bounds is not None and list(bounds.values()) == sorted(bounds.values(), reverse=True)
    saved = {name: now - price(made, *faster)[0].iteration_ms for name, faster in twice_as_fast(profile, made.cluster).items()}
    assert bounds == pytest.approx({name: ms for name, ms in saved.items() if ms > 1e-6 * now})
    first = next(iter(bounds))
    assert saved[first] == max(saved.values()) > 0

    trace = trace_json(timeline)
    events = [event for event in trace["traceEvents"] if event["ph"] == "X" and event["pid"] == 1]
    assert max(event["ts"] + event["dur"] for event in events) == pytest.approx(now * US_PER_MS)  # the host's launches are there
    waited = trace["otherData"]["waited_ms"]
    assert sum(waited.values()) == pytest.approx(now) and min(waited.values()) >= -1e-9
    exchanged = sum(waited.get(event.step.name, 0.0) for event in timeline.events if event.step.is_collective)
    if exchanged < 1e-9 and not waited.get("exposed_embedding_comm"):
        assert not [part for part in bounds if part.startswith(("links", "latency"))]  # hidden: faster links save nothing
    if now - waited.get(HOST, 0.0) < 1e-9:
        assert list(bounds) == ["host launches and overhead"]


@pytest.mark.parametrize(("model", "sharder", "cluster", "software"), CASES[::3])
def test_no_part_is_left_out(model: str, sharder: str, cluster: str, software: str) -> None:
    """With all of them at twice the speed an iteration takes half the time."""
    made, profile = planned(model, sharder, cluster)[1], built("profile", software)
    on = made.cluster
    for faster in PARTS.values():
        profile, on = faster(profile, on)
    assert price(made, profile, on)[0].iteration_ms == pytest.approx(price(made, built("profile", software))[0].iteration_ms / 2)


def test_a_model_far_too_small_for_its_cluster_has_torchrecs_time_beside_it() -> None:
    experiment, made = planned("dcn", "dmt", "h100x64")
    data = experiment.open_data()
    small = with_bounds(price(made, experiment.profile)[0], made, experiment, data)
    plain, plan = planned("dcn", "torchrec", "h100x64")
    assert small.torchrec_ms == price(plan, plain.profile)[0].iteration_ms
    on_one_host = plan_for(plain, data, plan.cluster.reshaped(1, 8), 8 * plain.batch_size)
    assert small.torchrec_host_ms == price(on_one_host, plain.profile)[0].iteration_ms
    own = with_bounds(price(plan, plain.profile)[0], plan, plain, data)
    assert own.torchrec_ms is None and own.torchrec_host_ms == small.torchrec_host_ms
    large, spread = planned("dcn_mlperf", "torchrec_row_wise", "h100x64")
    fitting = with_bounds(price(spread, large.profile)[0], spread, large, data)
    assert fitting.torchrec_ms is None and fitting.torchrec_host_ms is None
