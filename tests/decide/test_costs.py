"""Costs: dollars stand beside dollars alone. Rows of a cluster without a price are shown, and compared with no row that has one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recsys_lab.decide.answer import marked, winner_of
from recsys_lab.decide.decision import Decision
from recsys_lab.decide.fixes import with_fixes
from recsys_lab.decide.page import page
from recsys_lab.decide.rows import Change, Row
from recsys_lab.decide.tables import changes_table, rows_table


def row(cluster: str, ms: float, usd: float | None, hours: float, sharder: str = "torchrec", profile: str = "torchrec") -> Row:
    return Row(
        cluster,
        sharder,
        "fp32",
        "adam",
        profile,
        65536,
        1024,
        64,
        fits=True,
        ms=ms,
        ms_interval=(ms * 0.99, ms * 1.01),
        samples_per_second=65536 / ms * 1e3,
        usd_per_1e9=usd,
        device_hours_per_1e9=hours,
        memory_gb=10.0,
        memory_there_gb=80.0,
    )


#: The unpriced rows take fewer device-hours than the priced ones take dollars, and one of them is the fastest.
PRICED = [row("h100x64", 6.0, 4.0, 1.6), row("h100x64", 7.0, 4.7, 1.9, "dmt")]
UNPRICED = [row("h200x64", 5.0, None, 1.3), row("h200x64", 9.0, None, 2.4, "dmt")]
MIXED = [*UNPRICED, *PRICED]


def test_dollars_are_not_compared_with_device_hours() -> None:
    rows = marked(MIXED)
    assert [(one.cluster, one.pareto, one.robust) for one in rows if one.pareto] == [("h100x64", True, True)]
    winner = winner_of(rows)
    assert winner.row is not None and winner.row.name == "h100x64 torchrec fp32 adam" and winner.status == "winner"
    assert winner.without_price == ("h200x64",) and winner.rivals == ()
    assert "4.00 $ per 1e9 samples" in winner.verdict and winner.details == "h200x64 has no price and is not compared."
    assert winner.words == f"{winner.verdict}\n{winner.details}"


def test_the_order_of_the_clusters_changes_nothing() -> None:
    assert winner_of(marked(MIXED[::-1])).row == winner_of(marked(MIXED)).row


def test_without_any_price_all_rows_are_compared_by_device_hours() -> None:
    rows = marked([*UNPRICED, replace(PRICED[0], usd_per_1e9=None)])
    winner = winner_of(rows)
    assert winner.row is not None and winner.row.cluster == "h200x64" and winner.without_price == ()
    assert "1.30 device-hours per 1e9 samples" in winner.verdict and not winner.details and rows[0].pareto


def test_where_no_row_with_a_price_fits_device_hours_decide() -> None:
    lacking = [replace(one, fits=False, ms=None, usd_per_1e9=None, device_hours_per_1e9=None) for one in PRICED]
    winner = winner_of(marked([*lacking, *UNPRICED]))
    assert winner.row is not None and winner.row.cluster == "h200x64" and "device-hours" in winner.verdict


def test_a_profile_that_only_rows_without_a_price_have_does_not_count() -> None:
    winner = winner_of(marked([row("spr4", 5.0, None, 1.0, profile="cpu"), *PRICED]))
    assert winner.status == "winner" and list(winner.by_profile) == ["torchrec"]


def test_what_depends_on_the_software_is_a_list_of_profiles_and_rows() -> None:
    rows = marked([*MIXED, row("h100x64", 5.0, 3.0, 1.2, "dmt", "hugectr"), row("h100x64", 6.0, 4.0, 1.6, profile="hugectr")])
    winner = winner_of(rows)
    lines = winner.details.split("\n")
    assert winner.status == "depends on the software" and lines[0] == "The cheapest under each software profile alone:"
    assert lines[1:3] == ["  torchrec: h100x64 torchrec fp32 adam, 6.00 ms", "  hugectr: h100x64 dmt fp32 adam, 5.00 ms"]
    assert lines[3] == "h200x64 has no price and is not compared."
    assert lines[4] == "The advice is for torchrec, with which recsys_lab trains. For your framework: profiles=NAME."
    other = winner_of([replace(row, profile={"torchrec": "sok"}.get(row.profile, row.profile)) for row in rows])
    assert other.details.split("\n")[4] == "The advice is for sok. For your framework: profiles=NAME."
    listed = "<ul><li>torchrec: h100x64 torchrec fp32 adam, 6.00 ms</li><li>hugectr: h100x64 dmt fp32 adam, 5.00 ms</li></ul>"
    assert f"{listed}<p>h200x64 has no price and is not compared.</p>" in page(Decision(rows, winner, [], []))


def test_without_draws_the_verdict_says_that_nothing_is_known() -> None:
    cheapest, certain = winner_of(marked(PRICED)).verdict.split("\n")
    figures = "4.00 $ per 1e9 samples (90 %: 3.96 to 4.04), 6.00 ms an iteration."
    assert cheapest == f"Rent h100x64 for torchrec fp32 adam: {figures}"
    assert certain == "How sure that is, is not known: the profile was not fitted to such systems."
    assert winner_of(marked(PRICED[:1])).verdict.endswith("\nNo other combination fits.")


def test_the_nearest_that_fits_has_a_price_where_one_has() -> None:
    lacking = replace(row("a100x32", 1.0, 1.0, 1.0), fits=False, ms=None, usd_per_1e9=None, device_hours_per_1e9=None)
    found = with_fixes([lacking, *MIXED])[0]
    assert found.fix == "cluster=h100x64: 6.00 ms, 4.00 $ per 1e9"
    assert with_fixes([lacking, *UNPRICED])[0].fix == "cluster=h200x64: 5.00 ms, 1.30 device-hours per 1e9"


@pytest.mark.parametrize("every", [False, True])
def test_the_table_says_no_price_and_how_to_give_one(every: bool) -> None:
    rows = marked([*MIXED, *(row("h100x64", 10.0 + n, 7.0 + n, 3.0, f"other{n}") for n in range(12))])
    table = rows_table(rows, winner_of(rows), every)
    of_unpriced = [cells for cells in table.rows if "h200x64" in cells[0]]
    assert of_unpriced and all(cells[3] == "no price" and not cells[0].startswith("*") for cells in of_unpriced)
    assert len(of_unpriced) == (2 if every else 1) and table.rows[0][3].startswith("4.00")
    assert "No price is known of h200x64" in table.note and "clusters=h200x64:2.50" in table.note
    assert ("are left out" in table.note) == (not every) and "dearer" not in table.note


def test_the_page_has_the_words() -> None:
    rows = marked(MIXED)
    text = page(Decision(rows, winner_of(rows), [], []))
    assert "h200x64 has no price" in text and "shapes are clusters: circles h200x64, squares h100x64." in text


def test_a_change_that_no_digit_shows_has_no_reason() -> None:
    """It would stand beside +0.0 %."""
    phase = ("compute", (264.24, 264.31))
    none, some = Change("none", True, 9.0, 1.0, -3e-4, 3e-4, *phase), Change("some", True, 9.0, 1.0, 6e-4, 6e-4, *phase)
    assert (none.because, some.because) == ("no difference", "compute 264.24 -> 264.31 ms")
    rows = changes_table([none, some], row("h100x8", 9.0, 1.0, 1.0)).rows
    assert [(cells[2], cells[4]) for cells in rows] == [("0.0%", "0.0%"), ("+0.1%", "+0.1%")]
