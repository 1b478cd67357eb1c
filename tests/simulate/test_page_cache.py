"""Rows in a file, some of whose pages the host's memory holds: their share, what they cost, and when."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_lab.cluster import Cluster, Disk, Host
from recsys_lab.plan import ShardingPlan
from recsys_lab.plan.lower import lower
from recsys_lab.plan.memory import RankMemory
from recsys_lab.plan.store import DISK_CACHED, HOST_CACHED, Store
from recsys_lab.simulate import simulate
from recsys_lab.simulate.page_cache import beside_page_cache, page_cache_share
from recsys_lab.simulate.stores import PAGE_CACHE, moved_ms
from tests.plan.plans import FP32, LENGTHS, TABLES, access, plan, workload
from tests.simulate.clusters import cluster, profile

DRIVE = Disk("drive", 1000.0, 10.0, 5.0, 1e3, "for the test", 1e5)
#: 60 GB of files on the first host and 20 on the second; ranks that keep 10 GB and 4 GB of buffers.
FILES = (40 * 10**9, 20 * 10**9, 10**10, 10**10)
MEMORY = RankMemory((8 * 10**9,) * 4, (0,) * 4, (10**9,) * 4, (4 * 10**9,) * 4, (10**9,) * 4, (0,) * 4, FILES)


def stored(kind: str = DISK_CACHED) -> ShardingPlan:
    made = plan(("table_wise",), 2, 2)
    return replace(made, placements=tuple(replace(p, store=Store(kind, 0.5)) for p in made.placements))


def on(gb: float, kind: str = "cpu", disk: Disk = DRIVE) -> Cluster:
    return replace(cluster(2, 2, kind=kind), host=Host("memory", gb, 400.0, "for the test"), disk=disk)


@pytest.mark.parametrize(
    ("gb", "kind", "share"),
    [
        (60.0, "cpu", (60 - 2 * (10 + 2 * 4 + 0.85)) / 60),  # what two ranks keep, with twice their buffers and their libraries
        (30.0, "cpu", 0.0),
        (98.0, "cpu", 1.0),
        (30.0, "cuda", 0.5),  # what ranks keep is in the memory of their devices
    ],
)
def test_the_share_is_what_the_fullest_host_has_left_of_its_files(gb: float, kind: str, share: float) -> None:
    software = profile(buffer_factor=2.0, process_memory_mb=500.0)
    assert page_cache_share(on(gb, kind), software, stored(), MEMORY) == pytest.approx(share)


def test_files_that_do_not_hold_all_rows_yet_are_smaller() -> None:
    share = page_cache_share(on(30.0, "cuda"), profile(), stored(), MEMORY, tuple(size / 1.6 for size in FILES))
    assert share == pytest.approx(0.8)


def test_nothing_changes_without_its_rate_or_without_files() -> None:
    made = stored()
    steps = lower(made, access(TABLES, LENGTHS), FP32, workload())
    for here, placed in ((on(1e3, disk=replace(DRIVE, cached_reads_per_s=None)), made), (on(1e3), stored(HOST_CACHED))):
        assert beside_page_cache(steps, here, profile(), placed, MEMORY) is steps
    assert beside_page_cache(steps, replace(on(1e3), host=None), profile(), made, MEMORY) is steps


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_reads_are_shared_out_and_the_look_up_waits_for_both(kind: str) -> None:
    made = stored()
    steps = lower(made, access(TABLES, LENGTHS), FP32, workload())
    (whole,) = [step for step in steps.steps if step.kind == "fetch"]
    half = on(60.0 if kind == "cpu" else 30.0, kind)
    share = page_cache_share(half, profile(), made, MEMORY)
    found = {step.name: step for step in beside_page_cache(steps, half, profile(), made, MEMORY).steps}
    disk, pages = found[whole.name], found[f"{whole.name}.{PAGE_CACHE}"]
    assert 0 < share < 1 and len(found) == len(steps.steps) + 1
    for key in ("bytes_of_rank", "rows_of_rank"):
        copied = 1.0 if kind == "cpu" else share  # what comes from the disk passes the cores too
        assert getattr(pages, key) == pytest.approx([copied * figure for figure in getattr(whole, key)])
        assert getattr(disk, key) == pytest.approx([(1 - share) * figure for figure in getattr(whole, key)])
    assert (disk.store, pages.store, pages.phase) == (DISK_CACHED, PAGE_CACHE, "forward" if kind == "cpu" else "input")
    (look_up,) = [step for step in found.values() if step.kind == "lookup"]
    assert {disk.name, pages.name} <= set(look_up.after)


def test_cores_serve_all_ranks_of_a_host_together() -> None:
    """300 and 100 records of two ranks at 100,000 a second."""
    made = stored()
    (step,) = [s for s in lower(made, access(TABLES, LENGTHS), FP32, workload()).steps if s.kind == "fetch"]
    step = replace(step, rows_of_rank=(300.0, 100.0, 0.0, 50.0), bytes_of_rank=(1.0,) * 4, store=PAGE_CACHE)
    assert moved_ms(step, on(1.0), profile()).tolist() == pytest.approx([4.0, 4.0, 0.5, 0.5])


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(["cpu", "cuda"]), st.floats(1e-6, 1e-4), st.floats(1.0, 4.0))
def test_more_memory_is_never_slower_where_nothing_hides_reads(kind: str, gb: float, more: float) -> None:
    made, work = stored(), workload(512)
    steps = lower(made, access(TABLES, LENGTHS), FP32, work)
    little, much = (simulate(steps, on(figure, kind), profile(), made, work)[0].iteration_ms for figure in (gb, gb * more))
    assert much <= little * (1 + 1e-9)
