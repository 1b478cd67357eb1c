"""The cheapest combination, size and way to pay that meets what is asked of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recsys_lab.decide.bill import Bill
from recsys_lab.decide.rows import Row
from recsys_lab.decide.run_asked import RunAsked
from recsys_lab.units import human_count


@dataclass(frozen=True)
class Target:
    """`met`: whether any row meets it. `row`: the cheapest that does, else the one that misses by least. `spot`: at its spot offer.

    `words`: the same in one sentence.
    """

    met: bool
    row: Row
    spot: bool
    words: str


def target_of(asked: RunAsked, rows: Sequence[Row]) -> Target | None:
    """Of `rows` with figures, under one profile; None where nothing is asked. Dollars are compared where any offer has a price."""
    if not asked.has_target:
        return None
    offers = [*((row, row.bill) for row in rows), *((row, row.spot_bill) for row in rows if row.spot_bill)]
    priced = [offer for offer in offers if _usd(*offer) is not None] or offers
    meeting = [offer for offer in priced if _missed(asked, *offer) <= 1]
    row, bill = min(meeting, key=lambda offer: _cost(*offer)) if meeting else min(priced, key=lambda offer: _missed(asked, *offer))
    wanted = " and ".join(
        f"{key}={value:g}"
        for key, value in (("target_hours", asked.target_hours), ("target_samples_per_s", asked.target_samples_per_s))
        if value is not None
    )
    name = f"{row.name}{' at its spot price' if bill and bill.spot else ''}"
    if meeting:
        words = f"The cheapest that meets {wanted}: {name}, {_figures(row, bill)}."
    else:
        missed = f"it misses by a factor of {_missed(asked, row, bill):.2f}"
        words = f"Nothing meets {wanted}. The nearest is {name}, {_figures(row, bill)}: {missed}."
    return Target(bool(meeting), row, bool(bill and bill.spot), words)


def _missed(asked: RunAsked, row: Row, bill: Bill | None) -> float:
    """By which factor it misses: at most 1 where it meets both targets."""
    assert row.samples_per_second is not None
    hours = bill.hours / asked.target_hours if bill and asked.target_hours else 0.0
    return max(hours, (asked.target_samples_per_s or 0.0) / row.samples_per_second)


def _usd(row: Row, bill: Bill | None) -> float | None:
    return bill.usd if bill else row.usd_per_1e9


def _cost(row: Row, bill: Bill | None) -> float:
    return bill.cost if bill else row.cost


def _figures(row: Row, bill: Bill | None) -> str:
    assert row.samples_per_second is not None
    unit = "device-hours" if _usd(row, bill) is None else "$"
    cost = f"{_cost(row, bill):,.0f} {unit}" if bill else f"{_cost(row, bill):.2f} {unit} per 1e9 samples"
    between = ""
    if bill and row.ms and row.ms_interval:
        low, high = (bill.hours * end / row.ms for end in row.ms_interval)
        between = f" (90 %: {low:.3g} to {high:.3g})"
    return f"{human_count(row.samples_per_second)} samples/s, " + (f"{bill.hours:.3g} hours{between}, " if bill else "") + cost
