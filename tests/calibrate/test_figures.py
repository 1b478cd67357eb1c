"""Fits find the figures that made the times; what is written is what `cluster=local` reads; and a real calibration of two processes."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_lab.calibrate import caches, collectives, disk, figures, ranks
from recsys_lab.calibrate.calibration import TOLD_BY, error_of_more_hosts, simulated_ms, with_errors
from recsys_lab.calibrate.cores import SharedCores
from recsys_lab.calibrate.measured import CacheTime, CollectiveTime, DenseTime, DotsTime, TableTime
from recsys_lab.calibrate.runs import Run, brief
from recsys_lab.calibrate.written import check_name, write
from recsys_lab.cluster import Cluster, Disk, Host
from recsys_lab.config.calibrated import VARIABLE
from recsys_lab.config.choices import built
from recsys_lab.errors import UserError
from recsys_lab.kernels.row_cache import SCRATCH
from recsys_lab.models.linear import LEAST_WORK
from recsys_lab.planning import this_machine
from recsys_lab.simulate.collectives import Shape, group_ms
from recsys_lab.simulate.posterior import error_on
from recsys_lab.tables.access import power_law_access
from tests.calibrate.made_up import calibration, cluster, on_file, on_gpus, runs_of_two_sharders, told
from tests.ranks import run_ranks

SHAPES = (Shape(4, 2, 2), Shape(2, 1, 2), Shape(2, 2, 1))


@settings(max_examples=5)
@given(st.floats(0.5, 10), st.floats(0.5, 10), st.floats(10, 300), st.floats(10, 300))
def test_links_fitted_to_collectives_tell_them_again(bandwidth: float, ring: float, latency: float, message: float) -> None:
    link = replace(cluster().intra_host, bandwidth_gb_s=bandwidth, ring_gb_s=ring, latency_us=latency, message_us=message)
    true = replace(cluster(), intra_host=link, cross_host=replace(link, bandwidth_gb_s=bandwidth / 2))
    times = [
        CollectiveTime(kind, s.size, s.hosts, s.local, size, group_ms(kind, s, size, true))
        for s in SHAPES
        for kind in collectives.KINDS
        for size in collectives.SIZES_BYTES
    ]
    found = figures.links_of(cluster(), times, "fitted")
    for t in times:
        assert group_ms(t.kind, Shape(t.size, t.hosts, t.local), t.bytes, found) == pytest.approx(t.ms, rel=0.1)


def test_a_pause_of_the_machine_moves_no_other_collective() -> None:
    """One time of five is three times as long as it would be."""
    link = replace(cluster().intra_host, bandwidth_gb_s=1.0, ring_gb_s=0.8, latency_us=250.0, message_us=150.0, start_us=200.0)
    true, shape, sizes = replace(cluster(1, 2), intra_host=link), Shape(2, 1, 2), collectives.SIZES_BYTES
    times = {(kind, size): group_ms(kind, shape, size, true) for kind in collectives.KINDS for size in sizes}
    paused = [CollectiveTime(*(kind, 2, 1, 2, size), ms * (3 if size == sizes[1] else 1)) for (kind, size), ms in times.items()]
    found = figures.links_of(cluster(1, 2), paused, "fitted")
    for (kind, size), ms in times.items():
        assert group_ms(kind, shape, size, found) == pytest.approx(ms, rel=0.25)


def test_ranks_that_crowd_a_host_tell_a_start_from_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ranks send one message each, so their time is the sum of both. Eight on the same cores send seven, at a quarter of the pace."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    link = replace(cluster().intra_host, bandwidth_gb_s=2.0, ring_gb_s=1.5, latency_us=300.0, message_us=50.0, start_us=200.0)
    true = replace(cluster(1, 2), intra_host=link)
    cores = SharedCores(("intra_host",), ("intra_host",))
    slow = replace(cores.with_hosts(true, figures.START, 4)[0], hosts=1, ranks_per_host=8)
    times, crowded = (
        [
            CollectiveTime(kind, n, 1, n, size, group_ms(kind, Shape(n, 1, n), size, on))
            for kind in collectives.KINDS
            for size in collectives.SIZES_BYTES
        ]
        for n, on in ((2, true), (8, slow))
    )
    found = figures.links_of(cluster(1, 2), times, "fitted", crowded).intra_host
    for name in ("bandwidth_gb_s", "ring_gb_s", "latency_us", "message_us", "start_us"):
        assert getattr(found, name) == pytest.approx(getattr(link, name), rel=0.05), name


@pytest.mark.parametrize("size", [2, 3, 6, 8])
def test_every_rank_of_a_group_has_as_many_numbers(size: int) -> None:
    """Gloo's all-to-all of six ranks refuses 32 numbers."""
    for least in collectives.SIZES_BYTES:
        made = collectives.even_bytes(least, size)
        assert made % (4 * size) == 0 and least <= made < least + 4 * size


def test_a_machine_of_one_rank_has_no_links_to_fit() -> None:
    assert figures.links_of(cluster(1, 1), [], "fitted") == cluster(1, 1)


def test_a_network_that_nothing_crossed_stays_as_it_was_said_to_be() -> None:
    """One host tells nothing of what is between hosts."""
    times = [CollectiveTime(kind, 2, 1, 2, size, 0.1 + size / 1e6) for kind in collectives.KINDS for size in collectives.SIZES_BYTES]
    found = figures.links_of(cluster(1, 2), times, "fitted")
    assert found.cross_host == on_file().cross_host and found.intra_host.source == "fitted"


@settings(max_examples=5)
@given(st.floats(0.2, 0.9), st.floats(0.2, 0.9), st.floats(2.0, 50.0))
def test_layers_give_the_shares_of_the_peak_and_the_launches_that_made_them(mfu: float, small: float, launch_us: float) -> None:
    """Small layers and large ones are computed by two libraries, each with a share of its own."""
    least = float(LEAST_WORK[torch.float32])
    true = replace(figures.START, dense_mfu=mfu, small_mfu=small, small_multiply_adds=least, launch_overhead_us=launch_us)
    shapes = [DenseTime(batch, width, 4, 0.0) for batch in ranks.SIZES["cpu"].batches for width in ranks.WIDTHS]
    found = figures.dense_figures(figures.START, cluster(), [replace(t, ms=figures.layers_ms(t, cluster(), true)) for t in shapes])
    assert (found.dense_mfu, found.small_mfu, found.launch_overhead_us) == pytest.approx((mfu, small, launch_us), rel=0.05)
    assert found.small_multiply_adds == least


def test_where_one_library_computes_all_layers_there_is_one_share() -> None:
    shapes = [DenseTime(batch, 64, 4, 0.0) for batch in (64, 512, 2048)]
    true = replace(figures.START, dense_mfu=0.4, launch_overhead_us=5.0)
    for here, widths in ((cluster(), (64,)), (on_gpus(), (64, 2048))):
        given = [replace(t, width=width) for t in shapes for width in widths]
        found = figures.dense_figures(figures.START, here, [replace(t, ms=figures.layers_ms(t, here, true)) for t in given])
        assert (found.small_mfu, found.small_multiply_adds) == (None, 0.0) and found.dense_mfu == pytest.approx(0.4, rel=0.05)


def test_dots_give_their_share_of_the_peak() -> None:
    """100 GFLOP/s; three products of 10 x 10 x 20 for 1,000 samples are 12 MFLOP, in 0.48 ms a quarter of it."""
    found = figures.dots_figures(figures.START, cluster(), [DotsTime(1000, 10, 20, 0.48)])
    assert found.dots_mfu == pytest.approx(0.25)


@pytest.mark.parametrize("cache_speed", [1.0, 4.0, 20.0])
def test_tables_give_shares_of_the_memory_and_the_cost_of_a_look_up(cache_speed: float) -> None:
    """Wide rows cost bytes, narrow ones look-ups: read at 5 GB/s, made at 8 GB/s; updated at 10 GB/s and 40 ns a look-up; 10 us each.

    A row that is looked up again, and a bag's gradient for its second id, come from the caches, so many times as fast.
    """
    times = []
    for dim, ids, bags in (
        (16, 1000, 1000),
        (16, 30000, 30000),
        (256, 1000, 1000),
        (256, 30000, 30000),
        (16, 5000, 20000),
        (64, 9000, 900),
    ):
        for distinct in (ids, ids // 2, ids // 10):
            first = min(ids, bags)
            read = distinct + (ids - distinct) / cache_speed
            moved = 4 * dim * (first + (ids - first) / cache_speed) + 8 * distinct * (dim + 1)
            look_up_ms = 0.01 + 4 * read * dim / 5e6 + 4 * bags * dim / 8e6
            times.append(TableTime(ids, bags, dim, distinct, look_up_ms, 0.01 + moved / 10e6 + ids * 40 / 1e6))
    of_gpu = [replace(t, look_up_ms=t.look_up_ms + 0.1, update_ms=t.update_ms + 0.5) for t in times]  # which have times of their own
    for here, measured in ((cluster(), times), (on_gpus(), of_gpu)):
        found = figures.table_figures(figures.START, here, measured)
        shares = (found.lookup_efficiency_forward, found.output_efficiency, found.lookup_efficiency_backward, found.lookup_ns)
        assert shares == pytest.approx((0.25, 0.4, 0.5, 40.0), rel=0.02) and found.cache_speed == pytest.approx(cache_speed, rel=0.05)


def test_caches_give_back_the_costs_that_made_their_times() -> None:
    shapes = ((4, 8000, 0.0), (4, 64000, 0.0), (4, 16000, 16e3))
    times = [CacheTime(*shape, shape[0] * 0.3 + shape[1] * 60 / 1e6 + shape[2] * 800 / 1e6) for shape in shapes]
    made = figures.cache_figures(figures.START, times)
    assert (made.cached_table_us, made.cached_lookup_ns, made.cached_miss_ns) == pytest.approx((300.0, 60.0, 800.0))
    assert figures.cache_figures(figures.START, ()) == figures.START
    assert figures.cache_figures(figures.START, [CacheTime(*shape, -1.0) for shape in shapes]) == figures.START  # by noise


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    """Plans of two sharders and two batches; what they measured is made up by each test."""
    return runs_of_two_sharders()


def test_trainings_give_back_the_overheads_that_made_them(runs: list[Run]) -> None:
    wanted = {"iteration_overhead_ms": 9.0, "tier_overhead_us": 70.0, "memory_efficiency": 0.2}
    true, here = replace(figures.START, **wanted), cluster()
    on_here = partial(simulated_ms, cluster=here, cores=None)
    found = figures.fitted_to([told(run, on_here(run, true)) for run in runs], figures.START, on_here)
    assert {name: getattr(found, name) for name in wanted} == pytest.approx(wanted, rel=0.02)


def test_trainings_give_back_the_memory_that_made_them(runs: list[Run]) -> None:
    true, here = replace(figures.START, buffer_factor=2.5, process_memory_mb=40.0), cluster()
    found = figures.memory_fitted_to([told(run, 1.0, run.simulated(here, true).added_memory_bytes) for run in runs], figures.START)
    assert (found.buffer_factor, found.process_memory_mb) == pytest.approx((2.5, 40.0), rel=0.02)
    assert figures.memory_fitted_to([told(run, 1.0) for run in runs], figures.START) == figures.START


def test_a_calibrated_profile_is_less_sure_of_more_hosts_than_of_its_own(runs: list[Run], tmp_path: Path) -> None:
    """Its trainings leave no error, and say nothing of other hosts: published predictions from one host to several do."""
    here = cluster()
    true = replace(figures.START, iteration_overhead_ms=12.0, tier_overhead_us=30.0, memory_efficiency=0.4)
    on_here = partial(simulated_ms, cluster=here, cores=None)
    made = with_errors(true, [told(run, on_here(run, true)) for run in runs], here, on_here)
    assert made.relative_error is not None and made.relative_error < 0.01
    assert set(made.fitted_on) == {run.name for run in runs}  # by which `validate --local` knows them
    assert made.relative_error_hosts == built("profile", TOLD_BY).relative_error_hosts > 0.2
    assert made.relative_error_hosts is not None
    assert [error_on(made, here.reshaped(hosts, 2)) for hosts in (2, 8)] == [made.relative_error, pytest.approx(made.relative_error_hosts)]
    write(tmp_path, calibration(made, made=here), "mine")
    found = brief([f"hydra.searchpath=[file://{tmp_path}]", "cluster=mine", "cluster.hosts=8"]).profile
    assert found.relative_error_hosts == made.relative_error_hosts and found.sources["relative_error_hosts"]
    assert error_of_more_hosts(0.5) == 0.5  # no less than on its own


def test_what_is_written_is_what_cluster_local_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "none")
    on_file = brief(["data=synthetic_brief"])
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert brief(["data=synthetic_brief"]).config == on_file.config  # nothing was written yet
    profile = replace(figures.START, iteration_overhead_ms=12.3456, relative_error=0.1, fitted_on={"dmt, batch 8": 3.0})
    write(tmp_path, calibration(profile))
    experiment = brief(["data=synthetic_brief"])
    found: Cluster = experiment.cluster
    cores = len(os.sched_getaffinity(0))
    assert found.device.memory_bandwidth_gb_s == pytest.approx(20.0, rel=1e-2)  # measured and wanted for four ranks
    assert found.device.source == cluster().device.source and found.intra_host.source == cluster().intra_host.source
    assert experiment.profile.iteration_overhead_ms == 12.35
    alone: Cluster = brief(["launcher.hosts=1", "launcher.ranks_per_host=1"]).cluster
    assert alone.device.peak_tflops["fp32"] == pytest.approx(0.1 * max(1.0, 4 / cores), rel=1e-2)
    both: float = brief(["launcher.hosts=1", "launcher.ranks_per_host=2"]).profile.iteration_overhead_ms
    assert both == pytest.approx(12.35 * min(1.0, cores / 4) / min(1.0, cores / 2), rel=1e-3)  # a rank has more of a core
    monkeypatch.setenv(VARIABLE, "none")
    assert this_machine(experiment) == on_file.cluster


def test_the_stand_in_for_a_named_cluster_keeps_the_figures_on_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = brief(["cluster=h100x64"])
    before = this_machine(experiment)
    write(tmp_path, calibration())
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert this_machine(experiment) == before


def test_both_files_are_choices_of_their_own(tmp_path: Path) -> None:
    write(tmp_path, calibration())
    experiment = brief([f"hydra.searchpath=[file://{tmp_path}]", "cluster=calibrated", "profile@simulate.profile=calibrated"])
    assert experiment.cluster.device == cluster().device
    assert experiment.profile == figures.START


@pytest.mark.parametrize("name", ["h100x64", "local", "../mine", "Mine", "", "8gpus"])
def test_a_name_that_no_choice_can_have(name: str) -> None:
    with pytest.raises(UserError, match="--name"):
        check_name(name)


DISK = Disk("ext4", 80.0, 0.8, 0.4, 70e3, "measured", 800e3, 1.6)
FIGURES_OF_DISK = ("size_gb", "read_gb_s", "write_gb_s", "random_reads_per_s", "cached_reads_per_s", "rewritten_gb_s")


def test_hosts_on_one_machine_share_its_memory_and_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = figures.with_host(cluster(2, 2), 16.0, 2, DISK)
    assert made.host is not None and (made.host.memory_gb, made.host.memory_bandwidth_gb_s) == (8.0, 2 * 20.0)
    half = {"size_gb": 40.0, "read_gb_s": 0.4, "write_gb_s": 0.2, "random_reads_per_s": 35e3, "cached_reads_per_s": 400e3}
    assert made.disk == replace(DISK, **half, rewritten_gb_s=0.8)
    write(tmp_path, calibration(made=made))
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    for hosts in (1, 2):
        found: Cluster = brief([f"launcher.hosts={hosts}", "launcher.ranks_per_host=2"]).cluster
        assert found.disk == replace(made.disk, **{key: 2 * getattr(made.disk, key) / hosts for key in FIGURES_OF_DISK})
        assert found.host is not None and found.host.memory_bandwidth_gb_s == 80.0 / hosts
    write(tmp_path, calibration(words=("launcher=emulated",), made=made), "mine")
    more: Cluster = brief([f"hydra.searchpath=[file://{tmp_path}]", "cluster=mine", "cluster.hosts=8"]).cluster
    assert more.disk is not None and (more.disk.read_gb_s, more.disk.random_reads_per_s) == (0.1, 8750.0)
    assert more.host is not None and more.host.memory_gb == 2.0


def test_what_was_not_measured_of_a_gpus_host_stays() -> None:
    base = replace(cluster(1, 2), device=replace(cluster().device, kind="cuda"), host=Host("other", 512.0, 400.0, "said"))
    assert figures.with_host(base, 16.0, 1, None) == base
    assert figures.with_host(base, 16.0, 1, DISK) == replace(base, disk=DISK)


def test_a_disk_is_measured_in_the_folder_of_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setenv(SCRATCH, str(tmp_path / "rows"))
    found = disk.measure(said.append, each_s=0.0, file_bytes=disk.LEAST_BYTES)
    assert found is not None and len(said) == 3 + len(disk.RECORDS) and not list((tmp_path / "rows").iterdir())
    assert all((getattr(found, name) or 0.0) > 0 for name in FIGURES_OF_DISK)
    assert str(tmp_path / "rows") in found.name and "page cache" in found.source
    assert disk.measure(said.append, file_bytes=disk.LEAST_BYTES - 1) is None and "RECSYS_LAB_SCRATCH=DIR" in said[-1]
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(SCRATCH, str(tmp_path / "file"))
    with pytest.raises(UserError, match="file"):
        disk.measure(said.append)


def test_every_record_lies_in_a_page_of_its_own() -> None:
    for record in disk.RECORDS:
        batches = list(disk._batches(20_000, disk.PAGE // record))
        rows = [row for batch in batches for row in batch.tolist()]
        assert sorted(row * record // disk.PAGE for row in rows) == list(range(20_000))
        assert all((batch[1:] > batch[:-1]).all() for batch in batches) and len(batches) == 3


def test_a_broken_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, calibration())
    (tmp_path / "profile" / "calibrated.yaml").write_text("- no: [figures")
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(UserError, match="profile/calibrated.yaml"):
        brief([])


def test_batches_of_look_ups_are_skewed_and_take_turns() -> None:
    """By a power law fewer rows get the same look-ups, as many as access statistics expect; no batch is another."""
    rows = ranks.SIZES["cpu"].table_bytes // (4 * 128)
    for skew in ranks.SKEWS:
        batches = ranks._batches(rows, 128, 4096, 512, skew)
        assert len(batches) == ranks.TURNS and all(len(batch.ids) == 4096 and len(batch.offsets) == 513 for batch in batches)
        different = [len(batch.ids.unique()) for batch in batches]
        expected = power_law_access("t", rows, 1.0, skew, buckets=rows).distinct_rows(4096)
        assert sum(different) / len(different) == pytest.approx(expected, rel=0.06)  # its law has integrals in place of sums
    assert len({tuple(batch.ids.tolist()) for batch in batches}) == ranks.TURNS


def calibrated_here() -> str:
    said: list[str] = []
    ranks.WIDTHS = (32,)
    ranks.SIZES["cpu"] = replace(ranks.SIZES["cpu"], batches=(64,), bags=((512, 512),), table_bytes=1 << 20)
    machine = ranks.measure(said.append, each_s=0.0)
    return json.dumps([machine.memory_bandwidth_gb_s, machine.peak_tflops["fp32"], len(collectives.measure(1, 2, said.append)), len(said)])


def caches_here(folder: str) -> str:
    os.environ[SCRATCH] = folder  # of this process, which was forked from a server with an environment of its own
    caches.ROWS, caches.CASES, caches.MADE, caches.LAYERS, caches.TURNS = 1 << 12, ((1 << 8, 1 << 12),), (1 << 8, 1 << 10), (64, 32), 1
    return json.dumps([vars(time) for time in caches.measure(lambda text: None, each_s=0.0)])


def test_caches_of_two_processes_miss_what_they_cannot_hold(tmp_path: Path) -> None:
    one, other = run_ranks(caches_here, 1, 2, str(tmp_path))
    all_cached, made = json.loads(one)
    assert one == other and not list(tmp_path.iterdir())
    assert (all_cached["tables"], all_cached["ids"], all_cached["misses"]) == (4, 4 << 8, 0)
    assert made["ids"] == made["misses"] == 4 << 8  # each row is another


def test_caches_are_not_measured_where_no_file_can_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert run_ranks(caches_here, 1, 2, str(tmp_path / "file")) == ["[]", "[]"]


def test_two_processes_measure_the_same_figures_together() -> None:
    one, other = run_ranks(calibrated_here, 1, 2)
    assert one == other  # means over ranks
    bandwidth, peak, times, said = json.loads(one)
    assert bandwidth > 0 and peak > 0 and times == len(collectives.KINDS) * len(collectives.SIZES_BYTES) and said >= 7
