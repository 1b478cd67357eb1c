"""Bills of real rows: what a plan and a cluster make of them, what they assume, what meets a target, and where it all is shown."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from recsys_lab.__main__ import main
from recsys_lab.base.files import plain
from recsys_lab.base.store_names import HOST
from recsys_lab.cluster import Cluster, Disk
from recsys_lab.decide.bill import expected_hours
from recsys_lab.decide.bill_words import assumptions, bill_table
from recsys_lab.decide.bills import WholeRun, costs_of, whole_run, with_bills
from recsys_lab.decide.checkpoint import checkpoint_gb, read_gb_s, write_gb_s
from recsys_lab.decide.decision import Decision, decide
from recsys_lab.decide.page import page
from recsys_lab.decide.rows import Row
from recsys_lab.decide.run_asked import RunAsked, Spot
from recsys_lab.decide.target import target_of
from recsys_lab.tables import Table
from tests.plan.plans import plan, workload
from tests.simulate.clusters import cluster, of_file

SMALL = ["model=dcn", "data=random", "data.rows_train=4096", "data.rows_validation=64", "batch=65536", "precisions=fp32", "optimizers=adam"]
WORDS = [*SMALL, "clusters=h100x8..16:2.50,h20x8", "sharders=torchrec_row_wise", "profiles=torchrec"]
#: Some days of training.
RUN = ["samples=4.2e12", "spot=h100x8..16:1.10@0.05", "target_hours=1e6"]


@pytest.fixture(scope="module")
def decision() -> Decision:
    return decide(*WORDS, *RUN, workers=1)


@pytest.fixture(scope="module")
def h100x16(decision: Decision) -> Row:
    return next(row for row in decision.rows if row.cluster == "h100x16" and row.sharder == "torchrec_row_wise")


def test_a_bill_is_of_the_rows_own_figures(h100x16: Row) -> None:
    bill = h100x16.bill
    assert bill is not None and h100x16.samples_per_second and h100x16.forward_share and h100x16.checkpoint_gb
    training = 4.2e12 / h100x16.samples_per_second / 3600
    assert bill.training_hours == pytest.approx(training)
    assert 0.2 < h100x16.forward_share < 1 and bill.evaluation_hours == pytest.approx(0.05 * h100x16.forward_share * training)
    assert bill.checkpoint_seconds == pytest.approx(h100x16.checkpoint_gb / 30.4)
    assert bill.hours_between_failures == pytest.approx(50700 / 16)
    assert bill.usd == pytest.approx(bill.hours * 16 * 2.5) and bill.device_hours == pytest.approx(bill.hours * 16)
    costs = costs_of(h100x16, RunAsked(), of_file("cluster", "h100x64").reshaped(2, 8))  # type: ignore[union-attr]
    assert costs.restart == pytest.approx(1 / 6 + h100x16.checkpoint_gb / 56 / 3600)
    assert bill.hours == pytest.approx(expected_hours(training + bill.evaluation_hours, bill.checkpoint_minutes / 60, costs))


def test_a_spot_offer_is_cheaper_by_the_hour_and_fails_more(h100x16: Row) -> None:
    bill, spot = h100x16.bill, h100x16.spot_bill
    assert bill is not None and spot is not None and spot.spot and not bill.spot
    assert spot.hours_between_failures == pytest.approx(1 / (16 / 50700 + 2 * 0.05))
    assert spot.hours > bill.hours and spot.usd == pytest.approx(spot.hours * 16 * 1.1)


@pytest.mark.parametrize(
    ("schemes", "hosts", "weights"),
    [
        (("table_wise", "table_wise"), 2, 40 + 5),  # a table on each host, the dense arch from the first
        (("row_wise", "row_wise"), 2, 20 + 20 + 5),
        (("data_parallel", "table_wise"), 2, 40 + 40 + 5),  # the first rank writes what both have, and holds the other table
        (("table_wise", "data_parallel"), 1, 40 + 40 + 5),
    ],
)
def test_a_checkpoint_by_hand(schemes: tuple[str, str], hosts: int, weights: int) -> None:
    """Tables of 10 rows of 4 columns and 5 dense weights, each weight with Adam's two moments in FP32, and without its gradient."""
    work = workload(dense_parameters=5, sparse_optimizer="adam", dense_optimizer="adam")
    tables = (Table("t", 10, 4, ("a",)), Table("u", 10, 4, ("b",)))
    assert checkpoint_gb(plan(schemes, hosts, 2 // hosts, tables), work) * 1e9 == pytest.approx(12 * weights)


def test_a_disk_or_else_the_devices_links_take_the_checkpoint() -> None:
    without = cluster(2, 4)
    disk = Disk("disk", 4000.0, 7.0, 3.0, 1e6, "for the test")
    assert (write_gb_s(replace(without, disk=disk)), read_gb_s(replace(without, disk=disk))) == (3.0, 7.0)
    link = without.device.host_link_gb_s or without.device.memory_bandwidth_gb_s
    assert write_gb_s(without) == read_gb_s(without) == 4 * link


def test_hours_are_those_of_the_cheapest_row_of_the_first_cluster(decision: Decision) -> None:
    run = whole_run(RunAsked(hours=24.0), decision.rows, OwnData(), 1)  # type: ignore[arg-type]
    assert run is not None and run.hours_on == "h100x8"
    rows = with_bills(decision.rows, run, clusters())
    first = [row for row in rows if row.cluster == "h100x8"]
    assert min(row.bill.training_hours for row in first if row.bill) == pytest.approx(24.0)
    assert "As many samples as the cheapest combination on h100x8 trains in 24 hours." in assumptions(run, rows, clusters())
    assert whole_run(RunAsked(), decision.rows, OwnData(), 1) is None  # type: ignore[arg-type]


def clusters() -> dict[str, Cluster]:
    h100, h20 = of_file("cluster", "h100"), of_file("cluster", "h20")
    return {"h100x8": h100, "h100x16": h100.reshaped(2, 8), "h20x8": h20}  # type: ignore[union-attr,dict-item]


class OwnData:
    """Clicks of a user's own."""

    best_auc: dict[str, float] = {}
    learnable = True

    class Split:
        def __init__(self, rows: int) -> None:
            self.rows = rows

    splits = {"train": Split(1000), "validation": Split(100)}


@pytest.mark.parametrize(
    ("asked", "every", "evaluated", "by"),
    [
        (RunAsked(samples=1e6), 1, 0.1, "by trainer.evaluate_every_epochs"),
        (RunAsked(samples=1e6), 4, 0.025, "by trainer.evaluate_every_epochs"),
        (RunAsked(samples=1e6), 0, 1e-4, "once, at the end"),
        (RunAsked(samples=1e6, evaluation=0.3), 1, 0.3, "given"),
    ],
)
def test_the_configs_own_validation_says_how_much_is_evaluated(
    decision: Decision, asked: RunAsked, every: int, evaluated: float, by: str
) -> None:
    run = whole_run(asked, decision.rows, OwnData(), every)  # type: ignore[arg-type]
    assert run is not None and run.evaluated == pytest.approx(evaluated) and run.evaluated_by.endswith(by)


def test_what_is_given_is_not_assumed(decision: Decision) -> None:
    asked = RunAsked(samples=1e12, checkpoint_minutes=30.0, checkpoint_gb_s=0.001, restart_minutes=2.0, spot={"h20x8": Spot(1.0)})
    run = WholeRun(asked, 1e12, 0.0, "given")
    rows = with_bills(decision.rows, run, clusters())
    bill = rows[0].bill
    assert bill is not None and bill.checkpoint_minutes == 30.0 and bill.evaluation_hours == 0.0
    assert bill.checkpoint_seconds == pytest.approx((rows[0].checkpoint_gb or 0.0) / 0.001)
    words = " ".join(assumptions(run, rows, clusters()))
    assert "at 0.001 GB/s (given)" in words and "the interval is given." in words
    assert (
        "2 minutes (given)" in words and "assumed" not in words and "h20x8 spot: 1.00 $ a device-hour, no interruptions counted." in words
    )


def test_words_say_what_is_assumed_and_where_it_is_from(decision: Decision) -> None:
    words = " ".join(decision.of_bills)
    for part in (
        "0.05 samples for each that is trained (assumed, as the data are generated; evaluation=0.05 sets it)",
        "30.4 GB/s (its disks)",
        "no disk is on file",
        "the interval is of the least expected time (Daly 2006)",
        "Failures: one in 50,700 device-hours of H100 SXM 80 GB, taken for H20 96 GB (The Llama 3 Herd of Models",
        "2024-07-31",
        "h100x16 spot: 1.10 $ a device-hour, 0.05 interruptions of a host in an hour.",
        "Each interruption costs 10 minutes (assumed; restart_minutes sets it)",
    ):
        assert part in words, part
    assert "tables lie" not in words
    in_host = [replace(row, stores={HOST: 2}) for row in decision.rows]
    assert decision.run is not None
    said = " ".join(assumptions(decision.run, in_host, clusters()))
    assert "The price of a device-hour on h100x8, h100x16 includes its host's memory, where tables lie." in said
    free = {label: replace(one, failures=None) for label, one in clusters().items()}
    assert "No failures are counted on h100x8, h100x16, h20x8: none are on file." in assumptions(decision.run, decision.rows, free)


def test_the_table_has_the_cheapest_of_each_cluster_and_its_spot_offer(decision: Decision) -> None:
    table = bill_table(decision)
    names = [cells[0].split("\n")[0] for cells in table.rows]
    assert sorted(names) == ["h100x16", "h100x16 spot", "h100x8", "h100x8 spot", "h20x8"] and names[-1] == "h20x8"
    assert table.rows[0][3].startswith("evaluation ") and "\nfailures " in table.rows[0][3]
    assert table.rows[-1][2] == "no price" and table.columns[2] == "$" and "4.2 T samples" in table.title
    dollars = [float(cells[2].split("\n")[0].replace(",", "")) for cells in table.rows[:-1]]
    assert dollars == sorted(dollars)
    text = page(decision)
    assert "The whole run, 4.2 T samples" in text and "h100x16 spot" in text and "Llama 3" in text


def test_a_run_that_never_ends_says_so(decision: Decision) -> None:
    run = WholeRun(RunAsked(samples=1e12, spot={"h100x8": Spot(0.1, 1e6)}), 1e12, 0.0, "given")
    rows = [row for row in with_bills(decision.rows, run, clusters()) if row.cluster == "h100x8"]
    never = [cells for cells in bill_table(replace(decision, rows=rows, run=run)).rows if "spot" in cells[0]]
    assert [cells[1:] for cells in never] == [("never ends", "", "")]
    assert rows[0].spot_bill is not None and math.isinf(rows[0].spot_bill.hours)
    assert plain(replace(decision, rows=rows).to_json())["rows"][0]["spot_bill"]["hours"] is None


def test_the_cheapest_that_meets_a_target(decision: Decision) -> None:
    offers = [(row, bill) for row in decision.rows for bill in (row.bill, row.spot_bill) if bill is not None and bill.usd is not None]
    hours = sorted(bill.hours for _, bill in offers)
    limit = hours[len(hours) // 2]
    found = target_of(RunAsked(samples=4.2e12, target_hours=limit), decision.rows)
    row, bill = min((one for one in offers if one[1].hours <= limit), key=lambda one: one[1].cost)
    assert found is not None and found.met and (found.row, found.spot) == (row, bill.spot)
    assert found.words.startswith(f"The cheapest that meets target_hours={limit:g}: {row.name}") and f"{bill.cost:,.0f} $" in found.words
    assert f"{bill.hours:.3g} hours (90 %: " in found.words


def test_what_misses_a_target_by_least_is_named(decision: Decision) -> None:
    offers = [bill for row in decision.rows for bill in (row.bill, row.spot_bill) if bill is not None and bill.usd is not None]
    least = min(bill.hours for bill in offers)
    found = target_of(RunAsked(samples=4.2e12, target_hours=least / 2), decision.rows)
    assert found is not None and not found.met and "Nothing meets" in found.words and "misses by a factor of 2.00" in found.words
    assert target_of(RunAsked(), decision.rows) is None


def test_a_target_of_throughput_needs_no_length(decision: Decision) -> None:
    rows = [replace(row, bill=None, spot_bill=None) for row in decision.rows]
    rates = sorted(row.samples_per_second or 0.0 for row in rows if row.usd_per_1e9 is not None)
    found = target_of(RunAsked(target_samples_per_s=rates[1]), rows)
    cheapest = min((row for row in rows if row.usd_per_1e9 and (row.samples_per_second or 0) >= rates[1]), key=lambda row: row.cost)
    assert found is not None and found.met and found.row == cheapest and "$ per 1e9 samples" in found.words
    assert not target_of(RunAsked(target_samples_per_s=2 * rates[-1]), rows).met  # type: ignore[union-attr]


def test_the_command_prints_the_bill_and_its_json_has_one_a_row(
    decision: Decision, capsys: pytest.CaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    missed = target_of(RunAsked(samples=4.2e12, target_hours=1.0), decision.rows)
    monkeypatch.setattr("recsys_lab.decide.decision.decided", lambda question, progress, **_: replace(decision, target=missed))
    assert main(["decide", *WORDS, *RUN]) == 0
    lines = capsys.readouterr().out.splitlines()
    out = " ".join(" ".join(lines).split())
    assert max(map(len, lines)) <= 80 and "The whole run, 4.2 T samples" in out and "Nothing meets target_hours=1." in out
    assert main(["decide", *WORDS, *RUN, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert all(row["bill"]["hours"] > 0 and (row["bill"]["usd"] is None) == (row["spot_bill"] is None) for row in found["rows"])
    assert found["target"]["met"] is False and found["run"]["samples"] == 4.2e12 and found["run"]["assumptions"]


def test_a_range_says_its_smallest_size(decision: Decision) -> None:
    assert decision.sentences[0] == "The smallest cluster of h100x8..16 that fits is h100x8."
