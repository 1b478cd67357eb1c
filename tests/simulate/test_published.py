"""What the simulator is held against: table 6 within its bound, published orders, and figures that say where they are from."""

from __future__ import annotations

import re
from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from experiments.validation import collectives, mlperf
from experiments.validation.cases import cases, of_row
from experiments.validation.fit import Fits, Point, fit, of_systems, validate, with_figures
from experiments.validation.models import model, published
from experiments.validation.order import orders
from recsys_lab.calibrate.figures import FITTED_TO_RUNS, MEMORY_FITTED_TO_RUNS
from recsys_lab.cluster import Cluster
from recsys_lab.config.choices import built
from recsys_lab.config.command_line import CONF
from recsys_lab.errors import UserError
from recsys_lab.plan import Step
from recsys_lab.simulate import Profile
from recsys_lab.simulate.collectives import Shape, collective_ms, group_ms
from recsys_lab.simulate.costs import of_profile
from tests.simulate.clusters import cluster, profile

NAMED = [path.stem for path in sorted((CONF / "cluster").glob("*.yaml")) if path.stem != "local" and not path.stem.startswith("emulated")]
PROFILES = [path.stem for path in sorted((CONF / "profile").glob("*.yaml"))]
LINKS = [path.stem for path in sorted((CONF / "cluster" / "link").glob("*.yaml"))]


@pytest.fixture(scope="module")
def told() -> list:
    """Collectives by the figures on file; no fit is made here."""
    flexshard = collectives.on_file()
    assert len(flexshard) == 28
    return flexshard


def test_table_6s_all_to_alls_are_within_5_percent(told: list) -> None:
    errors = [point.error for point in told if point.what.endswith(": all-to-all")]
    assert len(errors) == 12 and max(map(abs, errors)) < 0.05


def test_flexshards_shardings_come_in_their_published_order(told: list) -> None:
    found = orders(told)
    assert len(found) == 12 and all(right for _, right in found)


def test_nccls_all_reduces_of_a_host_are_told_to_a_tenth_from_16_mib_on() -> None:
    for point in validate(Fits.of(collectives.points(), None)):
        if point.what.startswith("8 x") and not point.what.endswith(" 1 MiB"):
            assert abs(point.error) < 0.1, point.what


@pytest.mark.parametrize("name", NAMED)
def test_every_part_of_a_cluster_has_a_source(name: str) -> None:
    made: Cluster = built("cluster", name)
    assert made.name == name
    assert all(len(part.source) > 20 for part in (made.device, made.intra_host, made.cross_host))


@pytest.mark.parametrize("name", LINKS)
def test_a_links_figures_are_what_collectives_reach_of_its_line(name: str) -> None:
    text = (CONF / "cluster" / "link" / f"{name}.yaml").read_text()
    said = re.search(r"^# The line has ([\d.]+) GB/s one way; the figures are what collectives reach of it,", text, re.MULTILINE)
    assert said, "its YAML says what the figures mean"
    line, made = float(said[1]), mlperf.link(name)
    assert made.bandwidth_gb_s < line and made.around_gb_s < line and made.line_gb_s in (None, line)


@pytest.mark.parametrize("software", PROFILES)
def test_no_profile_takes_more_off_a_link(software: str) -> None:
    for name in LINKS:
        given = replace(cluster(2, 2), intra_host=mlperf.link(name), cross_host=mlperf.link(name))
        found = of_profile(given, built("profile", software))
        assert (found.intra_host, found.cross_host) == (given.intra_host, given.cross_host)


@pytest.mark.parametrize("benchmark", sorted(mlperf.MODELS))
def test_more_nodes_of_xeons_are_faster_on_the_same_batch(benchmark: str) -> None:
    row = mlperf.Row("v2.1", "Somebody", "system", benchmark, 1, 0, "N/A", "", "", 32768, 1.0)
    ms = [of_row(replace(row, nodes=nodes)).simulated_ms(built("profile", "cpu")) for nodes in (1, 2, 4)]
    assert ms == sorted(ms, reverse=True)


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_says_where_its_figures_are_from_and_what_it_was_fitted_to(name: str) -> None:
    made: Profile = built("profile", name)
    given = OmegaConf.load(CONF / "profile" / f"{name}.yaml")
    plain = ("defaults", "_target_", "name", "peak_of_format", "sources", "fitted_on", "fitted_kind")
    assert {key for key in given if key not in plain} <= set(made.sources)
    assert set(made.sources) <= {field.name for field in fields(Profile)}
    names = published()[name].get("fitted", []) if name in published() else []
    if name in ("local", "emulated"):  # fitted to trainings, which calibrate's own file names
        names = [*FITTED_TO_RUNS, *MEMORY_FITTED_TO_RUNS]
    else:
        assert bool(made.fitted_on) == bool(names) == (made.relative_error is not None)
    assert all("fitted" in made.sources[figure] for figure in names)
    assert [what for what, source in made.sources.items() if source.startswith("fitted")] == [f for f in made.sources if f in names]


@pytest.mark.parametrize("name", ["distributed_embeddings", pytest.param("torchrec", marks=pytest.mark.long)])
def test_a_profile_on_file_is_its_fit(name: str) -> None:
    made, names = built("profile", name), list(published()[name].fitted)
    points = [case.point for case in cases(name)]
    found = fit(of_systems(points), made, names, [getattr(made, n) for n in names], with_figures)
    assert found == {n: pytest.approx(getattr(made, n), rel=0.05) for n in names}
    assert made.fitted_on == {point.what: point.published for point in points}


def test_a_fit_finds_the_figure_that_made_the_points() -> None:
    true = profile(launch_overhead_us=30.0)
    points = [Point("g", str(n), n * true.launch_overhead_us, lambda p, n=n: n * p.launch_overhead_us) for n in (1, 2, 3)]
    found = fit(points, profile(), ["launch_overhead_us"], [10.0], with_figures)
    assert found["launch_overhead_us"] == pytest.approx(30.0, rel=1e-3)
    found_without = validate(Fits.of(points, true, ["launch_overhead_us"], [10.0]))
    assert [abs(one.left_out_error) < 1e-3 for one in found_without] == [True] * 3


def test_the_synthetic_models_are_as_large_as_their_authors_say() -> None:
    """4.2, 26.3 and 206.2 GiB in 55, 107 and 311 tables, by their own count."""
    for name, tables, gib in (("tiny", 55, 4.2), ("small", 107, 26.3), ("medium", 311, 206.2)):
        made = model(name).tables
        assert len(made) == tables and sum(t.weight_bytes for t in made) / 2**30 == pytest.approx(gib, abs=0.06)


@settings(max_examples=100)
@given(st.integers(2, 8), st.integers(1, 8), st.floats(1, 8), st.floats(1e3, 1e9))
def test_fewer_links_above_the_leaves_are_never_faster(hosts: int, ranks: int, oversubscription: float, size: float) -> None:
    flat = cluster(hosts, ranks, kind="cpu")
    pruned = replace(flat, hosts_per_leaf=max(hosts // 2, 1), leaf_oversubscription=oversubscription)
    step = Step("s", "all_to_all", "forward", (size,), (flat.ranks,))
    assert collective_ms(step, pruned) >= collective_ms(step, flat) * (1 - 1e-12)


def test_switches_that_add_up_are_never_slower() -> None:
    h100 = built("cluster", "h100")
    without = replace(h100, intra_host=replace(h100.intra_host, in_network_gb_s=None))
    for size in (8, 1e6, 1e9):
        assert group_ms("all_reduce", Shape(8, 1, 8), size, h100) <= group_ms("all_reduce", Shape(8, 1, 8), size, without)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda c: replace(c, price_per_device_hour=0.0), "cluster.price_per_device_hour"),
        (lambda c: replace(c, leaf_oversubscription=0.5), "cluster.leaf_oversubscription"),
        (lambda c: replace(c, cross_host=replace(c.cross_host, ring_gb_s=-1.0)), "ring_gb_s"),
        (lambda c: replace(c, device=replace(c.device, memory_gb=0.0)), "memory_gb"),
    ],
)
def test_a_figure_that_cannot_be_is_refused(change, where: str) -> None:
    with pytest.raises(UserError, match=where):
        change(cluster(1, 2))
