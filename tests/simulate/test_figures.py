"""Small parts of the simulator by hand: protocols, levels of links, background, profiles, the record and the trace."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest

from recsys_lab.cluster import Cluster
from recsys_lab.errors import UserError
from recsys_lab.plan.lower import lower
from recsys_lab.plan.memory import bytes_of_ranks
from recsys_lab.plan.steps import DENSE, Step
from recsys_lab.simulate import simulate, trace_json
from recsys_lab.simulate.background import First, at_rest_ms, fitted_in_ms
from recsys_lab.simulate.collectives import Cost, Shape, copied_bytes, exchange_cost, group_cost, groups_cost, shape_of
from recsys_lab.simulate.costs import compute_step_ms, layers_of
from recsys_lab.simulate.memory import MemoryAt
from recsys_lab.simulate.simulated import Collective, Spread, Timeline, extrapolates, iteration_ms
from recsys_lab.simulate.timeline import Event
from tests.plan.plans import FP32, LENGTHS, TABLES, access, plan, workload
from tests.simulate.clusters import cluster, profile

MB = 1e6
LL, LL128, SIMPLE = "LL", "LL128", "Simple"


@pytest.mark.parametrize(
    ("group", "shape"),
    [
        ((0, 1, 2, 3), Shape(4, 2, 2)),
        ((0, 2), Shape(2, 2, 1)),
        ((1, 2, 3), Shape(3, 2, 2)),
        ((4, 5), Shape(2, 1, 2)),
        ((3,), Shape(1, 1, 1)),
    ],
)
def test_a_group_has_the_most_ranks_of_a_host_and_its_hosts(group: tuple[int, ...], shape: Shape) -> None:
    assert shape_of(group, cluster(3, 2)) == shape


@pytest.mark.parametrize(
    ("kind", "size", "hosts", "ranks", "expected_us"),
    [
        # one host of 8, next to nothing: LL. A ring has 14 steps of 1 us and 6.6; a tree 6.8 and twice 3; half a ring 7; a broadcast 3
        ("all_reduce", 0, 1, 8, 6.8 + 6),
        ("reduce_scatter", 0, 1, 8, 6.6 + 7),
        ("all_gather", 0, 1, 8, 6.6 + 7),
        ("broadcast", 0, 1, 8, 6.8 + 3),
        ("all_to_all", 0, 1, 8, 25 + 1),  # messages to all ranks of a host are under way together
        # 4 hosts of 2: a ring passes from host to host 4 times a round; a tree climbs 1 near and 2 far steps of 10 + 2.3
        ("all_gather", 0, 4, 2, 6.6 + 3 * 1 + 4 * 10),
        ("all_reduce", 0, 4, 2, 6.8 + 2 * (1 + 2 * 12.3)),
        ("broadcast", 0, 4, 2, 6.8 + 1 + 2 * 12.3),
        ("all_to_all", 0, 4, 2, 25 + 1 + 3 * 10),  # and those to each other host
        # one rank a host: every step is far; of two ranks both steps of an all-reduce
        ("all_gather", 0, 3, 1, 6.6 + 2 * 10),
        ("reduce_scatter", 0, 2, 1, 6.6 + 10),
        # 800 kB of 4 ranks near: 0.6 MB at a quarter of 100 GB/s, at 0.55 of it, or at all of it behind 24 MB x 3 / 14: 24 us, 10.9, 57
        ("reduce_scatter", 800e3, 1, 4, 14 + 3 * 2.3 + 600 / 55),
        # 800 MB: Simple, whose steps are 1 + 2.8 us, and whose pipeline takes 24 MB x 3 / 14 to fill
        ("reduce_scatter", 800e6, 1, 4, 8.4 + 3 * 3.8 + 6000 + 24e6 * 3 / 14 / 1e5),
        ("all_gather", 200e6, 1, 4, 8.4 + 3 * 3.8 + 6000 + 24e6 * 3 / 14 / 1e5),
        ("all_reduce", 800e6, 1, 4, 8.4 + 6 * 3.8 + 12000 + 24e6 * 6 / 14 / 1e5),
        ("broadcast", 800e6, 1, 4, 8.4 + 2 * 3.8 + 8000 + 12e6 / 1e5),
        ("broadcast", 800e6, 2, 2, 8.4 + 3.8 + 21.3 + 40000 + 12e6 / 2e4),
        # two hosts of 2: the far links of 10 GB/s carry half of 3/4 each
        ("reduce_scatter", 800e6, 2, 2, 8.4 + 3.8 + 2 * 21.3 + 30000 + 24e6 * 3 / 14 / 2e4),
    ],
)  # fmt: skip
def test_the_fastest_of_nccls_protocols(kind: str, size: float, hosts: int, ranks: int, expected_us: float) -> None:
    shape = Shape(hosts * ranks, hosts, ranks)
    assert group_cost(kind, shape, size, cluster(hosts, ranks)).ms * 1e3 == pytest.approx(expected_us, rel=1e-9)


@pytest.mark.parametrize(
    ("near_us", "far_us", "hosts", "ranks", "start_us"), [(5, 9, 2, 2, 9), (9, 5, 2, 2, 9), (5, 9, 1, 4, 5), (9, 5, 4, 1, 5)]
)
def test_a_collective_begins_when_all_of_its_links_have(near_us: float, far_us: float, hosts: int, ranks: int, start_us: float) -> None:
    bare = cluster(hosts, ranks)
    on = replace(bare, intra_host=replace(bare.intra_host, start_us=near_us), cross_host=replace(bare.cross_host, start_us=far_us))
    shape = Shape(4, hosts, ranks)
    for kind in ("all_to_all", "all_reduce", "broadcast"):
        assert group_cost(kind, shape, 8e6, on).ms - group_cost(kind, shape, 8e6, bare).ms == pytest.approx(start_us / 1e3)


def test_links_above_the_leaves_carry_what_goes_to_other_leaves() -> None:
    """4 hosts, two a leaf: two of three other hosts are above, at a third of 10 GB/s. 600 of 800 MB are far."""
    on = replace(cluster(4, 2, kind="cpu", cross_us=0.0, intra_us=0.0), hosts_per_leaf=2, leaf_oversubscription=3.0)
    cost = group_cost("all_to_all", Shape(8, 4, 2), 800 * MB, on)
    assert cost == Cost(pytest.approx(60 * 2 / 3 * 3), pytest.approx(120))
    few = replace(on, leaf_oversubscription=1.0)
    assert group_cost("all_to_all", Shape(8, 4, 2), 800 * MB, few).ms == pytest.approx(60)


def test_gloo_copies_and_nccl_does_not() -> None:
    on_cpu, on_gpu = cluster(1, 4, kind="cpu"), cluster(1, 4)
    assert [copied_bytes(kind, 4, 10.0, on_cpu) for kind in ("all_gather", "reduce_scatter", "all_reduce", "all_to_all")] == [40, 10, 0, 0]
    assert copied_bytes("all_gather", 4, 10.0, on_gpu) == 0


def test_every_group_has_the_cost_of_its_own_busiest_rank() -> None:
    """Near groups of two: half of 200 and of 400 MB at 100 GB/s, whether it is put in or taken out."""
    on = cluster(2, 2, kind="cpu", intra_us=0.0)
    step = Step("s", "all_to_all", "forward", (200 * MB, 0.0, 0.0, 0.0), ((0, 1), (2, 3)), received_of_rank=(0.0, 0.0, 0.0, 400 * MB))
    assert [cost.ms for cost in groups_cost(step, on)] == pytest.approx([1.0, 2.0])
    alike = Step("s", "all_to_all", "forward", (200 * MB,), ((0, 1), (2, 3)), received_of_rank=(400 * MB,))
    assert [cost.ms for cost in groups_cost(alike, on)] == pytest.approx([2.0, 2.0])
    assert [cost.ms for cost in groups_cost(replace(alike, groups=((0,), (1, 2))), replace(on, cross_host=on.intra_host))] == [
        0.0, pytest.approx(2.0)
    ]  # fmt: skip


def test_a_rank_alone_exchanges_nothing() -> None:
    piece = Step("s", "scatter", "forward", (0.0, 8e6, 0.0), ((0,), (1, 2)))
    assert exchange_cost([piece], cluster(3, 1))[0] == Cost(0.0, 0.0) and exchange_cost([piece], cluster(3, 1))[1].ms > 0


def first(begin: float, end: float) -> First:
    return First(np.array([begin]), np.array([end]))


@pytest.mark.parametrize(
    ("others", "rest", "fitted"),
    [
        ([], 5.0, 5.0),
        ([first(0, 1)], 5.0, 5.0),  # done before
        ([first(1, 3)], 6.0, 6.0),  # a millisecond of it is left at 2
        ([first(3, 6)], 8.0, 8.0),
        ([first(5, 6)], 6.0, 5.0),  # behind what fits in
        ([first(3, 4), first(5, 7)], 8.0, 8.0),
        ([first(3, 4), first(6, 7)], 7.0, 6.0),
        ([first(9, 20)], 20.0, 5.0),
    ],
)
def test_three_milliseconds_from_the_second_on_behind_others(others: list[First], rest: float, fitted: float) -> None:
    assert (at_rest_ms(2.0, 3.0, others), fitted_in_ms(2.0, 3.0, others)) == (rest, fitted)


def test_background_of_several_ranks_ends_with_the_last_of_them() -> None:
    two = [First(np.array([3.0, 3.0]), np.array([4.0, 6.0]))]
    assert (at_rest_ms(2.0, 3.0, two), fitted_in_ms(2.0, 3.0, two)) == (8.0, 8.0)


SHARES = ("lookup_efficiency_forward", "lookup_efficiency_backward", "output_efficiency", "memory_efficiency", "dense_mfu", "dots_mfu")
SHARES += ("fp32_mfu", "link_efficiency", "host_link_efficiency", "small_mfu")
NOT_NEGATIVE = (
    "launch_overhead_us",
    "kernel_us",
    "relative_error_outside",
    "relative_error_hosts",
    "iteration_overhead_ms",
    "table_overhead_us",
    "tier_overhead_us",
    "relative_error",
    "lookup_ns",
    "cached_table_us",
    "cached_lookup_ns",
    "cached_miss_ns",
)


@pytest.mark.parametrize("key", SHARES)
def test_a_share_of_a_peak_is_above_nothing_and_at_most_all(key: str) -> None:
    assert getattr(profile(**{key: 1.0}), key) == 1.0 and getattr(profile(**{key: 1e-3}), key) == 1e-3
    for wrong in (0.0, 1.001, -0.5):
        with pytest.raises(UserError, match=f"profile.{key}.*1e-09 or more, at most 1"):
            profile(**{key: wrong})


@pytest.mark.parametrize(
    ("key", "right", "wrong"),
    [
        *((key, 0.0, -0.1) for key in (*NOT_NEGATIVE, "process_memory_mb")),
        ("cores_for_links", 0.0, -0.1),
        ("cores_for_links", 0.99, 1.0),
        ("buffer_factor", 1.0, 0.99),
        ("dense_bucket_mib", 0.5, 0.0),
    ],
)
def test_figures_of_a_profile_have_their_least(key: str, right: float, wrong: float) -> None:
    assert getattr(profile(**{key: right}), key) == right
    with pytest.raises(UserError, match=f"profile.{key}"):
        profile(**{key: wrong})


def test_a_profile_adds_nothing_that_it_does_not_say() -> None:
    told = asdict(profile())
    assert [told[key] for key in ("link_efficiency", "host_link_efficiency", "buffer_factor")] == [1.0] * 3
    nothing = ("lookup_ns", "table_overhead_us", "tier_overhead_us", "iteration_overhead_ms", "cores_for_links", "process_memory_mb")
    nothing += ("cached_table_us", "cached_lookup_ns", "cached_miss_ns")
    assert [told[key] for key in nothing] == [0.0] * 9 and (told["kernel_us"], told["exchanges_ids"], told["fitted_systems"]) == (
        0.0,
        True,
        {},
    )
    assert [told[key] for key in ("output_efficiency", "dots_mfu", "relative_error", "fitted_kind")] == [None, None, None, "cuda"]


def test_a_pipelined_profile_says_why_its_input_overlaps() -> None:
    plain = replace(profile("dense_sync"), sources={"overlaps": "DDP"})
    assert plain.pipelined == replace(
        plain, name="made_up_pipelined", overlaps=["input", "dense_sync"], sources={"overlaps": "DDP; input: the executor's pipeline"}
    )
    assert profile().pipelined.sources == {"overlaps": "input: the executor's pipeline"}
    assert plain.pipelined.pipelined is not None and plain.pipelined.pipelined.name == "made_up_pipelined"


@pytest.mark.parametrize(
    ("systems", "hosts", "words"),
    [
        ({}, 4, None),  # nobody says on what it was fitted
        ({"device": 4}, 4, None),
        ({"device": 1, "other": 8}, 4, "fitted on 1 host of device, 8 hosts of other; this is 4 hosts of device"),
        ({"other": 8}, 1, "fitted on 8 hosts of other; this is 1 host of device"),
    ],
)
def test_outside_of_the_fit_a_simulation_says_so(systems: dict[str, int], hosts: int, words: str | None) -> None:
    assert extrapolates(profile(relative_error=0.1, fitted_systems=systems), cluster(hosts, 2)) == words


@pytest.mark.parametrize(
    ("hosts", "ranks", "expected_us"),
    [
        (1, 4, 25 + 1 + 7 + 6000 / 1),  # 600 of 800 MB near, at 100 GB/s
        (2, 1, 25 + 10 + 300 + 400e6 / 10e3),  # one peer
        (3, 1, 25 + 20 + 300 + 800e6 * 2 / 3 / 8e3),  # two: a fifth less
        (2, 2, 25 + 1 + 10 + 300 + 400e6 / 8e3),
        (5, 1, 25 + 40 + 300 + 640e6 / 6.4e3),  # four
    ],
)
def test_an_exchange_starts_once_and_loses_bandwidth_with_every_doubling_of_its_peers(hosts: int, ranks: int, expected_us: float) -> None:
    on = cluster(hosts, ranks)
    on = replace(
        on, cross_host=replace(on.cross_host, exchange_us=300.0, fall_per_doubling=0.2), intra_host=replace(on.intra_host, exchange_us=7.0)
    )
    assert group_cost("all_to_all", Shape(hosts * ranks, hosts, ranks), 800e6, on).ms * 1e3 == pytest.approx(expected_us)
    assert group_cost("all_reduce", Shape(4, 2, 2), 1e6, on) == group_cost("all_reduce", Shape(4, 2, 2), 1e6, cluster(2, 2))


def lookup(phase: str, **figures: Any) -> Step:
    return Step("s", "lookup" if phase == "forward" else "update", phase, (500e6,), **figures)


@pytest.mark.parametrize(
    ("phase", "software", "expected_ms"),
    [
        ("forward", {}, 1.0),  # half of 1000 GB/s
        ("backward", {}, 2.0),  # a quarter
        ("optimizer", {}, 0.625),  # 0.8
        ("forward", {"lookup_ns": 100.0}, 1.0),  # of updates only
        ("backward", {"lookup_ns": 100.0}, 2.0 + 3000 * 1e-4),
        ("forward", {"table_overhead_us": 50.0}, 1.0 + 2 * 0.05),
        ("forward", {"tier_overhead_us": 50.0}, 1.0),
        ("forward", {"output_efficiency": 0.25}, 1.0 + 1e6 / 250e6),
        ("forward", {"cache_speed": 4.0}, 0.2 + 0.8 / 4),  # 400 of 500 MB were read before
        ("backward", {"cache_speed": 4.0}, 0.4 + 1.6 / 4),
    ],
)
def test_table_work_by_hand(phase: str, software: dict[str, float], expected_ms: float) -> None:
    """3,000 look-ups of two tables that make a MB of rows."""
    step = lookup(phase, rows_of_rank=(3000.0,), shards_of_rank=(2.0,), written_of_rank=(1e6,), repeated_of_rank=(400e6,))
    assert compute_step_ms(step, cluster(1, 2), profile(**software), None) == pytest.approx([expected_ms])


def test_dense_work_without_known_layers_is_its_flops_or_its_bytes() -> None:
    step = Step("s", "dense", "forward", (8e6,), flops=2e9, number_format="fp32", role=DENSE)
    assert compute_step_ms(step, cluster(1, 2), profile(), None) == pytest.approx([2e9 / 20e9])
    assert compute_step_ms(replace(step, bytes_of_rank=(800e6,)), cluster(1, 2), profile(), workload()) == pytest.approx([1.0])
    assert layers_of(step, profile(), workload()) == [] and layers_of(step, profile(), None) == []


def simulated(on: Cluster, **software: Any) -> tuple[Any, Timeline, Any]:
    made, work = plan(("row_wise",), 2, 2), workload(512, dense_parameters=1000)
    steps = lower(made, access(TABLES, LENGTHS), FP32, work)
    return *simulate(steps, on, profile(**software), made, work), bytes_of_ranks(made, work)


def test_the_record_by_hand() -> None:
    on = replace(cluster(2, 2), price_per_device_hour=3.0)
    record, timeline, memory = simulated(on, relative_error=0.2)
    ms = record.iteration_ms
    assert record.examples_per_second == pytest.approx(2048 / ms * 1e3)
    assert record.cost_per_billion_samples == pytest.approx(1e9 / 2048 * ms / 3.6e6 * 4 * 3.0, rel=1e-12)
    assert record.interval_ms is None  # only where it is asked for
    made, work = plan(("row_wise",), 2, 2), workload(512, dense_parameters=1000)
    assert iteration_ms(lower(made, access(TABLES, LENGTHS), FP32, work), on, profile(), made, work, None, memory) == pytest.approx(
        ms, rel=1e-12
    )
    assert record.bytes_per_rank == Spread(max(memory.lasting), sum(memory.lasting) / 4)
    exchanges = [e for e in timeline.events if e.step.is_collective]
    assert record.collectives[0] == Collective("row_wise.input.splits", "all_to_all", "0-3", 96.0, exchanges[0].ms)
    assert (record.cluster, record.world_size, record.profile, record.feasible) == ("made_up", 4, "made_up", True)
    assert timeline.title == "simulated: made_up, 4 ranks, profile made_up"
    assert simulated(cluster(2, 2))[0].cost_per_billion_samples is None


def test_a_plan_is_feasible_to_the_byte() -> None:
    _, _, memory = simulated(cluster(2, 2))
    on = replace(cluster(2, 2), reserved_memory_share=0.0)
    for gb, feasible in ((max(memory.totals) / 1e9, True), ((max(memory.totals) - 1) / 1e9, False)):
        assert simulated(replace(on, device=replace(on.device, memory_gb=gb)))[0].feasible == feasible


def test_the_trace_by_hand() -> None:
    exchange = Step("rows", "all_to_all", "forward", (1.0, 5.0), ((0, 8), (1, 9)))
    events = (
        Event(Step("lookup", "lookup", "forward", (7.0,)), 0.0, 1.5),
        Event(exchange, 1.0, 3.0, "across"),
        Event(replace(exchange, name="more"), 2.0, 4.0, "across"),
        Event(replace(exchange, name="then"), 3.0, 5.0, "across", elsewhere=True),
    )
    memory = (MemoryAt(0.5, 10, 2.0, 3.0),)
    trace = trace_json(Timeline("title", events, memory, events[:1]))
    assert trace["displayTimeUnit"] == "ms" and trace["otherData"]["origin"] == "simulated"
    assert trace["otherData"]["waited_ms"] == {"host_launch": 0.0, "lookup": 1.5, "rows": 1.5, "more": 1.0}
    shown = [(e["name"], e["pid"], e["tid"], e["ts"], e["dur"]) for e in trace["traceEvents"] if e["ph"] == "X"]
    assert shown == [
        ("lookup", 1, 1, 0.0, 1500.0),
        ("rows", 1, 3, 1000.0, 2000.0),
        ("more", 1, 10, 2000.0, 2000.0),  # beside the first: a track of its own
        ("then", 1, 3, 3000.0, 2000.0),
        ("lookup", 2, 1, 0.0, 1500.0),
    ]
    args = {e["name"]: e["args"] for e in trace["traceEvents"] if e["ph"] == "X"}
    assert args["lookup"] == {"origin": "simulated", "phase": "forward", "bytes per rank (max)": 7.0}
    assert args["rows"] == {"origin": "simulated", "phase": "forward", "bytes per rank (max)": 5.0, "group": "0-8:8"}
    assert args["then"]["on other ranks only"] is True
    named = {(e["pid"], e.get("tid")): e["args"]["name"] for e in trace["traceEvents"] if e["ph"] == "M"}
    assert named[1, None] == "title" and named[2, None] == "title, the rank that computes least"
    assert [named[1, tid].split(" (")[0] for tid in (1, 2, 3, 4, 5, 6, 7, 10)] == [
        "compute", "input distribution", "embeddings across hosts", "embeddings within a host", "dense gradients", "copies from the host",
        "the host's disk", "embeddings across hosts",
    ]  # fmt: skip
    (counter,) = [e for e in trace["traceEvents"] if e["ph"] == "C"]
    assert (counter["ts"], counter["pid"]) == (500.0, 1) and counter["args"] == {"lasting": 10, "activations": 2.0, "communication": 3.0}
    assert [e for e in trace_json(Timeline("title", events))["traceEvents"] if e["pid"] == 2] == []
