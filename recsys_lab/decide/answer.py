"""What the rows allow to say: which are Pareto-optimal, whether one is best under every software, and within the intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from recsys_lab.decide.rows import Row
from recsys_lab.decide.verdict import verdict

#: The software that trains here.
OWN_PACKAGE, OWN_PROFILE = "recsys_lab", "torchrec"
WINNER, NOT_APART, OF_SOFTWARE, NONE_FITS = "winner", "not distinguishable", "depends on the software", "nothing fits"


@dataclass(frozen=True)
class Winner:
    """`row`: the cheapest under the first profile; None where nothing fits. `status`: one of those above.

    `by_profile`: the cheapest under each. `rivals`: names of combinations whose interval reaches below the upper end of its own, under any
    profile. `verdict`: two lines for people; `details`: what each profile chooses, and what is not compared.
    `without_price`: clusters whose rows fit and are not compared, as others have a price.
    """

    status: str
    row: Row | None
    by_profile: dict[str, Row]
    rivals: tuple[str, ...]
    verdict: str
    details: str = ""
    without_price: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """Verdict and details."""
        return "\n".join(text for text in (self.verdict, self.details) if text)


def marked(rows: Sequence[Row]) -> list[Row]:
    """`rows` with `pareto` and `robust`. A row is faster by its ms and cheaper by its cost. A cluster's profiles are compared apart."""
    able = compared(rows)
    pareto = dict.fromkeys(map(id, rows), False) | {id(row): _is_pareto(row, _alike(row, able)) for row in able}
    always: dict[tuple[str, ...], bool] = {}
    for row in rows:
        always[row.choices] = always.get(row.choices, True) and pareto[id(row)]
    return [replace(row, pareto=pareto[id(row)], robust=always[row.choices]) for row in rows]


def compared(rows: Sequence[Row]) -> list[Row]:
    """Of `rows` that fit those with a price, by their dollars. Where none has one all of them, by device-hours."""
    able = [row for row in rows if row.ms is not None and row.fits]
    return [row for row in able if row.usd_per_1e9 is not None] or able


def winner_of(rows: Sequence[Row]) -> Winner:
    """Of `rows` that fit: the cheapest a sample, if it is that under every profile and beyond every interval."""
    priced = compared(rows)
    if not priced:
        return Winner(NONE_FITS, None, {}, (), "Nothing fits.")
    profiles = list(dict.fromkeys(row.profile for row in priced))
    by_profile = {profile: min((row for row in priced if row.profile == profile), key=cheapest_first) for profile in profiles}
    best = by_profile[profiles[0]]
    rivals = _rivals(by_profile, priced)
    depends = len({row.choices for row in by_profile.values()}) > 1
    known = {id(row) for row in priced}
    free = tuple(dict.fromkeys(row.cluster for row in rows if row.ms is not None and row.fits and id(row) not in known))
    details = []
    if depends:
        details = ["The cheapest under each software profile:", *(f"  {profile}: {row.name}" for profile, row in by_profile.items())]
    if free:
        details.append(f"{', '.join(free)} {'have no price and are' if len(free) > 1 else 'has no price and is'} not compared.")
    if depends:
        own = f", with which {OWN_PACKAGE} trains" if profiles[0] == OWN_PROFILE else ""
        details.append(f"The advice is for {profiles[0]}{own}. For your framework: profiles=NAME.")
    return Winner(
        OF_SOFTWARE if depends else NOT_APART if rivals else WINNER,
        best,
        by_profile,
        tuple(row.name for row in rivals),
        verdict(by_profile, rivals, alone=len({row.choices for row in priced}) == 1),
        "\n".join(details),
        free,
    )


def _rivals(by_profile: Mapping[str, Row], rows: Sequence[Row]) -> list[Row]:
    """A row for each combination that reaches the best under any profile: those of the first profile first, the cheapest before others."""
    reaching: dict[tuple[str, ...], Row] = {}
    for profile, top in by_profile.items():
        for row in sorted((row for row in rows if row.profile == profile), key=cheapest_first):
            if row.choices != top.choices and _reaches(row, top):
                reaching.setdefault(row.choices, row)
    return list(reaching.values())


def _alike(row: Row, rows: Sequence[Row]) -> list[Row]:
    return [other for other in rows if other.profile == row.profile]


def _is_pareto(row: Row, others: Sequence[Row]) -> bool:
    ms, cost = figures_of(row)
    return not any(other != (ms, cost) and other[0] <= ms and other[1] <= cost for other in map(figures_of, others))


def figures_of(row: Row) -> tuple[float, float]:
    """ms and cost to nine digits: rows that wait for the same host differ beyond them by rounding alone."""
    assert row.ms is not None
    return float(f"{row.ms:.9g}"), float(f"{row.cost:.9g}")


def cheapest_first(row: Row) -> tuple[bool, float, float, float]:
    """A key to sort by: cost, those without a price last, then time, then memory."""
    ms, cost = figures_of(row)
    return row.usd_per_1e9 is None, cost, ms, row.memory_gb or 0.0


def _reaches(row: Row, top: Row) -> bool:
    """Whether the interval of `row` reaches below the upper end of that of `top`. An interval that is not known reaches everywhere."""
    own, best = row.cost_interval, top.cost_interval
    return own is None or best is None or own[0] <= best[1]
