"""Fits one law a model to table 5 of FlexShard, whose data sets are not public. Writes laws.yaml.

    python experiments/flexshard/fit.py [--check]

The law is a power law in four pieces (recsys_lab.tables.law) with knees at the three row counts of table 5. It is determined, not
searched for: as many conditions as unknowns.

    share of the replicated rows, 2-tier                 table 5
    share of the replicated rows, 3-tier                 table 5
    share of the replicated and Flex rows, 3-tier        table 5
    L: the 2-tier rows are memory-neutral                table 5, "additional memory ~ 0"; table 4 says "~ 1000" and "~ 500"
    p at the last replicated row, 3-tier                 section 4.5: rows are replicated up to the memory-neutral break-point
    p of the first row is 1                              assumed: the paper says nothing of it, and it hardly matters

So 2-tier rows and 3-tier replicated rows come back by construction. What no condition knows is that the Flex rows spend just the memory
that the replicated ones save, and all of tables 4 and 6.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from omegaconf import DictConfig, OmegaConf
from scipy.optimize import brentq, minimize_scalar

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parents[1]))

from recsys_lab.tables import RankLaw  # noqa: E402

HEAD = """# Written by fit.py, which says what was fitted to what: laws of table 5's shares. Fitted, not published.
# rows and mean_length of each model's one sequence table; law: recsys_lab.tables.law.RankLaw, shift and knees in rows.
"""
DIGITS = 10


def fit(published: DictConfig, coverage_only: bool = False) -> dict[str, dict]:
    """Rows, mean length and law of each model. `coverage_only`: p at the last replicated row is not that of the break-point, but the one
    that makes the law smoothest (the least sum of squared differences of neighbouring exponents)."""
    setting = published.setting
    neutral = (setting.replica_multiplier - 1 / (setting.hosts * setting.ranks_per_host)) / setting.batch_size
    found = {}
    for model, tiers in published.table5.items():
        two, three = tiers["2-tier"], tiers["3-tier"]
        rows = published.table4[model].rows
        mean_length = two.rows.replicated * neutral / (two.share.replicated / 100)
        knees = [three.rows.replicated, two.rows.replicated, three.rows.replicated + three.rows.host_sharded]
        shares = [s / 100 for s in (three.share.replicated, two.share.replicated, three.share.replicated + three.share.host_sharded)]

        def law_with(p: float, given=(rows, knees, shares, mean_length)) -> RankLaw:
            """The law whose last replicated row has this p."""
            *curve, length = given
            return law_through(*curve, first=1 / length, at_first_knee=p / length)

        def roughness(p: float, law_with=law_with) -> float:
            return float(np.sum(np.diff(law_with(p).exponents) ** 2))

        p = minimize_scalar(roughness, bounds=(0.6 * neutral, 1.2 * neutral), method="bounded").x if coverage_only else neutral
        found[model] = {"rows": rows, "mean_length": round(mean_length, DIGITS), "law": law_with(float(p)).to_config()}
    return found


def law_through(rows: int, knees: list[int], shares: list[float], first: float, at_first_knee: float) -> RankLaw:
    """The law with these shares at the knees, whose density is `first` at row 0 and `at_first_knee` at the first knee."""

    def head(shift: float) -> float:
        """The exponent that leads from one density to the other."""
        return np.log(first / at_first_knee) / np.log1p(knees[0] / shift)

    shift = brentq(lambda q: _mass(first, q, knees[0] + q, head(q)) - shares[0], 1e-3, 10.0 * knees[0], xtol=1e-9, rtol=1e-14)
    exponents, density = [head(shift)], at_first_knee
    for start, stop, share in zip(knees, [*knees[1:], rows], np.diff([*shares, 1.0])):
        a, b = start + shift, stop + shift
        exponents.append(brentq(lambda s, a=a, b=b, d=density, m=share: _mass(d, a, b, s) - m, 0.0, 50.0, xtol=1e-13))
        density *= (b / a) ** -exponents[-1]
    return RankLaw(rows, tuple(round(float(s), DIGITS) for s in exponents), round(float(shift), DIGITS), tuple(map(float, knees)))


def _mass(density: float, a: float, b: float, exponent: float) -> float:
    """The integral from a to b of a power law with this density at a."""
    power, grown = 1 - exponent, np.log(b / a)
    return density * a * (grown if abs(power) < 1e-12 else np.expm1(power * grown) / power)


def main() -> int:
    text = HEAD + OmegaConf.to_yaml(OmegaConf.create(fit(OmegaConf.load(FOLDER / "published.yaml"))))
    path = FOLDER / "laws.yaml"
    if "--check" in sys.argv:
        return 0 if path.read_text(encoding="utf-8") == text else 1
    path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
