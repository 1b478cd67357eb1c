"""The verdict of a decision in two sentences: which combination, at what cost, and what it ties with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from recsys_lab.decide.rows import Row
from recsys_lab.units import counted


def verdict(by_profile: Mapping[str, Row], rivals: Sequence[Row], alone: bool) -> str:
    """Two lines on the cheapest row under the first profile.

    `by_profile`: the cheapest row under each profile. `rivals`: rows whose intervals overlap with one of these, one a combination, the
    cheapest first. `alone`: no other combination is compared.
    """
    best = next(iter(by_profile.values()))
    return f"{_cheapest(best, len(by_profile) > 1)}\n{_certainty(best, by_profile, rivals, alone)}"


def _cheapest(best: Row, several: bool) -> str:
    under = f" under profile {best.profile}" if several else ""
    unit = "$" if best.usd_per_1e9 is not None else "device-hours"
    span = best.cost_interval
    between = f" (90 %: {span[0]:.3g} to {span[1]:.3g})" if span else ""
    return f"{best.name} is cheapest{under}: {best.cost:.2f} {unit} per 1e9 samples{between}, {best.ms:.2f} ms an iteration."


def _certainty(best: Row, by_profile: Mapping[str, Row], rivals: Sequence[Row], alone: bool) -> str:
    tops = by_profile.values()
    others = sum(row.choices != best.choices for row in tops)
    ties = f"{counted(len(rivals), 'combination')} {'ties' if len(rivals) == 1 else 'tie'} with it, as 90 % intervals overlap"
    if others:
        choose = f"{others} of {len(by_profile)} profiles choose" if others > 1 else f"1 of {len(by_profile)} profiles chooses"
        where = f", all on {best.cluster}" if {row.cluster for row in tops} == {best.cluster} else ""
        return f"It depends on the software: {choose} another{where} (listed below). {_overlap(rivals, best)}".strip()
    if rivals:
        return f"{ties}: the next is {rivals[0].name} at {rivals[0].cost:.2f}{_elsewhere(rivals, best)}."
    if alone:
        return "No other combination fits."
    return f"No other interval overlaps with its own, under {counted(len(by_profile), 'profile')} ({', '.join(by_profile)})."


def _overlap(rivals: Sequence[Row], best: Row) -> str:
    return f"{counted(len(rivals), 'interval')} overlap with the best{_elsewhere(rivals, best)}." if rivals else ""


def _elsewhere(rivals: Sequence[Row], best: Row) -> str:
    """Other clusters among the rivals: which to rent is then open."""
    clusters = dict.fromkeys(row.cluster for row in rivals if row.cluster != best.cluster)
    return f", some on {', '.join(clusters)}" if clusters else ""
