"""Where ranks share the cores of one machine, figures follow their number."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from recsys_lab.calibrate import calibration as of_ranks
from recsys_lab.calibrate import collectives, figures
from recsys_lab.calibrate.calibration import lacks_network, simulated_ms, trainings
from recsys_lab.calibrate.cores import SharedCores
from recsys_lab.calibrate.measured import CollectiveTime, Measured
from recsys_lab.calibrate.runs import brief
from recsys_lab.calibrate.written import write
from recsys_lab.errors import UserError
from recsys_lab.experiment import Experiment
from tests.calibrate.made_up import GPU, MACHINE, TORCHRUN, calibration, cluster, on_gpus, run_of, runs_of_two_sharders, told


def test_figures_of_a_named_cluster_follow_its_ranks_where_they_share_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured with a quarter of a core each; on eight hosts of two ranks each has a sixteenth of two cores."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    profile = replace(figures.START, iteration_overhead_ms=8.0, overlaps=["collectives"])
    here = calibration(profile, ("launcher=emulated",), cluster(4, 2))  # four hosts of two
    write(tmp_path, here, "mine")
    words = [f"hydra.searchpath=[file://{tmp_path}]", "cluster=mine"]
    same, more = brief(words), brief([*words, "cluster.hosts=8"])
    assert (same.cluster.name, same.cluster.world_size, more.cluster.world_size) == ("mine", 8, 16)
    assert same.cluster.device.memory_bandwidth_gb_s == pytest.approx(20.0) == 2 * more.cluster.device.memory_bandwidth_gb_s
    assert same.cluster.device.peak_tflops["bf16"] == pytest.approx(0.4, rel=1e-3) == 2 * more.cluster.device.peak_tflops["bf16"]
    assert same.profile.iteration_overhead_ms == 8.0 == more.profile.iteration_overhead_ms / 2
    assert more.profile.overlaps == ["collectives"] and more.cluster.cross_host == here.cluster.cross_host


def test_figures_of_a_named_cluster_stay_where_ranks_have_machines_of_their_own(tmp_path: Path) -> None:
    there = replace(calibration(), experiment=replace(calibration().experiment, config=TORCHRUN))
    write(tmp_path, there, "mine")
    experiment = brief([f"hydra.searchpath=[file://{tmp_path}]", "cluster=mine", "cluster.hosts=64"])
    assert experiment.cluster == replace(there.cluster, name="mine", hosts=64)
    assert experiment.profile == replace(there.profile, name="mine")


def test_figures_of_gpus_follow_no_cores(tmp_path: Path) -> None:
    """Each rank has a GPU, whose memory is its own, though the machine is one."""
    here = calibration(words=("launcher=local",), made=on_gpus())
    write(tmp_path, here, "mine")
    experiment = brief([f"hydra.searchpath=[file://{tmp_path}]", "cluster=mine", "cluster.hosts=64"])
    assert here.cores is None and experiment.cluster == replace(here.cluster, name="mine", hosts=64)
    assert experiment.cluster.device.source == "measured by calibrate on 1 GPU, all at it"
    assert experiment.cluster.device.memory_gb == 80.0 and experiment.profile == replace(here.profile, name="mine")


def test_figures_of_gpus_want_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """cluster=local is the machine's CPU."""
    monkeypatch.setattr(of_ranks, "measure", lambda experiment, tell: Measured(1, 1, 2, GPU, ()))
    with pytest.raises(UserError, match="given none, for ranks that compute on some GPU"):
        of_ranks.calibrate(["data=synthetic_brief", "launcher.hosts=1", "launcher.ranks_per_host=1"], print)


@pytest.mark.parametrize(("launcher", "network"), [("emulated", True), ("local", False)])
def test_links_of_one_machine_follow_its_cores(launcher: str, network: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cores send every message and copy every byte, but for those that wait for a network. What nothing crossed stays."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    times = [CollectiveTime(kind, 4, 2, 2, size, 0.1 + size / 1e6) for kind in collectives.KINDS for size in collectives.SIZES_BYTES]
    for measured, crossed in ((times, ("intra_host", "cross_host")), ((), ())):
        here = calibration(words=(f"launcher={launcher}",), made=figures.links_of(cluster(2, 2), measured, "fitted"))
        write(tmp_path, replace(here, measured=replace(here.measured, collectives=tuple(measured))), "mine")
        words = [f"hydra.searchpath=[file://{tmp_path}]", "cluster=mine"]
        same, more = brief(words).cluster, brief([*words, "cluster.hosts=8"]).cluster
        for link in ("intra_host", "cross_host"):
            then, now = getattr(same, link), getattr(more, link)
            slower = 4 if link in crossed else 1
            fewer = 1 if network and link == "cross_host" else slower
            assert now.latency_us == pytest.approx(slower * then.latency_us, rel=0.01)
            assert now.each_message_us == pytest.approx(slower * then.each_message_us, rel=0.01)
            assert now.bandwidth_gb_s == pytest.approx(then.bandwidth_gb_s / fewer, rel=0.02)
            assert now.around_gb_s == pytest.approx(then.around_gb_s / fewer, rel=0.02)


def test_hosts_that_were_not_measured_send_as_a_crowd_on_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the same cores. How fast their network carries bytes is what the launcher sets."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    experiment = brief(["launcher=emulated", "cluster=emulated_4x2", "cluster.hosts=1", "data=synthetic_brief"])
    times, crowd = (
        tuple(CollectiveTime(kind, n, 1, n, size, n / 20 + size / 1e6) for kind in collectives.KINDS for size in collectives.SIZES_BYTES)
        for n in (2, 8)
    )
    alone = Measured(1, 2, 2, MACHINE, times)
    assert lacks_network(experiment, alone) and not lacks_network(brief(["data=synthetic_brief", "launcher.hosts=1"]), alone)
    measured = replace(alone, crowded=crowd)
    made, given = figures.cluster_of(measured, 4.0, experiment.cluster), experiment.cluster.cross_host
    near, far = made.intra_host, made.cross_host
    assert figures.cluster_of(alone, 4.0, experiment.cluster).cross_host == given
    assert (far.latency_us, far.message_us, far.start_us) == (near.latency_us, near.message_us, near.start_us)
    assert (far.bandwidth_gb_s, far.shared) == (given.bandwidth_gb_s, given.shared) and given.latency_us != near.latency_us
    assert far.source == f"{given.source}; messages as within a host, {near.source}"
    write(tmp_path, replace(calibration(made=made), experiment=experiment, measured=measured), "mine")
    four = brief([f"hydra.searchpath=[file://{tmp_path}]", "cluster=mine", "cluster.hosts=4"]).cluster.cross_host
    assert four.latency_us == pytest.approx(4 * far.latency_us, rel=0.01) and four.bandwidth_gb_s == far.bandwidth_gb_s


def test_a_crowd_is_as_many_ranks_as_four_hosts_have(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[object] = []

    def told(words: Sequence[str]) -> Experiment:
        made = brief(words)
        launcher = made.launcher
        start = lambda work, words, folder: started.append((launcher.hosts, launcher.ranks_per_host, words))  # noqa: E731
        return replace(made, launcher=replace(launcher, launch=start))

    monkeypatch.setattr(of_ranks, "brief", told)
    of_ranks.crowded(["launcher=emulated", "cluster.hosts=1", "data=synthetic_brief"], 2, print)
    assert started == [(1, 8, {"hosts": 1, "ranks_per_host": 8, "device": "cpu"})]


def test_trainings_on_one_host_and_on_two_give_back_the_overheads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The figures are of four ranks on two cores. On one host two ranks have a core each, so their own work takes half as long."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    points = [*runs_of_two_sharders(), run_of("dmt_sptt", 512, "launcher.hosts=1")]
    assert [run.planned.plan.hosts for run in points] == [2, 2, 2, 2, 1]
    wanted = {"iteration_overhead_ms": 9.0, "tier_overhead_us": 70.0, "memory_efficiency": 0.2}
    true, cores = replace(figures.START, **wanted), SharedCores(("intra_host", "cross_host"), ("intra_host",))
    link = replace(cluster().intra_host, ring_gb_s=1.5, message_us=40.0, start_us=20.0)
    here = replace(cluster(), intra_host=link, cross_host=link)
    then, profile = cores.with_hosts(here, true, 1)
    assert (profile.iteration_overhead_ms, then.hosts, then.device.memory_bandwidth_gb_s) == (4.5, 1, 40.0)
    on_here = partial(simulated_ms, cluster=here, cores=cores)
    assert [run.name_on(here) for run in points[-2:]] == ["dmt_sptt, batch 2048", "dmt_sptt, batch 512, 1 host"]
    assert on_here(points[-1], true) == points[-1].simulated(then, profile).iteration_ms
    found = figures.fitted_to([told(run, on_here(run, true)) for run in points], figures.START, on_here)
    assert {name: getattr(found, name) for name in wanted} == pytest.approx(wanted, rel=0.02)


def test_hosts_that_wait_for_a_network_also_train_one_by_one() -> None:
    words = ["launcher=emulated", "cluster.hosts=3", "data=synthetic_brief"]
    assert trainings(words, brief(words)) == [["launcher=emulated", "data=synthetic_brief", "cluster.hosts=1"], words]
    for alone in (["launcher=emulated", "cluster.hosts=1"], ["launcher.hosts=2"]):
        assert trainings(alone, brief(alone)) == [alone]
