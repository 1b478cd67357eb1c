"""Figures that calibration left, told for the ranks that there are: two cores here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

from recsys_lab.config import calibrated
from recsys_lab.config.calibrated import VARIABLE, core_figure, core_share, figure, fitted_on, folder, is_there, time_figure
from recsys_lab.errors import UserError


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrated.os, "sched_getaffinity", lambda _: {0, 1})


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """By four ranks: 8 GB/s and 30 us each."""
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    for group, figures in (
        ("cluster", {"hosts": 2, "ranks_per_host": 2, "device": {"memory_bandwidth_gb_s": 8.0}}),
        ("profile", {"launch_overhead_us": 30.0, "fitted_on": {"one": 5.0}}),
    ):
        (tmp_path / group).mkdir()
        (tmp_path / group / "calibrated.yaml").write_text(yaml.safe_dump(figures))
    return tmp_path


def root(hosts: int = 1, ranks: int = 1, **more: Any) -> Any:
    return OmegaConf.create({"launcher": {"hosts": hosts, "ranks_per_host": ranks}} | more)


def test_where_figures_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert folder() is None and not is_there() and fitted_on() == {}
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert folder() == tmp_path and not is_there()
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    assert folder() == tmp_path / "xdg" / "recsys_lab"
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert folder() == tmp_path / ".config" / "recsys_lab"


@pytest.mark.parametrize(("ranks", "share"), [(0, 1.0), (1, 1.0), (2, 1.0), (4, 0.5), (8, 0.25)])
def test_a_rank_s_part_of_a_core(ranks: int, share: float) -> None:
    assert core_share(ranks) == share


def test_a_single_core_is_one_rank_s_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0})
    assert [core_share(ranks) for ranks in (1, 2)] == [1.0, 0.5]


def test_without_figures_those_on_file_are_told() -> None:
    """Times on file are of half a core a rank."""
    assert figure("cluster.hosts", 7, _root_=root()) == 7 and core_figure("cluster.x", 3.0, _root_=root()) == 3.0
    assert time_figure("profile.launch_overhead_us", 10.0, _root_=root(1, 1)) == 5.0
    assert time_figure("profile.launch_overhead_us", 10.0, _root_=root(2, 2)) == 10.0
    assert time_figure("profile.launch_overhead_us", 10.0, _root_=root(2, 4)) == 20.0
    assert time_figure("profile.launch_overhead_us", 1 / 3, _root_=OmegaConf.create({})) == 0.3333


def test_figures_are_of_a_core_and_times_of_a_rank_s_part_of_one(measured: Path) -> None:
    assert is_there() and fitted_on() == {"one": 5.0}
    assert figure("cluster.hosts", 7, _root_=root()) == 2 and figure("cluster.device.none", 7, _root_=root()) == 7
    assert figure("cluster.hosts.deeper", 7, _root_=root()) == 7
    assert core_figure("cluster.device.memory_bandwidth_gb_s", 1.0, _root_=root()) == 16.0
    for ranks, us in ((1, 15.0), (2, 15.0), (4, 30.0), (8, 60.0)):
        assert time_figure("profile.launch_overhead_us", 1.0, _root_=root(1, ranks)) == us
    assert time_figure("profile.launch_overhead_us", 1.0, _root_=OmegaConf.create({})) == 30.0
    apart = root(calibrated=False)
    assert figure("cluster.hosts", 7, _root_=apart) == 7 and core_figure("cluster.device.memory_bandwidth_gb_s", 1.0, _root_=apart) == 1.0


def test_figures_are_read_again_when_they_change_and_refused_when_broken(measured: Path) -> None:
    path = measured / "cluster" / "calibrated.yaml"
    for text in ("hosts: [", "5", "\udcff"):
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
        with pytest.raises(UserError, match="calibrated.yaml: not a file that calibrate wrote.*calibrate, or RECSYS_LAB_CALIBRATION=none"):
            calibrated._read.__wrapped__(path, 0)
    path.unlink()
    assert figure("cluster.hosts", 7, _root_=root()) == 7 and figure("profile.launch_overhead_us", 1.0, _root_=root()) == 30.0


@pytest.mark.parametrize("bad", ["nope", [1], True, -1.0, float("nan"), float("inf"), 10**20])
def test_what_is_no_figure_names_its_file(measured: Path, bad: Any) -> None:
    for group, figures in (("cluster", {"hosts": bad, "device": {"memory_bandwidth_gb_s": bad}}), ("profile", {"launch_overhead_us": bad})):
        (measured / group / "calibrated.yaml").write_text(yaml.safe_dump(figures))
    for tells in (
        lambda: figure("cluster.device.memory_bandwidth_gb_s", 34.0, _root_=root()),
        lambda: core_figure("cluster.device.memory_bandwidth_gb_s", 34.0, _root_=root()),
        lambda: calibrated.host_figure("cluster.device.memory_bandwidth_gb_s", 34.0, _root_=root()),
    ):
        with pytest.raises(UserError, match=r"cluster/calibrated.yaml: (device.memory_bandwidth_gb_s|hosts): no figure; given .*calibrate"):
            tells()
    with pytest.raises(UserError, match=r"calibrated.yaml: (launch_overhead_us|hosts): no figure"):
        time_figure("profile.launch_overhead_us", 20.0, _root_=root())


def test_a_profile_fitted_on_nothing(measured: Path) -> None:
    for said in (None, 5, "x", [1]):
        (measured / "profile" / "calibrated.yaml").write_text(yaml.safe_dump({"fitted_on": said}))
        assert fitted_on() == {}


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_figures_that_are_no_file_are_not_there(measured: Path, make: Any) -> None:
    (measured / "cluster" / "calibrated.yaml").unlink()
    make(measured / "cluster" / "calibrated.yaml")
    assert figure("cluster.hosts", 7, _root_=root()) == 7
