"""The verdict of a decision in sentences that can be signed: what to rent, what it costs, how sure that is, what to measure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from recsys_lab.decide.rows import Row
from recsys_lab.decide.standing import Standings

#: A choice that is at most so much dearer than the best, in 95 % of draws, needs no measurement.
LITTLE = 0.05
#: A cluster that has the cheapest combination in so many of the draws is the one to rent.
SURE = 0.9
#: How long each of two is measured.
MINUTES = 10


def verdict(best: Row, rows: Sequence[Row], standings: Standings | None) -> str:
    """Lines on `best` of the compared `rows`, all under one profile."""
    figures = f"{best.cost:.2f} {unit_of(best)} per 1e9 samples{_between(best)}, {best.ms:.2f} ms an iteration."
    if len({row.name for row in rows}) == 1:
        return f"{_rent(best)}: {figures}\nNo other combination fits{'' if best.trainable else '. It is simulated only'}."
    if standings is None:
        return f"{_rent(best)}: {figures}\nHow sure that is, is not known: the profile was not fitted to such systems."
    assert best.p_best is not None and best.regret is not None and best.regret_95 is not None
    sure = f"It is cheapest with probability {best.p_best:.0%}, and at most {best.regret_95:.0%} dearer than the best in 95 % of draws."
    if best.regret_95 <= LITTLE:
        return f"{_rent(best)}: {figures}\n{sure}"
    rival = _rival(best, rows, standings)
    p = standings.p_cheaper(best.name, rival.name)
    if standings.of_clusters[best.cluster] < SURE:
        first = f"{best.cluster} and {rival.cluster} cannot be told apart: the cheapest is on {_shares(standings)}."
        return f"{first}\n{best.name}: {figures}\n{sure} It is cheaper than {rival.name} with {p:.0%}.\n{_measure(best, rival)}"
    where = f" The cheapest is on {best.cluster} with {standings.of_clusters[best.cluster]:.0%}." if len(standings.of_clusters) > 1 else ""
    rest = "" if p >= SURE else f"\nIt is cheaper than {_plan(rival)} with {p:.0%}. {_measure(best, rival)}"
    return f"{_rent(best)}: {figures}\n{sure}{where}{rest}"


def unit_of(row: Row) -> str:
    return "$" if row.usd_per_1e9 is not None else "device-hours"


def _rent(best: Row) -> str:
    return f"Rent {best.cluster} for {_plan(best)}"


def _plan(row: Row) -> str:
    return f"{row.sharder} {row.precision} {row.optimizer}"


def _between(best: Row) -> str:
    span = best.cost_interval
    return f" (90 %: {span[0]:.3g} to {span[1]:.3g})" if span else ""


def _shares(standings: Standings) -> str:
    most = [(cluster, p) for cluster, p in standings.of_clusters.items() if p >= 0.01][:3]
    return ", ".join(f"{cluster} with {p:.0%}" for cluster, p in most)


def _rival(best: Row, rows: Sequence[Row], standings: Standings) -> Row:
    """The next best beside `best`: on another cluster where which one to rent is open, else on its own."""
    open_ = standings.of_clusters[best.cluster] < SURE
    others = [row for row in rows if row.name != best.name]
    near = [row for row in others if (row.cluster != best.cluster) == open_] or others
    return min(near, key=lambda row: (row.regret or 0.0, row.cost))


def _measure(best: Row, rival: Row) -> str:
    lines = "\n".join(f"  {training_command(row)}" for row in (best, rival))
    return f"Measure these two on their hosts (docs/launchers.md) for {MINUTES} minutes each:\n{lines}"


def training_command(row: Row) -> str:
    """The line that trains what `row` simulates, for a short while."""
    trained = re.sub(r"(?<=\s)mode=\S+", "mode=train", row.command)
    batch = "" if " data.batch_size=" in trained else f" data.batch_size={row.batch}"
    return f"{trained}{batch} trainer.max_minutes={MINUTES}"
