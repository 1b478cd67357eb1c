"""Rows from a host's memory or its disk: what they cost by formula, when they come, and what an iteration waits for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_lab.cluster import Cluster, Disk, Host
from recsys_lab.errors import UserError
from recsys_lab.plan.steps import DENSE, FETCH, WRITE_BACK, Step, Steps
from recsys_lab.plan.store import DISK_CACHED, DISK_HOST_CACHED, HOST, HOST_CACHED
from recsys_lab.simulate.bounds import bounds_of
from recsys_lab.simulate.phases import exposed_phases
from recsys_lab.simulate.placed import Placed
from recsys_lab.simulate.simulated import Timeline
from recsys_lab.simulate.stores import BOOKKEEPING, _of_link_ms, link_ms, moved_ms, with_bookkeeping
from recsys_lab.simulate.timeline import place
from recsys_lab.simulate.trace import trace_json
from tests.plan.plans import workload
from tests.simulate.clusters import cluster, profile

FLOPS_A_MS = 20e9  # 0.4 of 50 TFLOP/s
LOOKED_UP_A_MS = 500e6  # half of 1000 GB/s
OVER_LINK_A_MS = 10e6  # half of 20 GB/s
MOVED_A_MS = 800e6  # 0.8 of 1000 GB/s
SOFTWARE = {"host_link_efficiency": 0.5, "launch_overhead_us": 0.0}
MEMORY = Host("memory", 1000.0, 400.0, "for the test")
#: 10 MB read a ms, 5 MB written; 1,000 and 500 records.
DRIVE = Disk("drive", 1000.0, 10.0, 5.0, 1e6, "for the test")
Spans = dict[str, tuple[list[float], list[float]]]


def on(hosts: int = 1, ranks_per_host: int = 2, **figures: float) -> Cluster:
    return replace(cluster(hosts, ranks_per_host, cross_us=0.0, intra_us=0.0, **{"kind": "cuda"} | figures), host=MEMORY, disk=DRIVE)


def fetch(ms: float, *after: str, store: str = HOST_CACHED, phase: str = "input", records: float = 0.0) -> Step:
    return Step("fetch", FETCH, phase, (ms * OVER_LINK_A_MS,), after=after, store=store, rows_of_rank=(records,))


def write_back(ms: float, *after: str, store: str = HOST_CACHED, phase: str = "input", records: float = 0.0) -> Step:
    return replace(fetch(ms, *after, store=store, phase=phase, records=records), name="write_back", kind=WRITE_BACK)


def dense(phase: str, ms: float, *after: str) -> Step:
    return Step(f"dense.{phase}", "dense", phase, (1.0,), flops=ms * FLOPS_A_MS, after=after, number_format="fp32", role=DENSE)


LOOKUP = Step("lookup", "lookup", "forward", (LOOKED_UP_A_MS,), after=("fetch",))
COPY = Step("copy", "host_to_device", "input", (OVER_LINK_A_MS,))


def iteration(*before: Step, forward: float = 3, backward: float = 6, behind: tuple[Step, ...] = ()) -> Steps:
    """`before`, a look-up of 1 ms, and the dense part."""
    rest = (LOOKUP, dense("forward", forward, "lookup"), dense("backward", backward, "dense.forward"), *behind)
    return Steps(2, 100, (*before, *rest))


def spans(steps: Steps, *overlaps: str, cluster_: Cluster | None = None) -> Spans:
    whole = place(steps, cluster_ or on(), profile(*overlaps, **SOFTWARE))
    return {p.step.name: (p.start.round(9).tolist(), p.end.round(9).tolist()) for p in whole.placed}


def phases(steps: Steps, *overlaps: str, cluster_: Cluster | None = None) -> dict[str, float]:
    whole = place(steps, cluster_ or on(), profile(*overlaps, **SOFTWARE))
    return {name: round(ms, 9) for name, ms in exposed_phases(whole.events(whole.slowest)).items() if ms}


def alike(start: float, end: float) -> tuple[list[float], list[float]]:
    return [start], [end]


def test_alone_rows_come_before_the_look_up() -> None:
    steps = iteration(COPY, write_back(2), fetch(4, "write_back"))
    found = spans(steps)
    assert [found[name] for name in ("copy", "write_back", "fetch", "lookup")] == [alike(0, 1), alike(1, 3), alike(3, 7), alike(7, 8)]
    assert phases(steps) == {"compute": 10.0, "exposed_store": 6.0, "input_copy": 1.0}


def test_of_the_next_batch_they_come_beside_compute_and_what_is_left_is_waited_for() -> None:
    """They begin when the look-up of 1 ms ends, with the dense part, which takes 9."""
    short, long = (iteration(COPY, write_back(2), fetch(ms, "write_back")) for ms in (4, 12))
    found = spans(short, "input")
    assert [found[name] for name in ("copy", "lookup", "write_back", "fetch")] == [alike(0, 1), alike(0, 1), alike(1, 3), alike(3, 7)]
    assert phases(short, "input") == {"compute": 10.0}
    assert spans(long, "input")["fetch"] == alike(3, 15) and phases(long, "input") == {"compute": 10.0, "exposed_store": 5.0}
    blocked = replace(long, steps=tuple(replace(s, blocks=s.kind == FETCH) for s in long.steps))
    assert phases(blocked, "input") == {"compute": 10.0, "exposed_store": 12.0, "input_copy": 1.0}  # first on the link


def test_on_cpus_they_begin_when_the_forward_pass_ends() -> None:
    """As our executors send the ids then. A GPU's begin with the iteration."""
    steps = iteration(fetch(1))
    found = spans(steps, "input", cluster_=on(kind="cpu"))
    assert found["fetch"][0] == found["dense.forward"][1] > [0.0] and spans(steps, "input")["fetch"][1] < found["fetch"][0]


def test_after_an_exchange_of_ids_they_begin_when_that_could_be_done() -> None:
    """They take 3 ms, from the dense part's beginning on, which waits for rows until 3."""
    ids = Step("ids", "all_to_all", "input", (60e6,), ((0, 1),))
    rows = Step("rows", "all_to_all", "forward", (40e6,), ((0, 1),), after=("lookup",))
    on_cpu = replace(fetch(1, "ids"), bytes_of_rank=(4 * MOVED_A_MS,))
    forward, backward = dense("forward", 3, "rows"), dense("backward", 6, "dense.forward")
    steps = Steps(2, 100, (ids, on_cpu, LOOKUP, rows, forward, backward))
    found = spans(steps, "input", cluster_=on(2, 1, kind="cpu"))
    assert [found[name] for name in ("rows", "ids", "fetch")] == [alike(1, 3), alike(3, 6), alike(6, 10)]
    found = spans(steps, cluster_=on(2, 1, kind="cpu"))
    assert [found[name] for name in ("ids", "fetch", "lookup")] == [alike(0, 3), alike(3, 7), alike(7, 8)]


def test_a_link_carries_one_thing_at_a_time() -> None:
    """The copy takes it for 8 ms; kernels that read rows where they are go before what a cache takes in."""
    late = replace(COPY, bytes_of_rank=(8 * OVER_LINK_A_MS,))
    assert spans(iteration(late, fetch(4)), "input")["fetch"] == alike(8, 12)
    there = replace(fetch(5, store=HOST, phase="forward"), name="read")
    found = spans(iteration(there, fetch(20)), "input")
    assert found["read"] == alike(0, 5) and found["fetch"] == alike(6, 26)  # they do not meet
    back = replace(write_back(4, "dense.backward", store=HOST, phase="backward"), name="written")
    steps = iteration(fetch(10), behind=(back,))
    found = spans(steps, "input")
    assert found["written"] == alike(10, 14) and found["fetch"] == alike(1, 15)  # 10 of its own, and 4 behind the kernel
    assert phases(steps, "input") == {"compute": 10.0, "exposed_store": 5.0}


def test_rows_that_kernels_read_are_on_the_compute_stream() -> None:
    back = write_back(7, "dense.backward", store=HOST, phase="backward")
    steps = iteration(fetch(5, store=HOST, phase="forward"), behind=(back,))
    for overlaps in ((), ("input",)):
        found = spans(steps, *overlaps)
        assert found["fetch"] == alike(0, 5) and found["lookup"] == alike(5, 6) and found["write_back"] == alike(15, 22)
        assert phases(steps, *overlaps) == {"compute": 10.0, "exposed_store": 12.0}


def test_a_host_shares_its_memory_and_its_disk() -> None:
    """Eight ranks: 400 GB/s are 50 for each, more than half of 20 GB/s, and fewer where the links are faster."""
    software = profile(**SOFTWARE)
    assert moved_ms(fetch(1), on(1, 8), software) == pytest.approx([1.0])
    assert moved_ms(fetch(1), on(1, 8, host=400.0), software) == pytest.approx([8 * 10e6 / 400e9 * 1e3])
    uneven = replace(fetch(1, store=DISK_CACHED), bytes_of_rank=(10e6, 30e6, 0.0, 20e6))
    assert moved_ms(uneven, on(2, 2), software).tolist() == pytest.approx([4.0, 4.0, 2.0, 2.0])
    assert moved_ms(replace(uneven, kind=WRITE_BACK), on(2, 2), software).tolist() == pytest.approx([8.0, 8.0, 4.0, 4.0])


@pytest.mark.parametrize(
    ("step", "ms"),
    [
        (fetch(1, store=DISK_CACHED, records=1000), 2.0),  # 20 MB of two ranks in order
        (fetch(1, store=DISK_CACHED, records=5000), 10.0),  # 10,000 requests
        (write_back(1, store=DISK_CACHED, records=500), 4.0),
        (write_back(1, store=DISK_CACHED, records=2500), 4.0),  # in order, however many
    ],
)
def test_a_disk_is_bound_by_bytes_or_by_requests(step: Step, ms: float) -> None:
    for kind in ("cuda", "cpu"):
        assert moved_ms(step, on(kind=kind), profile(**SOFTWARE)) == pytest.approx([ms])
    assert bounds_of([step], on(), profile(**SOFTWARE), workload()) == {step.name: "disk"}


def test_a_slow_link_bounds_what_a_disk_reads() -> None:
    step, slow = fetch(1, store=DISK_CACHED, records=1000), on(host=1.0)
    assert moved_ms(step, slow, profile(**SOFTWARE)) == pytest.approx([20.0])
    assert bounds_of([step], slow, profile(**SOFTWARE), workload()) == {"fetch": "host link"}
    assert bounds_of([fetch(1)], on(), profile(**SOFTWARE), workload()) == {"fetch": "host link"}
    found = spans(iteration(write_back(1, store=DISK_CACHED), replace(fetch(1), name="other")), "input")
    assert found["write_back"] == alike(1, 5) and found["other"] == alike(2, 3)  # the link has what the disk writes in 1 ms


def test_a_cpus_memory_is_its_hosts() -> None:
    step = replace(fetch(1), bytes_of_rank=(800e6,))
    assert moved_ms(step, on(kind="cpu"), profile(**SOFTWARE)) == pytest.approx([1.0])
    assert moved_ms(step, replace(on(kind="cpu"), host=None, disk=None), profile(**SOFTWARE)) == pytest.approx([1.0])


@pytest.mark.parametrize(
    ("step", "changes", "key"),
    [
        (fetch(1), {"host": None}, "cluster.host"),
        (fetch(1, store=DISK_CACHED), {"disk": None}, "cluster.disk"),
        (fetch(1), {"device": replace(on().device, host_link_gb_s=None)}, "cluster.device.host_link_gb_s"),
    ],
)
def test_a_missing_figure_is_named(step: Step, changes: dict, key: str) -> None:
    with pytest.raises(UserError) as caught:
        moved_ms(step, replace(on(), **changes), profile(**SOFTWARE))
    assert caught.value.parts["where"] == key and "\n" not in str(caught.value) and "remedy" in caught.value.parts


def test_a_trace_says_the_store() -> None:
    steps = iteration(write_back(1, store=DISK_CACHED, records=7), fetch(1, "write_back"))
    whole = place(steps, on(), profile("input", **SOFTWARE))
    trace = trace_json(Timeline("title", tuple(whole.events(0))), bounds_of(steps.steps, on(), profile(**SOFTWARE), workload()))
    told = {e["name"]: e for e in trace["traceEvents"] if e["ph"] == "X"}
    assert (told["write_back"]["tid"], told["fetch"]["tid"]) == (7, 6)
    args = told["write_back"]["args"]
    assert (args["store"], args["records per rank (max)"], args["bound by"]) == (DISK_CACHED, 7, "disk")


#: Of each look-up 100 ns, of each row that is missed 1 µs, of each table half a millisecond.
KEPT = {"cached_table_us": 500.0, "cached_lookup_ns": 100.0, "cached_miss_ns": 1000.0}


def with_cache(store: str = DISK_CACHED) -> Steps:
    """Two ranks, of which the second has twice as much to do: two tables, 40,000 look-ups, 3,000 rows missed, of which none leaves yet."""
    back = write_back(1, "ids", store=store)
    rows = fetch(1, "write_back", store=store)
    asked = replace(rows, shards_of_rank=(1.0, 2.0), asked_of_rank=(20_000.0, 40_000.0), missed_of_rank=(1500.0, 3000.0))
    return iteration(back, asked)


@pytest.mark.parametrize("store", [HOST_CACHED, DISK_CACHED])
def test_what_a_cache_costs_cores_is_on_a_cpus_compute_stream(store: str) -> None:
    here, software = on(kind="cpu"), profile("input", **SOFTWARE, **KEPT)
    plain, made = with_cache(store), with_bookkeeping(with_cache(store), here, software)
    (kept,) = [step for step in made.steps if step not in plain.steps]
    assert (kept.name, kept.store, kept.phase, kept.after) == (f"fetch.{BOOKKEEPING}", BOOKKEEPING, "forward", ("ids",))
    assert moved_ms(kept, here, software).tolist() == pytest.approx([0.5 + 2.0 + 1.5, 1.0 + 4.0 + 3.0])
    bare, whole = (place(steps, here, software) for steps in (plain, made))
    assert (whole.ends - bare.ends).tolist() == pytest.approx([4.0, 8.0])
    assert {one.step.name: one for one in whole.placed}[kept.name].stream == "compute"


def test_without_its_figures_or_on_a_gpu_a_cache_costs_no_core() -> None:
    steps = with_cache()
    assert with_bookkeeping(steps, on(kind="cpu"), profile(**SOFTWARE)) is steps
    assert with_bookkeeping(steps, on(), profile(**SOFTWARE, **KEPT)) is steps
    for key, figure in KEPT.items():
        assert with_bookkeeping(steps, on(kind="cpu"), profile(**SOFTWARE, **{key: figure})) is not steps
    kernels_read = iteration(fetch(1, store=HOST, phase="forward"))
    assert with_bookkeeping(kernels_read, on(kind="cpu"), profile(**SOFTWARE, **KEPT)) == kernels_read


@settings(max_examples=50)
@given(st.tuples(*[st.floats(0, 1e3)] * 3), st.tuples(*[st.floats(1, 5)] * 3), st.sampled_from([(), ("input",)]))
def test_a_cheaper_cache_makes_no_iteration_slower(costs: tuple, dearer: tuple, overlaps: tuple[str, ...]) -> None:
    here = on(kind="cpu")
    cheap, dear = (
        profile(*overlaps, **SOFTWARE, **dict(zip(KEPT, figures))) for figures in (costs, [c * d for c, d in zip(costs, dearer)])
    )
    ends = [place(with_bookkeeping(with_cache(), here, one), here, one).ends.max() for one in (cheap, dear)]
    assert ends[0] <= ends[1] * (1 + 1e-12)


ms = st.sampled_from([0.0, 0.5, 2.0, 9.0])
factors = st.sampled_from([1.0, 1.3, 10.0])
OVERLAPS = [(), ("copy",), ("input",), ("input", "collectives"), ("copy", "bottom")]


@settings(max_examples=200)
@given(st.tuples(*[ms] * 7), st.sampled_from(["cuda", "cpu"]), st.sampled_from(OVERLAPS), st.tuples(*[factors] * 6))
def test_nothing_faster_makes_an_iteration_slower(
    took: tuple[float, ...], kind: str, overlaps: tuple[str, ...], faster: tuple[float, ...]
) -> None:
    """All stores at once, on two hosts; and no link or disk carries more than an iteration is long."""
    ids = Step("ids", "all_to_all", "input", (took[6] * 20e6,), ((0, 1),))
    names = iter(range(100))

    def own(step: Step, *after: str) -> Step:
        return replace(step, name=f"{step.kind}.{next(names)}", after=after)

    before = [
        ids,
        replace(COPY, bytes_of_rank=(took[0] * OVER_LINK_A_MS,)),
        own(write_back(took[1]), "ids"),
        own(fetch(took[2]), "ids"),
        own(fetch(took[3], store=DISK_CACHED, records=1000 * took[1]), "ids"),
        own(fetch(took[4], store=HOST, phase="forward"), "ids"),
    ]
    steps = iteration(*before, behind=(own(write_back(took[5], store=HOST, phase="backward"), "dense.backward"),))
    software = profile(*overlaps, **SOFTWARE)

    def ends(cluster_: Cluster) -> float:
        return float(place(steps, cluster_, software).ends.max())

    slow = on(2, 1, kind=kind)
    link, memory, disk, requests, cross, tflops = faster
    fast = on(2, 1, kind=kind, host=20 * link, memory=1000 * memory, cross=10 * cross, tflops=50 * tflops)
    drive = replace(DRIVE, read_gb_s=10 * disk, write_gb_s=5 * disk, random_reads_per_s=1e6 * requests)
    assert ends(replace(fast, disk=drive)) <= ends(slow) * (1 + 1e-12)
    if kind == "cuda":
        assert ends(slow) >= sum(took[:6]) * (1 - 1e-12)


def test_rows_of_a_disk_keep_the_link_no_longer_than_it_carries_them() -> None:
    zeros = np.zeros(2)

    def placed(step: Step) -> Placed:
        return Placed(step, "disk", zeros, zeros + 9.0, np.full(2, True), zeros)

    from_disk = Step("fetch", FETCH, "input", (10e6,), store=DISK_CACHED, rows_of_rank=(0.0,))
    software = profile(**SOFTWARE)
    assert _of_link_ms(placed(from_disk), on(), software).tolist() == link_ms(from_disk, on(), software).tolist() == [1.0]
    assert _of_link_ms(placed(COPY), on(), software).tolist() == [9.0, 9.0]


def test_rows_that_a_disk_brings_to_the_host_do_not_pass_the_link() -> None:
    step, slow, software = fetch(1, store=DISK_HOST_CACHED, records=1000), on(host=1.0), profile(**SOFTWARE)
    assert moved_ms(step, slow, software) == pytest.approx([2.0])  # 20 MB of two ranks, at 10 MB a ms
    zeros = np.zeros(2)
    assert _of_link_ms(Placed(step, "disk", zeros, zeros + 9.0, np.full(2, True), zeros), slow, software).tolist() == [0.0, 0.0]
    found = spans(iteration(replace(step, name="disk"), replace(fetch(1, "disk"), name="other")), "input")
    assert found["disk"] == alike(1, 3) and found["other"] == alike(3, 4)  # over the link once they are there
