"""The bills of a decision as a table, and what they assume, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from recsys_lab.base.store_names import HOST, HOST_CACHED
from recsys_lab.cluster import Cluster, Failures
from recsys_lab.decide.answer import choosable
from recsys_lab.decide.bill import Bill
from recsys_lab.decide.bills import WholeRun
from recsys_lab.decide.checkpoint import write_gb_s
from recsys_lab.decide.rows import Row
from recsys_lab.decide.run_asked import RESTART_MINUTES
from recsys_lab.report.sections import Table
from recsys_lab.units import human_count

if TYPE_CHECKING:
    from recsys_lab.decide.decision import Decision

DASH = "\N{EN DASH}"
COLUMNS = ("combination", "hours", "$", "of these hours")


def cheapest_of_clusters(rows: Sequence[Row]) -> list[Row]:
    """Of rows with a bill the cheapest of each cluster, in the order of the clusters."""
    best: dict[str, Row] = {}
    for row in rows:
        if row.bill is not None and (row.cluster not in best or row.bill.cost < _bill(best[row.cluster]).cost):
            best[row.cluster] = row
    return list(best.values())


def bill_table(decision: Decision) -> Table:
    """The whole run of the cheapest row of each cluster under the winner's profile, and of its spot offer."""
    run, chosen = decision.run, decision.winner.row
    assert run is not None and chosen is not None
    best = cheapest_of_clusters(choosable([row for row in decision.rows if row.profile == chosen.profile], decision.trainable))
    bills = [(row, bill) for row in best for bill in (row.bill, row.spot_bill) if bill]
    bills.sort(key=lambda one: (one[1].usd is None, one[1].cost))
    paid = any(bill.usd is not None for _, bill in bills)
    columns = COLUMNS if paid else tuple("dev-hours" if column == "$" else column for column in COLUMNS)
    title = f"The whole run, {human_count(run.samples)} samples: the cheapest of each cluster"
    about = "Simulated; the second line of a figure is its 90 % interval."
    note = " ".join([about, *decision.of_bills])
    return Table(title, columns, tuple(_cells(row, bill, paid) for row, bill in bills), note, columns[1:3])


def _cells(row: Row, bill: Bill, paid: bool) -> tuple[str, ...]:
    name = f"{row.cluster}{' spot' if bill.spot else ''}\n  {row.sharder}\n  {row.optimizer} {row.precision}"
    if math.isinf(bill.hours):
        return name, "never ends", "", ""
    cost = "no price" if paid and bill.usd is None else _with_span(bill.cost, row)
    parts = {"evaluation": bill.evaluation_hours, "checkpoints": bill.checkpoint_hours, "failures": bill.failure_hours}
    return name, _with_span(bill.hours, row), cost, "\n".join(f"{part} {_figure(hours)}" for part, hours in parts.items())


def _with_span(value: float, row: Row) -> str:
    """With its 90 % interval, which is as wide as that of the row's time: hours are proportional to the time of a sample."""
    if row.ms is None or row.ms_interval is None:
        return f"{_figure(value)}\nnot known"
    low, high = (_figure(value * end / row.ms) for end in row.ms_interval)
    return f"{_figure(value)}\n{low}{DASH}{high}"


def _figure(value: float) -> str:
    """Three digits, or all that stand before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def assumptions(run: WholeRun, rows: Sequence[Row], clusters: Mapping[str, Cluster]) -> list[str]:
    """What the bills of the rows that are shown rest on, a sentence or two each. `rows`: of one profile."""
    best = cheapest_of_clusters(rows)
    length = f"As many samples as the cheapest combination on {run.hours_on} trains in {run.asked.hours:g} hours." if run.hours_on else None
    of_plans = [_of_evaluation(run, best), _of_checkpoints(run, best, clusters), *_of_host(best)]
    return [*([length] if length else []), *of_plans, *_of_failures(run, [clusters[row.cluster] for row in best], best)]


def _of_evaluation(run: WholeRun, best: Sequence[Row]) -> str:
    shares = sorted(row.forward_share or 0.0 for row in best)
    span = f"{shares[0]:.2f}" if f"{shares[0]:.2f}" == f"{shares[-1]:.2f}" else f"{shares[0]:.2f} to {shares[-1]:.2f}"
    return (
        f"Evaluation: {run.evaluated:.3g} samples for each that is trained ({run.evaluated_by}), each {span} of its time, "
        "as much as the forward pass has of an iteration."
    )


def _of_checkpoints(run: WholeRun, best: Sequence[Row], clusters: Mapping[str, Cluster]) -> str:
    each = []
    for row in best:
        cluster, bill = clusters[row.cluster], _bill(row)
        gb_s = run.asked.checkpoint_gb_s or write_gb_s(cluster)
        where = "given" if run.asked.checkpoint_gb_s else "its disks" if cluster.disk else "its memory, as no disk is on file"
        size = f"{row.checkpoint_gb:.3g} GB at {gb_s:.3g} GB/s ({where})"
        each.append(f"{row.cluster} {size}, {bill.checkpoint_seconds:.2g} s every {bill.checkpoint_minutes:,.0f} minutes")
    how = "given" if run.asked.checkpoint_minutes else "of the least expected time (Daly 2006)"
    return f"Checkpoints of weights and optimizer state, on the fullest host: {'; '.join(each)}. Training waits; the interval is {how}."


def _of_failures(run: WholeRun, clusters: Sequence[Cluster], best: Sequence[Row]) -> list[str]:
    taken_for: dict[Failures, list[str]] = {}
    for cluster in clusters:
        if cluster.failures is not None:
            taken_for.setdefault(cluster.failures, []).append(cluster.device.name)
    words = []
    for failures, devices in taken_for.items():
        others = ", ".join(dict.fromkeys(device for device in devices if device != failures.device))
        counted = f"{failures.device}, taken for {others}" if others else failures.device
        words.append(f"Failures: one in {failures.device_hours:,.0f} device-hours of {counted} ({failures.source}; {failures.date}).")
    if unknown := [row.cluster for row, cluster in zip(best, clusters) if cluster.failures is None]:
        words.append(f"No failures are counted on {', '.join(unknown)}: none are on file.")
    for label, spot in run.asked.spot.items():
        rate = f"{spot.interruptions:g} interruptions of a host in an hour" if spot.interruptions else "no interruptions counted"
        words.append(f"{label} spot: {spot.usd_per_device_hour:,.2f} $ a device-hour, {rate}.")
    given = run.asked.restart_minutes
    minutes = f"{RESTART_MINUTES:g} minutes (assumed; restart_minutes sets it)" if given is None else f"{given:g} minutes (given)"
    return [*words, f"Each interruption costs {minutes}, the reload, and the work since the last checkpoint, on average half an interval."]


def _of_host(best: Sequence[Row]) -> list[str]:
    """Rows of tables in host memory have no price of their own."""
    there = [row.cluster for row in best if row.price is not None and {HOST, HOST_CACHED} & row.stores.keys()]
    return [f"The price of a device-hour on {', '.join(there)} includes its host's memory, where tables lie."] if there else []


def _bill(row: Row) -> Bill:
    assert row.bill is not None
    return row.bill
