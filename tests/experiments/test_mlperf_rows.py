"""Rows of MLPerf results as systems, HugeCTR's hybrid embedding by hand, and fits that have nothing of what they predict."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.validation import cases, command, hybrid, intervals, mlperf, picture
from experiments.validation.fit import Fits, Found, Point, Prediction, fit, validate, with_figures
from experiments.validation.models import Model
from recsys_lab.cluster import Cluster
from recsys_lab.config.choices import built
from recsys_lab.errors import UserError
from recsys_lab.precision import Precision
from recsys_lab.simulate import Profile
from recsys_lab.tables import AccessStatistics, Table, TableAccess
from tests.plan.plans import workload
from tests.simulate.clusters import cluster, profile

ROW = mlperf.Row("v3.1", "Somebody", "system", "dlrm_dcnv2", 1, 8, "NVIDIA H100-SXM5-80GB", "NVLink", "", 55296, 3.6)


def test_the_table_has_its_runs_and_every_accelerator_has_a_data_sheet() -> None:
    rows = mlperf.rows()
    assert len(rows) == 102 and {row.software for row in rows} == {"hugectr", "nvidia_pytorch", "cpu"}
    assert all(mlperf.cluster_of(row).world_size for row in rows)
    assert sum(row.hybrid for row in rows) == sum(
        row.benchmark == "dlrm" and row.round >= "v1" and row.software == "hugectr" for row in rows
    )


@pytest.mark.parametrize(
    ("accelerator", "nodes", "per_node", "network", "device", "near", "far", "shape"),
    [
        ("NVIDIA H100-SXM5-80GB", 8, 8, "8x ConnectX-7 IB NDR 400Gb/s", "H100 SXM 80 GB", "NVLink 4", "ConnectX-7", (8, 8)),
        ("NVIDIA H100-PCIe-80GB", 1, 8, "", "H100 PCIe 80 GB", "PCIe 5", "ConnectX-7", (1, 8)),
        ("NVIDIA A100", 1, 8, "", "A100 SXM 40 GB", "NVLink 3", "ConnectX-6", (1, 8)),
        ("NVIDIA A100-SXM-80GB", 4, 8, "100 Gb Ethernet", "A100 SXM 80 GB", "NVLink 3", "100 Gb", (4, 8)),
        ("NVIDIA A100-PCIe-80GB", 1, 4, "N/A", "A100 PCIe 80 GB", "PCIe 4", "ConnectX-6", (1, 4)),
        ("NVIDIA A100-PCIe-40GB", 1, 4, "", "A100 PCIe 40 GB", "PCIe 4", "ConnectX-6", (1, 4)),
        ("NVIDIA A30", 1, 8, "", "A30", "PCIe 4", "200 Gb", (1, 8)),
        ("NVIDIA H200-SXM5-141GB", 2, 8, "", "H200", "NVLink 4", "ConnectX-7", (2, 8)),
        ("NVIDIA Blackwell GPU (GB200)", 2, 4, "", "GB200", "NVLink 5", "ConnectX-7", (1, 8)),  # trays of one rack
        ("NVIDIA Blackwell GPU (GB200)", 18, 4, "", "GB200", "NVLink 5", "ConnectX-7", (1, 72)),
        ("NVIDIA Blackwell GPU (GB200)", 19, 4, "", "GB200", "NVLink 5", "ConnectX-7", (19, 4)),  # 19 trays are alike in no fewer racks
        ("NVIDIA Blackwell GPU (GB200)", 32, 4, "", "GB200", "NVLink 5", "ConnectX-7", (2, 64)),
        ("NVIDIA Blackwell Ultra GPU (GB300)", 20, 4, "", "GB300", "NVLink 5", "ConnectX-8", (2, 40)),
        ("NVIDIA H20", 2, 8, "", "H20 96 GB", "NVLink 4", "ConnectX-7", (2, 8)),
        ("NVIDIA H200 NVL", 1, 8, "", "H200", "PCIe 5", "ConnectX-7", (1, 8)),
        ("NVIDIA H100 NVL 94GB", 2, 4, "", "H100 NVL", "PCIe 5", "ConnectX-7", (2, 4)),
        ("NVIDIA H100-SXM5-80GB", 2, 8, "8x 400Gb/s RoCE", "H100 SXM", "NVLink 4", "ConnectX-7, 400 Gb/s RoCE", (2, 8)),
        ("NVIDIA A100-SXM4-80GB", 2, 8, "200Gb/s InfiniBand", "A100 SXM", "NVLink 3", "ConnectX-6 HDR", (2, 8)),
        ("NVIDIA A100-SXM4-80GB", 2, 8, "ethernet, 200Gb", "A100 SXM", "NVLink 3", "200 Gb/s RoCE", (2, 8)),
        ("AMD Instinct MI300X", 1, 8, "", "MI300X", "Infinity Fabric", "ConnectX-7, 400 Gb/s RoCE", (1, 8)),
        ("NVIDIA RTX 6000 Ada Generation", 1, 4, "", "RTX 6000 Ada", "PCIe 4", "200 Gb", (1, 4)),
        ("NVIDIA A10", 1, 4, "", "A10 24 GB", "PCIe 4", "200 Gb", (1, 4)),
        ("N/A", 4, 0, "Intel E810", "Xeon Platinum 8480+", "UPI 2", "100 Gb", (4, 2)),
    ],
)
def test_a_row_is_a_cluster_of_data_sheets(
    accelerator: str, nodes: int, per_node: int, network: str, device: str, near: str, far: str, shape: tuple[int, int]
) -> None:
    found = mlperf.cluster_of(replace(ROW, accelerator=accelerator, nodes=nodes, accelerators=per_node, network=network))
    assert found.device.name.startswith(device) and (found.hosts, found.ranks_per_host) == shape
    assert found.intra_host.name.startswith(near) and found.cross_host.name.startswith(far)


GB200 = replace(ROW, accelerator="NVIDIA Blackwell GPU (GB200)", accelerators=4)


@pytest.mark.parametrize("trays", [4, 8, 18])
def test_a_rack_is_planned_as_hosts_and_never_slower_than_those_over_a_network(trays: int) -> None:
    rack = cases.of_row(replace(GB200, nodes=trays))
    hosts = replace(rack.cluster, name="hosts").reshaped(trays // 2, 8)
    over_network = cases.system("dcn_mlperf", hosts, ROW.batch, "mixed", "tuned")
    assert rack.cluster.hosts == 1 and rack.system.steps == over_network.steps
    hugectr = built("profile", "hugectr")
    assert rack.system.simulated_ms(hugectr) <= over_network.simulated_ms(hugectr)


@pytest.mark.parametrize("benchmark", sorted(mlperf.MODELS))
def test_more_trays_of_a_rack_are_never_slower_on_the_same_batch(benchmark: str) -> None:
    hugectr = built("profile", "hugectr")
    ms = [cases.of_row(replace(GB200, nodes=n, benchmark=benchmark, round="v5.0")).simulated_ms(hugectr) for n in (2, 4, 8, 16)]
    assert ms == sorted(ms, reverse=True)


@pytest.mark.parametrize(("ranks", "planned"), [(4, (1, 4)), (8, (1, 8)), (36, (6, 6)), (40, (5, 8)), (72, (9, 8)), (76, (19, 4))])
def test_ranks_of_a_rack_are_hosts_of_eight_or_fewer(ranks: int, planned: tuple[int, int]) -> None:
    made = cases.of_hosts(cluster(1, ranks))
    assert (made.hosts, made.ranks_per_host) == planned


def test_what_no_data_sheet_has_and_what_is_no_table_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no data sheet"):
        mlperf.cluster_of(replace(ROW, accelerator="Abacus"))
    (tmp_path / "rows.tsv").write_text("round\tsystem\nv1\tx\n")
    (tmp_path / "empty.tsv").write_text("")
    (tmp_path / "head.tsv").write_text("\t".join(mlperf.COLUMNS) + "\n")
    for name, says in (("rows", "no table of runs"), ("none", "no such file"), ("empty", "no table of runs"), ("head", "given no run")):
        with pytest.raises(UserError, match=says):
            mlperf.rows(tmp_path / f"{name}.tsv")


@pytest.mark.parametrize(
    ("column", "cell"),
    [
        ("nodes", "0"),
        ("nodes", "1.5"),
        ("nodes", "9" * 30),
        ("accelerators_per_node", "-1"),
        ("global_batch", ""),
        ("ms_median", "nan"),
        ("ms_median", "0"),
        ("ms_median", "fast"),
        ("accelerator", "TPU"),
        ("accelerator", ""),
        ("benchmark", "gpt"),
    ],
)
def test_a_cell_of_a_row_that_cannot_be_names_its_line(tmp_path: Path, column: str, cell: str) -> None:
    head, good = "\t".join(mlperf.COLUMNS), "v3.1\tX\tsystem\tdlrm\t1\t8\tH100\tNVLink\tNDR\t55296\t3.6"
    cells = good.split("\t")
    cells[mlperf.COLUMNS.index(column)] = cell
    path = tmp_path / "rows.tsv"
    path.write_text(f"{head}\n{good}\n" + "\t".join(cells) + "\n")
    with pytest.raises(UserError, match=f"rows.tsv line 3, {column}"):
        mlperf.rows(path)
    path.write_text(f"{head}\n{good}\n")
    assert [(row.nodes, row.accelerators, row.batch, row.ms) for row in mlperf.rows(path)] == [(1, 8, 55296, 3.6)]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--only", "neo", "--rows", "x.tsv"], "--only: it has no effect beside --rows; drop one of the two"),
        (["--rows", "x.tsv", "--picture", "x.svg"], "--picture: it has no effect beside --rows"),
        (["--local", "--rows", "x.tsv"], "--rows: it has no effect beside --local"),
        (["--local", "--fit"], "--fit: it has no effect beside --local"),
        (["--fit", "--picture", "x.svg"], "--picture: it has no effect beside --fit"),
    ],
)
def test_an_option_without_effect_is_refused(options: list[str], says: str) -> None:
    with pytest.raises(UserError, match=f"^{says}"):
        command.main(options)


def test_a_picture_of_points_that_are_none(tmp_path: Path) -> None:
    fitted = Found(timed("a", 1.0), 1.0, {"system": Prediction(1.16, {})})
    picture.draw([fitted], tmp_path / "p.svg")  # nothing plain, nothing left out
    assert (tmp_path / "p.svg").stat().st_size > 0
    with pytest.raises(UserError, match="--picture: no times to draw"):
        picture.draw([replace(fitted, point=replace(fitted.point, unit="times"))], tmp_path / "q.svg")
    with pytest.raises(UserError, match=r"allowed: a name that ends in \.svg"):
        picture.out(str(tmp_path / "q.png"))


def test_hybrid_embedding_by_hand() -> None:
    """Of 100 samples on each of 4 ranks: 2 rows of p = 0.25 are looked up 25 times, 50 rows of p = 0.01 once, 1,000 of 0.0001 hardly."""
    table = Table("t", 1052, 8, ("t",))
    access = TableAccess("t", 1.1, (2, 50, 1000), (0.25, 0.01, 0.0001), "formula", "by hand")
    assert [hybrid.frequent_rows(access, batch) for batch in (1, 4, 100, 10_000)] == [0, 2, 52, 1052]
    found = Model((table,), AccessStatistics({"t": access}), 1000, 1.0, 2.0, 4.0, ())
    steps = hybrid.steps_of(
        found, cluster(1, 4), Precision("p", forward_comm="fp16", dense_comm="fp16"), workload(100, dense_parameters=1000)
    )
    by_name = {step.name: step for step in steps.steps}
    assert not [step for step in steps.steps if step.phase == "input" and step.is_collective]
    assert by_name["hybrid.lookup"].max_bytes == pytest.approx(110 * 8 * 4)
    assert by_name["hybrid.output.all_to_all"].max_bytes == pytest.approx(10 * 8 * 2)  # 100 samples x 0.1 rare rows
    assert by_name["hybrid.gradient.all_to_all"].max_bytes == pytest.approx(10 * 8 * 4)
    assert by_name["dense.all_reduce"].max_bytes == pytest.approx((1000 + 52 * 8) * 2)


def on(hosts: int, device: str) -> Cluster:
    made = cluster(hosts, 2)
    return replace(made, device=replace(made.device, name=device))


def points(hosts: tuple[int, ...], devices: tuple[str, ...]) -> list[Point]:
    """Times of n launches, of which the last is twice what the others say."""
    true = [30.0 * (n + 1) for n in range(len(hosts))]
    true[-1] *= 2
    return [
        Point("g", str(n), ms, lambda p, n=n: (n + 1) * p.launch_overhead_us, cluster=on(h, device))
        for n, (ms, h, device) in enumerate(zip(true, hosts, devices))
    ]


def fits(given: list[Point], launch_us: float = 35.0) -> Fits:
    return Fits.of(given, profile(launch_overhead_us=launch_us), ["launch_overhead_us"], [launch_us])


def test_a_fit_knows_nothing_of_the_board_the_network_the_scale_or_the_generation_that_it_predicts() -> None:
    found = validate(fits(points((1, 1, 1, 2), ("A", "A", "B", "H200"))), intervals.PROTOCOLS)
    told = {point.what: point.predictions for point in found}
    for protocol in ("board", "network", "scale", "hosts", "generation"):
        assert told["3"][protocol].simulated == pytest.approx(120.0, rel=1e-3) and told["3"][protocol].systems == {"A": 1, "B": 1}
    assert "hosts" not in told["0"] and "generation" not in told["2"]
    assert told["2"]["board"].simulated > 90.0 * 1.001  # its fit had the last, which pulls
    assert [point.error_without("hosts") for point in found if "hosts" in point.predictions] == [pytest.approx(-0.5, rel=1e-3)]


def test_too_few_systems_are_no_fit_and_a_figure_stays_in_its_range() -> None:
    alone = points((1,), ("A",))
    assert validate(fits(alone), intervals.PROTOCOLS)[0].predictions == {}
    far = [Point("g", str(n), 1e6 * n, lambda p, n=n: n * p.launch_overhead_us) for n in (1, 2)]
    assert fit(far, profile(), ["launch_overhead_us"], [10.0], with_figures)["launch_overhead_us"] == pytest.approx(300.0, rel=1e-3)


def test_near_copies_are_one_system_and_leave_a_fit_together() -> None:
    """Ten runs of one system weigh as much as the one of another, and none of them predicts another."""

    def of_one(software: Profile) -> float:
        return software.launch_overhead_us

    copies = [Point("g", f"run {n}", ms, of_one, cluster=on(1, "A")) for n, ms in enumerate((20.0, 40.0, 80.0))]
    other = Point("g", "other", 60.0, lambda p: 2 * p.launch_overhead_us, cluster=on(1, "A"))
    found = {point.what: point for point in validate(fits([*copies, other]))}
    system = found["run 0 and 2 more, 20 to 80"]
    assert len(found) == 2 and system.published == pytest.approx(40.0) and system.runs == (20.0, 40.0, 80.0)
    assert system.left_out == pytest.approx(30.0, rel=1e-3) and found["other"].left_out == pytest.approx(80.0, rel=1e-3)


def test_points_of_one_benchmark_leave_a_fit_together() -> None:
    given = [replace(point, together=name) for point, name in zip(points((1, 1, 1), ("A", "A", "A")), ("", "bench", "bench"))]
    told = {point.what: point.left_out for point in validate(fits(given))}
    assert told["1"] == pytest.approx(60.0, rel=1e-3) and told["2"] == pytest.approx(90.0, rel=1e-3)


def timed(what: str, published: float, runs: tuple[float, ...] = ()) -> Point:
    return Point(
        "sok", what, published, lambda p: p.launch_overhead_us, cluster=on(1, "A"), time_ms=lambda p, c: p.launch_overhead_us, runs=runs
    )


def test_intervals_widen_off_the_fit_and_coverage_counts_each_system_once() -> None:
    """An interval of 0.1 reaches to +16.45 %, one of 0.3 for another device to +49 %."""
    software = profile(relative_error=0.1, relative_error_outside=0.3, fitted_systems={"A": 1}, assumed={})
    seen = Found(
        timed("a", 10.0, (11.0, 11.0, 14.0, 8.0)), 10.0, {"system": Prediction(10.0, {"A": 1}), "board": Prediction(10.0, {"B": 1})}
    )
    bound = Found(replace(timed("b", 10.0), bound=True), 10.0)
    made = intervals.intervals([seen, bound], {"sok": software})
    own, none = made
    assert none == {} and own["file"].high == pytest.approx(11.645, rel=0.02) and own["board"].high == pytest.approx(14.9, rel=0.03)
    told = intervals.coverage([seen, bound], made)
    assert (told["file"], told["system"], told["board"], told["left_out_whole"]) == (0.5, 0.5, 1.0, 1.0)
    assert told["width_fitted"] < told["width_left_out_whole"] and told["of_left_out_whole"] == 1


def errors(*values: float) -> list[tuple[float, float]]:
    return [(math.log1p(value), 1.0) for value in values]


@pytest.mark.parametrize(("number", "most"), [(9, 0.3), (19, 0.2), (20, 0.2), (29, 0.2)])
def test_an_interval_holds_nine_of_ten_and_the_next_as_well(number: int, most: float) -> None:
    """The largest of 9 errors; the 18th of 19, the 19th of 20 and the 27th of 29, so that the one outlier is outside."""
    given = errors(0.3, 0.2, 0.2, 0.2, *[0.05] * (number - 4))
    assert 1 + 1.645 * intervals.typical(given) == pytest.approx(1 + most, abs=2e-3)
    assert intervals.typical([(-error, weight) for error, weight in given]) == intervals.typical(given)  # as many times too fast


def test_many_runs_of_a_system_weigh_as_one() -> None:
    given = errors(*[0.05] * 8, 0.3)
    copies = [*given[:-1], *[(given[-1][0], 0.1)] * 10]
    assert intervals.typical(copies) == intervals.typical(given)


def test_of_few_errors_an_interval_is_wider_than_any_of_them() -> None:
    few, fewer = (errors(*[0.1] * number) for number in (8, 2))
    assert 0.1 < 1.645 * intervals.typical(few) < 1.645 * intervals.typical(fewer)
    assert 1.645 * intervals.typical(fewer) == pytest.approx(1.1**2.92 - 1, abs=1e-3)  # Student's t of 2


def test_an_error_off_the_fit_is_the_worst_of_its_protocols() -> None:
    by = {"system": Prediction(10.0, {}), "board": Prediction(7.0, {}), "hosts": Prediction(15.0, {})}
    found = [Found(timed("a", 10.0), 10.0, by), Found(replace(timed("b", 10.0), cluster=on(2, "A")), 10.0, by)]
    assert intervals.errors_without(found, intervals.OF_DEVICES) == [(pytest.approx(math.log(0.7)), 1.0)] * 2
    assert intervals.errors_without(found, intervals.OF_HOSTS, hosts=2) == [(pytest.approx(math.log(1.5)), 1.0)]


def test_a_network_that_nobody_names_is_known_less_well() -> None:
    two = replace(ROW, nodes=2)
    named, open_ = (mlperf.cluster_of(replace(two, network=network)) for network in ("NDR", ""))
    assert open_.cross_host.spread > 2 * named.cross_host.spread and mlperf.cluster_of(ROW).cross_host == named.cross_host
