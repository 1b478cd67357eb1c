"""A simulated iteration: phases sum, overlap hides, everything faster is never slower, and the trace shows it."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from recsys_lab.errors import UserError
from recsys_lab.plan import Steps
from recsys_lab.plan.lower import lower
from recsys_lab.precision import Precision
from recsys_lab.simulate import simulate, trace_json, write_trace
from recsys_lab.simulate.collectives import collective_ms
from recsys_lab.simulate.costs import compute_step_ms, launches
from recsys_lab.simulate.simulated import Interval
from recsys_lab.simulate.timeline import STREAMS, place, schedule
from tests.plan.plans import FLAT_SCHEMES, FP32, LENGTHS, TABLES, access, plan, workload
from tests.record.fake_run import make_result
from tests.simulate.clusters import cluster, of_file, profile

PHASES = ["compute", "exposed_embedding_comm", "exposed_dense_sync", "host_launch", "input_copy", "other"]
OVERLAPS = [
    (),
    ("dense_sync",),
    ("input",),
    ("input", "dense_sync"),
    ("host_tier",),
    ("input", "dense_sync", "host_tier", "bottom"),
    ("collectives",),
    ("input", "collectives"),
    ("input", "dense_sync", "host_tier", "bottom", "collectives"),
    ("host", "collectives"),
]
schemes = st.lists(st.sampled_from(FLAT_SCHEMES), min_size=1, max_size=3).map(tuple)
sizes = st.integers(1, 4)
factors = st.sampled_from([1.0, 1.5, 10.0, 1000.0])


def lowered(kinds: tuple[str, ...], hosts: int, ranks: int, batch_size: int = 512) -> tuple[Steps, tuple]:
    made, work = plan(kinds, hosts, ranks), workload(batch_size, dense_parameters=1_000_000)
    return lower(made, access(TABLES, LENGTHS), FP32, work), (made, work)


@settings(max_examples=100)
@given(schemes, sizes, sizes, st.sampled_from(OVERLAPS))
def test_phases_sum_to_the_iteration(kinds: tuple[str, ...], hosts: int, ranks: int, overlaps: tuple[str, ...]) -> None:
    steps, planned = lowered(kinds, hosts, ranks)
    made, timeline = simulate(steps, cluster(hosts, ranks), profile(*overlaps), *planned)
    assert list(made.phases_ms) == PHASES and all(ms >= 0 for ms in made.phases_ms.values())
    assert sum(made.phases_ms.values()) == pytest.approx(made.iteration_ms)
    host_ms = place(steps, cluster(hosts, ranks), profile(*overlaps), planned[1]).host_ms.max()
    assert made.iteration_ms == pytest.approx(max(host_ms, *(event.end_ms for event in timeline.events)))
    assert made.examples_per_second == pytest.approx(512 * hosts * ranks / made.iteration_ms * 1e3)
    assert {event.step.name for event in timeline.events} == {step.name for step in steps.steps}
    assert [c.name for c in made.collectives] == [e.step.name for e in timeline.events if e.step.is_collective]


@settings(max_examples=100)
@given(
    schemes,
    sizes,
    sizes,
    st.sampled_from(OVERLAPS),
    factors,
    factors,
    factors,
    factors,
    st.sampled_from([None, 10.0, 25.0, 100.0]),
    factors,
)
@example(("table_wise", "row_wise", "column_wise"), 4, 2, ("input", "dense_sync"), 1.0, 1.0, 1.0, 1.5, None, 1.0)  # once slower by 0.6 %
def test_faster_hardware_is_never_slower(
    kinds: tuple[str, ...],
    hosts: int,
    ranks: int,
    overlaps: tuple[str, ...],
    intra: float,
    cross: float,
    memory: float,
    tflops: float,
    line: float | None,
    more_line: float,
) -> None:
    steps, planned = lowered(kinds, hosts, ranks)
    lines = {} if line is None else {"line": line}, {} if line is None else {"line": line * more_line}
    faster = cluster(hosts, ranks, intra=100 * intra, cross=10 * cross, memory=1000 * memory, tflops=50 * tflops, **lines[1])
    slow, _ = simulate(steps, cluster(hosts, ranks, **lines[0]), profile(*overlaps), *planned)
    fast, _ = simulate(steps, faster, profile(*overlaps), *planned)
    assert fast.iteration_ms <= slow.iteration_ms * (1 + 1e-12)


@settings(max_examples=60)
@given(schemes, sizes, sizes, st.sampled_from(OVERLAPS))
def test_no_stream_is_busy_twice_at_once(kinds: tuple[str, ...], hosts: int, ranks: int, overlaps: tuple[str, ...]) -> None:
    """On every rank; and a collective begins and ends at the same time on all ranks of its group."""
    steps, (_, work) = lowered(kinds, hosts, ranks)
    whole = place(steps, cluster(hosts, ranks), profile(*overlaps), work)
    for rank in range(len(whole.ends)):
        events = sorted((e for e in whole.events(rank) if not e.elsewhere), key=lambda e: (e.start_ms, e.end_ms))
        for stream in ("compute",) if "collectives" in overlaps else STREAMS:
            own = [e for e in events if e.stream == stream]
            assert all(a.end_ms <= b.start_ms + 1e-12 for a, b in zip(own, own[1:]))
        ends = {e.step.name: e.end_ms for e in events}
        for event in events:
            beside = event.step.name == "dense.all_reduce" and "dense_sync" in overlaps  # its buckets begin before the backward ends
            if not beside and ("input" not in overlaps or event.step.phase != "forward"):  # an overlapped input is the next batch's
                assert all(ends[n] <= event.start_ms + 1e-12 for n in event.step.after if n in ends), event.step.name
    for one in whole.placed:
        for group in one.step.groups if len(whole.ends) > 1 else ():
            assert len({one.start[r] for r in group}) == len({one.end[r] for r in group}) == 1


@settings(max_examples=100)
@given(schemes, sizes, sizes, st.sampled_from(OVERLAPS), factors)
def test_a_link_of_which_more_is_free_is_never_slower(
    kinds: tuple[str, ...], hosts: int, ranks: int, overlaps: tuple[str, ...], line: float
) -> None:
    steps, planned = lowered(kinds, hosts, ranks)
    full, _ = simulate(steps, cluster(hosts, ranks), profile(*overlaps), *planned)
    shared, _ = simulate(steps, cluster(hosts, ranks, line=10 * line), profile(*overlaps), *planned)
    assert shared.iteration_ms <= full.iteration_ms * (1 + 1e-12)


@pytest.mark.parametrize("kind", FLAT_SCHEMES)
def test_one_rank_has_no_communication(kind: str) -> None:
    steps, planned = lowered((kind,), 1, 1)
    made, _ = simulate(steps, cluster(1, 1), profile("dense_sync"), *planned)
    assert made.collectives == ()
    assert made.phases_ms["exposed_embedding_comm"] == made.phases_ms["exposed_dense_sync"] == 0


def test_without_overlap_the_iteration_is_the_sum_of_its_steps() -> None:
    """On a CPU with a launch of 10 us before each; on a GPU whose host needs no time, with the input's copy."""
    steps, planned = lowered(("row_wise",), 2, 2)
    made, timeline = simulate(steps, cluster(2, 2, kind="cpu"), profile(), *planned)
    issued = sum(launches(e.step, profile(), planned[1]) for e in timeline.events)
    assert issued > len(timeline.events)  # the tables have two poolings
    assert made.iteration_ms == pytest.approx(sum(e.ms for e in timeline.events) + issued * 0.01)
    assert made.phases_ms["host_launch"] == pytest.approx(issued * 0.01) and made.phases_ms["other"] == 0
    made, timeline = simulate(steps, cluster(2, 2), profile(launch_overhead_us=0.0), *planned)
    assert made.iteration_ms == pytest.approx(sum(e.ms for e in timeline.events))
    copied = next(e.ms for e in timeline.events if e.step.kind == "host_to_device")
    assert made.phases_ms["input_copy"] == pytest.approx(copied) and made.phases_ms["host_launch"] == 0


launches_us = st.sampled_from([0.0, 1.0, 20.0, 1000.0])


@settings(max_examples=100)
@given(schemes, sizes, sizes, st.sampled_from(OVERLAPS), launches_us, launches_us, st.sampled_from(["cuda", "cpu"]))
def test_a_faster_host_is_never_slower(
    kinds: tuple[str, ...], hosts: int, ranks: int, overlaps: tuple[str, ...], one_us: float, other_us: float, kind: str
) -> None:
    steps, planned = lowered(kinds, hosts, ranks)
    fast, slow = (
        simulate(steps, cluster(hosts, ranks, kind=kind), profile(*overlaps, launch_overhead_us=us), *planned)[0]
        for us in sorted((one_us, other_us))
    )
    assert fast.iteration_ms <= slow.iteration_ms * (1 + 1e-12)


@settings(max_examples=100)
@given(schemes, sizes, sizes, st.sampled_from(OVERLAPS), launches_us)
@example(("table_row_wise", "table_wise_2d"), 2, 3, (), 0.0)  # ranks are late between its first exchanges
def test_an_iteration_is_the_longer_of_two_timelines(
    kinds: tuple[str, ...], hosts: int, ranks: int, overlaps: tuple[str, ...], us: float
) -> None:
    """Without launch cost it is the device's; with it, no shorter than either, and no longer than one after the other."""
    steps, planned = lowered(kinds, hosts, ranks)
    on = cluster(hosts, ranks)
    device, timeline = simulate(steps, on, profile(*overlaps, launch_overhead_us=0.0), *planned)
    assert device.iteration_ms == pytest.approx(max(event.end_ms for event in timeline.events))
    assert device.phases_ms["host_launch"] == 0
    both, _ = simulate(steps, on, profile(*overlaps, launch_overhead_us=us), *planned)
    host_ms = us / 1e3 * sum(launches(step, profile(*overlaps), planned[1]) for step in steps.steps)
    assert max(device.iteration_ms, host_ms) * (1 - 1e-12) <= both.iteration_ms + 1e-12
    assert both.iteration_ms <= (device.iteration_ms + host_ms + 1e-9) * (1 + 1e-12)


@pytest.mark.parametrize("overlaps", [(), ("copy",), ("input",)])
def test_input_is_copied_beside_compute_or_before_it(overlaps: tuple[str, ...]) -> None:
    """512 samples of 4 tables' ids and lengths, 13 dense features and a label, over half of 20 GB/s."""
    steps, (made, work) = lowered(("row_wise",), 1, 2)
    copy = steps.steps[0]
    ids = sum(access(TABLES, LENGTHS)[t.name].mean_length * 8 + 4 * len(t.features) for t in TABLES)
    assert (copy.name, copy.kind, copy.max_bytes) == ("input.copy", "host_to_device", 512 * (ids + 4 * (work.dense_features + 1)))

    def ms(host: float) -> float:
        on = cluster(1, 2, host=host)
        return simulate(steps, on, profile(*overlaps, host_link_efficiency=0.5, launch_overhead_us=0.0), made, work)[0].iteration_ms

    takes = copy.max_bytes / (20e9 * 0.5) * 1e3
    assert ms(20) - ms(1e9) == pytest.approx(0 if overlaps else takes, abs=1e-9)
    slow = 2e-5  # GB/s: by far the longest of all streams
    assert ms(slow) >= copy.max_bytes / (slow * 1e9 * 0.5) * 1e3


def test_without_a_figure_for_the_hosts_link_no_gpu_is_simulated_and_a_cpu_needs_none() -> None:
    steps, planned = lowered(("row_wise",), 1, 2)
    on = {kind: cluster(1, 2, kind=kind) for kind in ("cuda", "cpu")}
    on = {kind: dataclasses.replace(c, device=dataclasses.replace(c.device, host_link_gb_s=None)) for kind, c in on.items()}
    with pytest.raises(UserError, match="cluster.device.host_link_gb_s"):
        simulate(steps, on["cuda"], profile(), *planned)
    _, timeline = simulate(steps, on["cpu"], profile(), *planned)
    assert "input.copy" not in {event.step.name for event in timeline.events}


def test_overlap_hides_and_never_costs() -> None:
    steps, planned = lowered(("table_wise",), 2, 2, batch_size=200_000)
    times = {o: simulate(steps, cluster(2, 2), profile(*o, launch_overhead_us=0.0), *planned)[0] for o in OVERLAPS}
    assert times["input", "dense_sync"].iteration_ms < times["input",].iteration_ms < times[()].iteration_ms
    assert times["dense_sync",].iteration_ms < times[()].iteration_ms
    assert times["dense_sync",].phases_ms["compute"] == pytest.approx(times[()].phases_ms["compute"])


@pytest.mark.parametrize(("bucket_mib", "exposed"), [(1.0, 1 / 4), (4.0, 1.0)])
def test_of_an_all_reduce_in_buckets_the_last_is_exposed(bucket_mib: float, exposed: float) -> None:
    """4 MB of gradients in buckets of 1 MiB are four; beside a backward much longer than they are, only the last one shows."""
    steps, planned = lowered(("data_parallel",), 2, 2, batch_size=200_000)
    _, timeline = simulate(steps, cluster(2, 2), profile("dense_sync", dense_bucket_mib=bucket_mib, launch_overhead_us=0.0), *planned)
    sync = next(e for e in timeline.events if e.step.name == "dense.all_reduce")
    backward = next(e for e in timeline.events if e.step.name == "dense.backward")
    whole = collective_ms(sync.step, cluster(2, 2))
    assert backward.ms > whole and sync.start_ms + whole - backward.end_ms == pytest.approx(whole * exposed)


def test_the_format_of_dense_work_picks_the_peak() -> None:
    made, work = plan(("row_wise",), 1, 2), workload(4096, forward_flops_per_sample=1e9, backward_flops_per_sample=2e9)
    h100, torchrec = of_file("cluster", "h100x64").reshaped(1, 2), of_file("profile", "torchrec")
    fp32, bf16 = (lower(made, access(TABLES, LENGTHS), Precision("p", compute=c), work) for c in ("fp32", "bf16"))

    def dense_ms(steps: Steps) -> float:
        return next(e.ms for e in schedule(steps, h100, torchrec) if e.step.name == "dense.forward")

    assert dense_ms(fp32) == pytest.approx(4096 * 1e9 / (494e12 * torchrec.dense_mfu) * 1e3)  # in TF32
    assert dense_ms(fp32) / dense_ms(bf16) == pytest.approx(989 / 494)


def test_a_missing_figure_is_refused_not_made_up() -> None:
    made, work = plan(("row_wise",), 1, 2), workload()
    steps = lower(made, access(TABLES, LENGTHS), Precision("p", compute="bf16"), work)
    with pytest.raises(UserError, match="no peak for bf16.*cluster.device.peak_tflops|cluster.device.peak_tflops.*no peak for bf16"):
        simulate(steps, cluster(1, 2), profile(), made, work)
    with pytest.raises(UserError, match="another number of ranks"):
        simulate(steps, cluster(2, 2), profile(), made, work)


@pytest.mark.parametrize("change", [{"dense_mfu": 0.0}, {"memory_efficiency": 1.5}, {"launch_overhead_us": -1.0}])
def test_a_profile_out_of_range_is_refused(change: dict) -> None:
    with pytest.raises(UserError, match=f"profile.{next(iter(change))}"):
        profile(**change)
    with pytest.raises(UserError, match="profile.overlaps.*no such choice"):
        profile("everything")


@pytest.mark.parametrize("choice", ["h100x64", "a100x32"])
def test_named_clusters_price_every_scheme(choice: str) -> None:
    on, torchrec = of_file("cluster", choice), of_file("profile", "torchrec")
    assert on.world_size == int(choice.split("x")[1])
    assert all(part.source for part in (on.device, on.intra_host, on.cross_host))
    for kind in FLAT_SCHEMES:
        steps, planned = lowered((kind,), on.hosts, on.ranks_per_host)
        made, _ = simulate(steps, on, torchrec, *planned)
        assert made.feasible and made.iteration_ms > 0 and made.profile == "torchrec"
        assert {c.group for c in made.collectives} <= {"0-63", "0-31", "0-7", "0-56:8", "0-24:8", "0-1", "0-62:2", "0-30:2"}


def test_a_plan_too_big_is_simulated_and_called_infeasible() -> None:
    steps, (made, work) = lowered(("table_wise",), 1, 2)
    tiny = cluster(1, 2)
    tiny = dataclasses.replace(tiny, device=dataclasses.replace(tiny.device, memory_gb=1e-6))
    assert not simulate(steps, tiny, profile(), made, work)[0].feasible


def test_the_record_has_the_contracts_fields_and_the_trace_opens(tmp_path: Path) -> None:
    steps, planned = lowered(("table_row_wise",), 2, 2)
    made, timeline = simulate(steps, cluster(2, 2), profile("dense_sync"), *planned)
    record = json.loads(json.dumps(asdict(made)))
    assert list(record) == [
        "cluster",
        "world_size",
        "profile",
        "examples_per_second",
        "iteration_ms",
        "phases_ms",
        "collectives",
        "bytes_per_rank",
        "feasible",
        "interval_ms",
        "cost_per_billion_samples",
        "software",
        "added_memory_bytes",
        "extrapolates",
        "price",
        "in_run",
        "bound_by",
        "torchrec_ms",
        "torchrec_host_ms",
        "doubt",
        "calibrated",
    ]
    assert list(record["collectives"][0]) == ["name", "kind", "group", "bytes", "ms"]
    assert sorted(record["bytes_per_rank"]) == ["max", "mean"]

    write_trace(timeline, tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert trace == json.loads(json.dumps(trace_json(timeline)))
    drawn = [e for e in trace["traceEvents"] if e["ph"] == "X" and e["pid"] == 1]
    shown, launched = ([e for e in drawn if (e["cat"] == "host_launch") is of_host] for of_host in (False, True))
    assert [e["name"] for e in shown] == [e.step.name for e in timeline.events]
    assert all(e["args"]["origin"] == "simulated" and e["tid"] in range(1, 7) and e["dur"] >= 0 for e in shown)
    assert max(e["ts"] + e["dur"] for e in shown) == pytest.approx(made.iteration_ms * 1e3)
    assert sum(e["args"]["kernels"] for e in launched) == sum(launches(s, profile(), planned[1]) for s in steps.steps)
    assert {e["tid"] for e in launched} == {0} and sum(e["dur"] for e in launched) <= made.iteration_ms * 1e3
    names = [e["args"]["name"] for e in trace["traceEvents"] if e["ph"] == "M"]
    assert all("simulated" in name for name in names)


@pytest.mark.parametrize("us", [1.0, 1000.0])
@pytest.mark.parametrize("kind", ["cuda", "cpu"])
@pytest.mark.parametrize("overlaps", OVERLAPS)
def test_a_timeline_ends_with_the_iteration_also_where_launches_bound_it(overlaps: tuple[str, ...], kind: str, us: float) -> None:
    """The launches of a GPU's host are a row. A CPU's come before each step, on the cores that compute it."""
    steps, planned = lowered(("row_wise",), 2, 2)
    made, timeline = simulate(steps, cluster(2, 2, kind=kind), profile(*overlaps, launch_overhead_us=us), *planned)
    drawn = [e for e in trace_json(timeline)["traceEvents"] if e["ph"] == "X" and e["pid"] == 1]
    assert max(e["ts"] + e["dur"] for e in drawn) == pytest.approx(made.iteration_ms * 1e3)
    launched = sorted((e["ts"], e["ts"] + e["dur"]) for e in drawn if e["cat"] == "host_launch")
    assert bool(launched) is (kind == "cuda") and all(end <= begin + 1e-6 for (_, end), (begin, _) in zip(launched, launched[1:]))


def test_an_unwritable_folder_is_the_users_to_mend(tmp_path: Path) -> None:
    steps, planned = lowered(("row_wise",), 1, 2)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write"):
        write_trace(simulate(steps, cluster(1, 2), profile(), *planned)[1], tmp_path / "file" / "trace.json")


def test_rows_that_look_ups_make_and_parts_of_tables_in_tiers_cost_what_the_profile_says() -> None:
    """A look-up in row blocks makes a row of every sample, whoever has its ids: 1 GB/s of it is 1 ms a MB."""
    for kind, made_bytes in (("row_wise", 4 * 512 * 4 * 80), ("flexshard", None)):
        steps, (_, work) = lowered((kind,), 2, 2)
        for step in steps.steps:
            if step.kind == "lookup":
                plain, writes, tiers = (
                    compute_step_ms(step, cluster(2, 2), profile(**more), work)
                    for more in ({}, {"output_efficiency": 1e-3}, {"tier_overhead_us": 1e3})
                )
                assert kind == "flexshard" or max(step.written_of_rank) == made_bytes
                assert (writes - plain).max() == pytest.approx(max(step.written_of_rank) / 1e6)
                assert (tiers - plain).max() == pytest.approx(max(step.shards_of_rank) if kind == "flexshard" else 0.0)


def test_a_simulation_is_printed_as_a_short_table() -> None:
    """`repr` has all fields still."""
    made = make_result("simulate").simulated
    assert made is not None
    lines = str(replace(made, interval_ms=Interval(1.3, 4.4), doubt="really GB/s?")).splitlines()
    assert lines[0] == "h100x64: 64 ranks, profile torchrec; simulated" and lines[-1] == "really GB/s?"
    assert " ".join(lines[1].split()) == "iteration 2.400 ms (90 % interval 1.300 to 4.400 ms)"
    assert [line.split()[-2:] for line in lines[2:8]] == [[f"{ms:.3f}", "ms"] for ms in made.phases_ms.values()]
    assert lines[8].split() == ["examples", "per", "second", "109,226,667"] and max(map(len, lines)) < 80 and len(lines) < 14
    assert repr(made).startswith("Simulated(cluster='h100x64', world_size=64")
