"""Pairs of sharders on the emulated network, as `experiment=emulated/pairs` measured and simulated them on one machine in November 2026.

They cannot be simulated again elsewhere: the simulator had the figures of that machine's ranks and links (AMD EPYC, family 25 model 1).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import polars as pl

from experiments.validation.ratios import Choice, Pair

PAIRS = Path(__file__).resolve().parents[1] / "emulated" / "pairs.csv"
WHAT = "emulated network,"


@cache
def _rows() -> pl.DataFrame:
    return pl.read_csv(PAIRS)


def pairs() -> list[Pair]:
    """The time of the more probable sharder over the other's."""
    return [
        Pair(f"{WHAT} {one['model']}: {one['faster']} / {one['slower']}", "sharding", 1 / one["measured"], ratio, ratio, one["p"])
        for one in _rows().iter_rows(named=True)
        for ratio in [1 / one["simulated"]]
    ]


def choices() -> list[Choice]:
    """Of each model, whether the sharder that is simulated fastest was the fastest."""
    made = []
    for (model,), rows in _rows().group_by("model", maintain_order=True):
        names = dict.fromkeys([*rows["faster"], *rows["slower"]])
        best = next(name for name in names if name not in set(rows["slower"]))
        right = bool((rows.filter(pl.col("faster") == best)["measured"] > 1).all())
        made.append(Choice(f"{WHAT} {model}: {', '.join(names)}", "sharding", len(names), right))
    return made
