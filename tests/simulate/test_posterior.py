"""What nobody knows of a system, as draws: shares that two times have in common, and intervals that widen off the fit."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from recsys_lab.cluster import Cluster
from recsys_lab.simulate import Profile
from recsys_lab.simulate.posterior import (
    AT,
    DRAWS,
    Response,
    error_on,
    interval_of,
    log_changes,
    normal,
    responses,
    simulated_part,
    unknowns,
)
from tests.simulate.clusters import cluster, profile

FITTED = profile(relative_error=0.1, relative_error_outside=0.2, relative_error_hosts=0.3, fitted_systems={"device": 2, "other": 4})


def host_bound(software: Profile, on: Cluster) -> float:
    """As long as the host takes: the launch cost alone tells."""
    return software.launch_overhead_us


def on_links(software: Profile, on: Cluster) -> float:
    return 1 / on.cross_host.bandwidth_gb_s


def test_draws_of_a_name_are_a_standard_normal_and_always_the_same() -> None:
    one, other = normal("a"), normal("b")
    assert len(one) == DRAWS and (normal("a") == one).all() and abs(np.corrcoef(one, other)[0, 1]) < 0.05
    assert abs(one.mean()) < 1e-12 and one.std() == pytest.approx(1, abs=1e-3) and np.quantile(one, 0.95) == pytest.approx(1.645, abs=2e-3)


def test_a_response_is_a_line_on_either_side_of_what_is_on_file() -> None:
    assert Response(-0.3, 0.6).to(np.array([-2 * AT, -AT, 0.0, AT, 2 * AT])) == pytest.approx([-0.6, -0.3, 0.0, 0.6, 1.2])


def test_what_does_nothing_to_a_time_is_left_out() -> None:
    (name,) = responses(host_bound, FITTED, cluster(2, 2))
    assert name == "made_up: launch_overhead_us"
    assert list(responses(on_links, FITTED, cluster(2, 2))) == ["far: bandwidth"]


def test_a_device_alone_has_no_links_and_a_host_alone_none_to_others() -> None:
    def links(on: Cluster) -> set[str]:
        return {one.name for one in unknowns(FITTED, on) if not one.name.startswith("made_up: ")}

    assert links(cluster(1, 1)) == set() and links(cluster(1, 2)) == {"near: bandwidth", "near: latency"}
    assert links(cluster(2, 1)) == {"far: bandwidth", "far: latency"}


def test_what_a_fit_moved_together_moves_together_and_by_the_fits_error() -> None:
    """Two figures that cancel in a time leave it as it is; the plausible range of a fitted figure does not count again."""
    software = replace(FITTED, spread=[{"launch_overhead_us": 0.1, "dense_mfu": 0.1}])
    assert responses(lambda p, on: p.launch_overhead_us / p.dense_mfu, software, cluster(1, 1)) == {}
    (found,) = responses(host_bound, software, cluster(1, 1)).values()
    assert found.above == pytest.approx(AT * 0.1) and found.below == pytest.approx(-AT * 0.1)


def test_a_share_of_a_peak_is_at_most_one() -> None:
    software = replace(FITTED, memory_efficiency=0.99, spread=[{"memory_efficiency": 1.0}])
    (found,) = responses(lambda p, on: 1 / p.memory_efficiency, software, cluster(1, 1)).values()
    assert found.above == pytest.approx(math.log(0.99)) and found.below == pytest.approx(AT)


@pytest.mark.parametrize(
    ("device", "hosts", "error"),
    [("device", 2, 0.1), ("device", 3, 0.3), ("other", 4, 0.1), ("new", 4, 0.2), ("new", 5, math.sqrt(0.01 + 0.03 + 0.08))],
)
def test_an_interval_is_as_wide_as_the_error_of_points_that_were_left_out(device: str, hosts: int, error: float) -> None:
    """Another device is no extrapolation of hosts where others had as many."""
    on = cluster(hosts, 2)
    on = replace(on, device=replace(on.device, name=device))
    assert error_on(FITTED, on) == pytest.approx(error)
    made = interval_of(log_changes({}, FITTED, on, "torchrec", "one"), 100.0)
    assert made.high == pytest.approx(100 * (1 + 1.645 * error), rel=0.03) and made.low == pytest.approx(1e4 / made.high, rel=0.03)


def test_an_error_of_unknown_systems_is_that_of_all_and_another_kind_of_device_has_none() -> None:
    plain = profile(relative_error=0.1)
    assert error_on(plain, cluster(4, 2)) == 0.1 and error_on(plain, cluster(1, 2, kind="cpu")) is None
    assert error_on(profile(), cluster(1, 2)) is None
    narrower = replace(FITTED, relative_error_outside=0.05)  # it is never narrower than within
    assert error_on(narrower, replace(cluster(1, 2), device=replace(cluster(1, 2).device, name="new"))) == 0.1


def test_what_is_simulated_counts_within_the_error_and_beyond_it_widens_the_interval() -> None:
    on = cluster(2, 2)

    def width(sd: float) -> float:
        changes = log_changes({"made_up: launch_overhead_us": Response(-AT * sd, AT * sd)}, FITTED, on, "torchrec", "one")
        return float(changes.std())

    assert width(0.01) == pytest.approx(width(0.05), rel=0.03) and width(0.5) == pytest.approx(0.5, rel=0.05)


def test_two_times_that_share_their_unknowns_differ_less_than_each_is_unknown() -> None:
    on, both = cluster(2, 2), {"made_up: launch_overhead_us": Response(-0.3, 0.3)}
    one, other = (log_changes(both, FITTED, on, sharder, sharder) for sharder in ("torchrec", "dmt"))
    assert (one - other).std() < 0.5 * one.std() and (one - other).std() == pytest.approx(math.sqrt(2 * (0.06**2 + 0.03**2)), rel=0.05)
    elsewhere = replace(on, name="elsewhere", device=replace(on.device, name="other"))
    apart = log_changes(both, FITTED, elsewhere, "dmt", "dmt")
    assert (one - apart).std() > (one - other).std()  # another system has its own share


def test_links_of_one_name_are_drawn_once() -> None:
    found = responses(on_links, FITTED, cluster(2, 2))
    assert (simulated_part(found) == simulated_part(dict(found))).all() and simulated_part({}).std() == 0
