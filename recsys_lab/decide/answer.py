"""What the rows allow to say: which are Pareto-optimal, which to choose, how sure that is, and what other software would choose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from recsys_lab.decide.rows import Row
from recsys_lab.decide.standing import Pair, Standings
from recsys_lab.decide.verdict import verdict

#: The software that trains here.
OWN_PACKAGE, OWN_PROFILE = "recsys_lab", "torchrec"
WINNER, NOT_APART, OF_SOFTWARE, NONE_FITS = "winner", "not distinguishable", "depends on the software", "nothing fits"
#: Two are told apart where one is cheaper in so many of the draws.
TOLD_APART = 0.9


@dataclass(frozen=True)
class Winner:
    """`row`: what to choose, under the first profile; None where nothing fits. `status`: one of those above.

    `by_profile`: the cheapest under each. `pairs`: how often `row` is cheaper than the next ones. `rivals`: names of combinations that are
    not told apart from it. `clusters`: how often each has the cheapest combination. `verdict`: lines for people; `details`: what each
    profile chooses, and what is not compared. `without_price`: clusters whose rows fit and are not compared, as others have a price.
    """

    status: str
    row: Row | None
    by_profile: dict[str, Row]
    rivals: tuple[str, ...]
    verdict: str
    details: str = ""
    without_price: tuple[str, ...] = ()
    pairs: tuple[Pair, ...] = ()
    clusters: Mapping[str, float] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """Verdict and details."""
        return "\n".join(text for text in (self.verdict, self.details) if text)


def marked(rows: Sequence[Row], trainable: bool = True) -> list[Row]:
    """`rows` with `pareto` and `robust`. A row is faster by its ms and cheaper by its cost. A cluster's profiles are compared apart."""
    able = compared(rows, trainable)
    pareto = dict.fromkeys(map(id, rows), False) | {id(row): _is_pareto(row, _alike(row, able)) for row in able}
    always: dict[tuple[str, ...], bool] = {}
    for row in rows:
        always[row.choices] = always.get(row.choices, True) and pareto[id(row)]
    return [replace(row, pareto=pareto[id(row)], robust=always[row.choices]) for row in rows]


def choosable(rows: Sequence[Row], trainable: bool = True) -> list[Row]:
    """Of `rows` that fit, those that train here; all with `trainable` False, or where none does."""
    able = [row for row in rows if row.ms is not None and row.fits]
    return [row for row in able if row.trainable or not trainable] or able


def compared(rows: Sequence[Row], trainable: bool = True) -> list[Row]:
    """Of those that are `choosable` those with a price, by their dollars. Where none has one all of them, by device-hours."""
    able = choosable(rows, trainable)
    return [row for row in able if row.usd_per_1e9 is not None] or able


def winner_of(rows: Sequence[Row], standings: Standings | None = None, trainable: bool = True) -> Winner:
    """Of `rows` that fit the one with the least regret; without `standings` the cheapest."""
    priced = compared(rows, trainable)
    if not priced:
        return Winner(NONE_FITS, None, {}, (), "Nothing fits.")
    profiles = list(dict.fromkeys(row.profile for row in priced))
    by_profile = {profile: min((row for row in priced if row.profile == profile), key=cheapest_first) for profile in profiles}
    first = [row for row in priced if row.profile == profiles[0]]
    best = min(first, key=lambda row: (row.regret or 0.0, *cheapest_first(row)))
    pairs = tuple(standings.pairs(best.name)) if standings else ()
    rivals = tuple(pair.than for pair in pairs if pair.p < TOLD_APART)
    depends = len({row.choices for row in by_profile.values()}) > 1
    known = {row.cluster for row in priced}
    others = [row for row in rows if row.ms is not None and row.fits and row.cluster not in known]
    free = tuple(dict.fromkeys(row.cluster for row in others if row.usd_per_1e9 is None))
    return Winner(
        OF_SOFTWARE if depends else NOT_APART if rivals else WINNER,
        best,
        by_profile,
        rivals,
        verdict(best, first, standings),
        "\n".join(_details(by_profile, free, depends)),
        free,
        pairs,
        standings.of_clusters if standings else {},
    )


def _details(by_profile: dict[str, Row], free: Sequence[str], depends: bool) -> list[str]:
    """What each profile alone would choose, and what is not compared."""
    lines = []
    if depends:
        lines = ["The cheapest under each software profile alone:"]
        lines += [f"  {profile}: {row.name}, {row.ms:.2f} ms" for profile, row in by_profile.items()]
    if free:
        lines.append(f"{', '.join(free)} {'have no price and are' if len(free) > 1 else 'has no price and is'} not compared.")
    if depends:
        profile = next(iter(by_profile))
        own = f", with which {OWN_PACKAGE} trains" if profile == OWN_PROFILE else ""
        lines.append(f"The advice is for {profile}{own}. For your framework: profiles=NAME.")
    return lines


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
