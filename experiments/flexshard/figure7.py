"""Figure 7: how much shorter embedding communication gets; and what "nearly 6x" counts."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from experiments.flexshard.models import MODELS, mean_length
from experiments.flexshard.table6 import planned
from experiments.flexshard.times import SHARDINGS, Times, by_line, by_links, published_times, volumes
from recsys_lab.report.sections import Table
from recsys_lab.studies.pictures import BLUE, INK, ORANGE, picture, written
from recsys_lab.studies.study import Line, Study

QUESTION = "how much shorter embedding communication gets"
READINGS = {"hidden_ms": "overlappable hidden", "serial_ms": "one after the other"}
#: The figure has eight bars. Each is judged once: in the reading in which the abstract's claim holds, by the links of every simulation.
JUDGED = ("hidden_ms", "links")


def speedup(times: dict[str, Times], sharding: str, reading: str) -> float:
    return getattr(times["RW"], reading) / getattr(times[sharding], reading)


def all_times() -> dict[str, dict[str, dict[str, Times]]]:
    """Model -> source -> times of each sharding. Ours: our plan's volumes on the links of a100x32, or on the line of times.py."""
    found = {}
    for model in MODELS:
        ours = {s: volumes(*planned(model, s), mean_length(model), model) for s in SHARDINGS}
        found[model] = {
            "published": {s: published_times(model, s) for s in SHARDINGS},
            "links": {s: by_links(given) for s, given in ours.items()},
            "line": {s: by_line(given) for s, given in ours.items()},
        }
    return found


def run(name: str) -> Study:
    lines, shown = [], []
    times = all_times()
    for model, sources in times.items():
        for sharding in SHARDINGS[1:]:
            cells = [f"{model} {sharding}"]
            for reading, words in READINGS.items():
                given = speedup(sources["published"], sharding, reading)
                cells.append(f"{given:.2f}")
                for source in ("links", "line"):
                    ours = speedup(sources[source], sharding, reading)
                    again = (reading, source) != JUDGED
                    lines.append(Line(f"{model} {sharding}, {words}, by the {source}", ours, given, "times", "simulated", repeated=again))
                    cells.append(f"{ours:.2f}")
            shown.append(tuple(cells))
    best = {reading: speedup(times["RM-2"]["published"], "3-tier", reading) for reading in READINGS}
    statements = (
        ("'nearly 6x' (abstract) for RM-2, 3-tier, with what can overlap hidden: 308 / (49 + 3)", 5.5 < best["hidden_ms"] < 6),
        ("'nearly 6x' for RM-2, 3-tier, one after the other: 308 / (49 + 3 + 21 + 27)", 5.5 < best["serial_ms"] < 6),
    )
    notes = (
        "The figure prints no numbers: 'published' is calculated from table 6. RM-2, 3-tier, is "
        f"{best['hidden_ms']:.1f} times faster if the overlappable collectives cost nothing, {best['serial_ms']:.1f} times if nothing "
        "overlaps: the claim holds in the first reading only.",
        "Links: the volumes of our plans on the links of a100x32, which start at once; the paper's all-to-alls have about 8 ms that do not "
        "shrink, so its speed-ups are lower. Line: that start counted. Both use table 6's all-to-all times, so neither predicts them.",
    )
    columns = ("", "hidden: published", "links", "line", "serial: published", "links ", "line ")
    table = Table(f"figure7: {QUESTION} (times faster than row-wise)", columns, tuple(shown), right=columns[1:])
    return Study(name, QUESTION, tuple(lines), statements, notes, {}, draw, table)


def draw(folder: Path) -> list[Path]:
    times, places = all_times(), np.arange(len(MODELS))
    with picture(folder / "figure7.svg", 2) as (figure, axes):
        for axis, (reading, words) in zip(axes, READINGS.items()):
            for i, (sharding, color) in enumerate((("2-tier", ORANGE), ("3-tier", BLUE))):
                paper = [speedup(times[m]["published"], sharding, reading) for m in MODELS]
                ours = [speedup(times[m]["line"], sharding, reading) for m in MODELS]
                bars = axis.bar(places + 0.4 * i - 0.2, paper, 0.36, color=color, label=f"{sharding}, from table 6")
                axis.bar_label(bars, fmt="%.1f", fontsize=9, label_type="center")
                axis.plot(places + 0.4 * i - 0.2, ours, "D", color=INK, markersize=5, label="ours, simulated" if i else None)
            axis.set(title=words, xticks=places, xticklabels=MODELS, ylim=(0, 6.6))
            axis.grid(visible=False, axis="x")
        axes[0].set_ylabel("row-wise communication time over this")
        axes[0].legend(loc="upper right")
        figure.suptitle("Embedding communication of an iteration, times faster than row-wise", fontsize=11)
    return written(folder, "figure7")
