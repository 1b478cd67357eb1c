"""Which of two sharders trains faster on the emulated network: how likely the simulator finds it, held against trainings in turns.

A probability is a share of draws of what nobody knows (`recsys_lab.simulate.posterior`). What a system has of its own slows both alike.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from experiments.emulated.calibration import calibrate
from experiments.emulated.comparisons import BATCH, HOSTS, LINK_GB_S, MODELS, RANKS_PER_HOST
from experiments.emulated.runs import SHORT
from experiments.validation.local import SHARDERS
from recsys_lab.base.ranges import Rounds, Share
from recsys_lab.calibrate.runs import Run, brief, runs
from recsys_lab.decide.standing import Standings
from recsys_lab.planning import price, responses_of
from recsys_lab.report.sections import Table
from recsys_lab.simulate import Profile
from recsys_lab.simulate.posterior import sharding_part, simulated_part
from recsys_lab.studies.study import Line, Study

COLUMNS = ("model", "more probable", "than", "how", "sim.", "meas.", "rounds")
#: Of probabilities, in a table that says how often they are right.
BINS = (0.5, 0.7, 0.9, 1.0)


@dataclass(frozen=True)
class Pair:
    """`p`: how probably `faster` is faster than `slower`, at least 0.5. `simulated`, `measured`: times of `slower` over those of `faster`.

    `rounds`: the share of them in which `faster` was faster.
    """

    model: str
    faster: str
    slower: str
    p: float
    simulated: float
    measured: float
    rounds: float

    @property
    def is_right(self) -> bool:
        return self.measured > 1


def run(name: str, *, rounds: Rounds, least: Share) -> Study:
    """`least`: the share of pairs whose more probable sharder is to be measured faster. UserError where this machine has no namespaces."""
    tell = partial(print, file=sys.stderr, flush=True)
    network = calibrate(HOSTS, RANKS_PER_HOST, LINK_GB_S)
    pairs: list[Pair] = []
    for model, words in MODELS.items():
        tell(model)
        overrides = (*SHORT, *network.words(), *words)
        trained = runs([(sharder, BATCH) for sharder in SHARDERS], overrides, rounds, tell)
        pairs += pairs_of(model, trained, brief(overrides).profile)
    return compared(name, pairs, rounds, least, {"network": network.to_json()})


def pairs_of(model: str, trained: Sequence[Run], profile: Profile) -> list[Pair]:
    """Every two of `trained`."""
    names = tuple(one.sharder for one in trained)
    simulated = {one.sharder: price(one.planned, profile)[0].iteration_ms for one in trained}
    draws = [simulated[one.sharder] * np.exp(_log_changes(one, model, profile)) for one in trained]
    standings, pairs = Standings(names, names, np.array(draws)), []
    for one, other in combinations(trained, 2):
        p = standings.p_cheaper(one.sharder, other.sharder)
        first, second = (one, other) if p >= 0.5 else (other, one)
        times = [(a["iteration_ms"]["median"], b["iteration_ms"]["median"]) for a, b in zip(first.measured, second.measured)]
        ratio = simulated[second.sharder] / simulated[first.sharder]
        won = sum(mine < theirs for mine, theirs in times) / len(times)
        pairs.append(Pair(model, first.sharder, second.sharder, max(p, 1 - p), ratio, second.iteration_ms / first.iteration_ms, won))
    return pairs


def _log_changes(one: Run, model: str, profile: Profile) -> np.ndarray:
    """[DRAWS] of the logarithm of its time."""
    return simulated_part(responses_of(one.planned, profile)) + sharding_part(one.sharder, f"{model} {one.sharder}")


def brier(pairs: Sequence[Pair]) -> float:
    """The mean square of how far probabilities are off what happened: 0 is best, 0.25 is a coin's."""
    return sum((pair.p - pair.is_right) ** 2 for pair in pairs) / len(pairs)


def compared(name: str, pairs: Sequence[Pair], rounds: int, least: float, data: dict[str, Any]) -> Study:
    """The study of pairs that were measured and simulated."""
    right, score = sum(pair.is_right for pair in pairs) / len(pairs), brier(pairs)
    by_model = {model: [pair for pair in pairs if pair.model == model] for model in dict.fromkeys(pair.model for pair in pairs)}
    lines = [Line("the more probable of two is faster", 100 * right, None, "%", "measured")]
    lines += [
        Line(f"the same with {model}", 100 * sum(pair.is_right for pair in own) / len(own), None, "%", "measured")
        for model, own in by_model.items()
    ]
    reliability = []
    for low, high in zip(BINS, BINS[1:]):
        own = [pair for pair in pairs if low <= pair.p < high or pair.p == high == 1]
        if own:
            mean, often = (100 * sum(figures) / len(own) for figures in ([pair.p for pair in own], [pair.is_right for pair in own]))
            reliability.append({"pairs": len(own), "said": mean, "happened": often})
            lines.append(Line(f"the same of {len(own)} pairs that say {mean:.0f} %", often, None, "%", "measured"))
    statements = (
        (f"of {len(pairs)} pairs the more probable sharder is measured faster in at least {least:.0%}", right >= least),
        ("the Brier score of the probabilities is below a coin's 0.25", score < 0.25),
    )
    notes = (
        f"{sum(pair.is_right for pair in pairs)} of {len(pairs)} pairs, Brier score {score:.3f} (0 is best, a coin has 0.25).",
        f"Ratios of iterations' times, above 1 where the more probable sharder is faster. Medians of {rounds} rounds in turns; rounds: in "
        "how many it was. The simulator has links and ranks as they were measured before. It uses none of the trainings.",
    )
    rows = tuple(
        (
            pair.model,
            pair.faster,
            pair.slower,
            f"{pair.p:.0%}",
            f"{pair.simulated:.2f}",
            f"{pair.measured:.2f}",
            f"{pair.rounds * rounds:.0f}/{rounds}" + ("" if pair.is_right else " wrong"),
        )
        for pair in sorted(pairs, key=lambda pair: (pair.model, -pair.p))
    )
    question = f"Six sharders of {' and '.join(by_model)}, two by two"
    table = Table(question, COLUMNS, rows, right=COLUMNS[3:6])
    more = data | {"brier": score, "right": right, "reliability": reliability, "pairs": [asdict(pair) for pair in pairs]}
    return Study(name, question, tuple(lines), statements, notes, more, None, table)
