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
from recsys_lab.plan.store_facts import Files
from recsys_lab.simulate import simulate
from recsys_lab.simulate.page_cache import beside_page_cache, page_cache_share
from recsys_lab.simulate.stores import PAGE_CACHE, REWRITTEN, moved_ms
from tests.plan.plans import FP32, LENGTHS, TABLES, access, plan, workload
from tests.simulate.clusters import cluster, profile

DRIVE = Disk("drive", 1000.0, 10.0, 5.0, 1e3, "for the test", 1e5, 2.0)
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
    share = page_cache_share(on(30.0, "cuda"), profile(), stored(), MEMORY, Files(tuple(size / 1.6 for size in FILES), (0.0,) * 4))
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


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_a_full_file_is_read_and_written_again(kind: str) -> None:
    """Twice and three times the bytes that leave, half of which are not in the page cache. On a CPU the cores move them all."""
    made = stored()
    steps = lower(made, access(TABLES, LENGTHS), FP32, workload())
    (back,) = [step for step in steps.steps if step.kind == "write_back"]
    half, files = on(60.0 if kind == "cpu" else 30.0, kind), Files(tuple(map(float, FILES)), (2.0, 3.0, 0.0, 0.5))
    share = page_cache_share(half, profile(), made, MEMORY, files)
    found = {step.name: step for step in beside_page_cache(steps, half, profile(), made, MEMORY, files).steps}
    pages = [size * factor for size, factor in zip(back.bytes_of_rank, files.rewritten)]
    read, written = found[f"{back.name}.pages"], found[back.name]
    assert 0 < share < 1 and (read.kind, read.store, read.phase) == ("fetch", DISK_CACHED, "input")
    assert read.bytes_of_rank == pytest.approx([(1 - share) * size for size in pages])
    assert written.bytes_of_rank == pytest.approx([max(two) for two in zip(back.bytes_of_rank, pages)]) and read.name in written.after
    if kind == "cuda":
        assert f"{back.name}.{REWRITTEN}" not in found
        return
    cores = found[f"{back.name}.{REWRITTEN}"]
    assert cores.phase == "forward" and cores.bytes_of_rank == pytest.approx(pages)
    assert moved_ms(cores, half, profile()).tolist() == pytest.approx([sum(pages[:2]) / 2e6] * 2 + [sum(pages[2:]) / 2e6] * 2)


def test_nothing_is_rewritten_without_its_rate_or_before_a_file_is_full() -> None:
    made = stored()
    steps = lower(made, access(TABLES, LENGTHS), FP32, workload())
    full, new = (Files(tuple(map(float, FILES)), (factor,) * 4) for factor in (2.0, 0.0))
    for here, files in ((on(1e3, disk=replace(DRIVE, rewritten_gb_s=None)), full), (on(1e3), new)):
        known = beside_page_cache(steps, here, profile(), made, MEMORY, files)
        assert known == beside_page_cache(steps, here, profile(), made, MEMORY)


@settings(max_examples=30)
@given(st.sampled_from(["cpu", "cuda"]), st.floats(0.01, 10.0), st.floats(1.0, 4.0), st.floats(0.5, 4.0), st.floats(1e-6, 1e-4))
def test_more_that_is_rewritten_is_never_faster_and_a_faster_page_cache_never_slower(
    kind: str, gb_s: float, more: float, factor: float, host_gb: float
) -> None:
    made, work = stored(), workload(512)
    steps = lower(made, access(TABLES, LENGTHS), FP32, work)

    def ms(rate: float, rewritten: float) -> float:
        here, files = on(host_gb, kind, replace(DRIVE, rewritten_gb_s=rate)), Files((1e5,) * 4, (rewritten,) * 4)
        return simulate(steps, here, profile(), made, work, files)[0].iteration_ms

    base = ms(gb_s, factor)
    assert ms(gb_s * more, factor) <= base * (1 + 1e-9) and base <= ms(gb_s, factor * more) * (1 + 1e-9)
    assert ms(gb_s, 0.0) <= base * (1 + 1e-9)


@settings(max_examples=30)
@given(st.sampled_from(["cpu", "cuda"]), st.floats(1e-6, 1e-4), st.floats(1.0, 4.0))
def test_more_memory_is_never_slower_where_nothing_hides_reads(kind: str, gb: float, more: float) -> None:
    made, work = stored(), workload(512)
    steps = lower(made, access(TABLES, LENGTHS), FP32, work)
    little, much = (simulate(steps, on(figure, kind), profile(), made, work)[0].iteration_ms for figure in (gb, gb * more))
    assert much <= little * (1 + 1e-9)
