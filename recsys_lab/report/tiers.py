"""FlexShard's three tiers, as planned and as trained, as tables of text."""

from __future__ import annotations

from recsys_lab.plan.tiers import is_tiered
from recsys_lab.record.run_folder import Run
from recsys_lab.report.sections import UNKNOWN, Table, count, share
from recsys_lab.tables.tiers import ROW_SHARDED


def tiers(run: Run) -> Table | None:
    """FlexShard's three tiers as planned for the named cluster. It says how many rows are where, and their share of look-ups.

    None of a plan without tiers.
    """
    summary = run.result["plan"]
    if not summary or run.plan is None or not any(map(is_tiered, run.plan.placements)):
        return None
    rows = [(name, count(t.get("rows")), _share(t.get("access_share"))) for name, t in summary["tiers"].items()]
    return Table("Tiers", ("tier", "rows", "share of look-ups"), tuple(rows), right=("rows", "share of look-ups"))


def coverage(run: Run) -> Table | None:
    """What the tiers of the plan that trained here covered.

    Beside it is what was planned and what a new plan would cover. None without tiers.
    """
    shares = (run.result["measured"] or {}).get("coverage")
    if not shares:
        return None
    again = shares["replanning"] or {"access_share_now": {}, "access_share_new": {}}
    columns = ("tier", "planned", "measured", "of the last look-ups", "a new plan's")
    rows = [
        (
            tier,
            _share(share),
            _share(shares["measured"].get(tier)),
            _share(again["access_share_now"].get(tier)),
            _share(again["access_share_new"].get(tier)),
        )
        for tier, share in shares["planned"].items()
    ]
    return Table("Look-ups by tier, of the plan that trained here", columns, tuple(rows), verdict_of(shares), right=columns[1:])


def verdict_of(shares: dict) -> str:
    """Whether to plan again, with both figures."""
    again = shares["replanning"]
    if again is None:
        return "too few look-ups to say what a new plan would save"
    now, new = (_share(again[key].get(ROW_SHARDED)) for key in ("access_share_now", "access_share_new"))
    threshold = share(again["threshold"], 1)
    figures = f"{now} of the look-ups go through the global exchange, {new} would with a plan from the last look-ups"
    if again["worth_it"]:
        return f"plan again: {figures}, {share(again['saving'], 1)} less (worth it from {threshold})"
    return f"the plan still pays: {figures} (a new plan is worth it from {threshold} less)"


def _share(share: float | None) -> str:
    return UNKNOWN if share is None else f"{share:.1%}"
