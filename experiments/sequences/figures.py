"""Runs of experiments/sequences: medians over seeds beside what is published, HSTU against SASRec by paired seeds, and the curves.

    python -m experiments.sequences.figures RUN [RUN ...] --curves experiments/sequences/beauty.svg

Runs are told apart by model, loss, time bias and side columns; runs that differ in the seed alone are one row.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from recsys_lab.report.charts import COLOURS
from recsys_lab.studies.pictures import picture
from recsys_lab.sweeps.statistics import paired_difference

FIGURES = {"": ("HR@10", "NDCG@10"), "_of_100": ("HR@10 of 100", "NDCG@10 of 100")}
LEVEL = 0.05


@dataclass(frozen=True)
class Run:
    """One run's folder, as it was read."""

    name: str
    seed: int
    quality: Mapping[str, Mapping[str, float]]
    baselines: Mapping[str, Mapping[str, Mapping[str, float]]]
    curve: Sequence[float]  # validation NDCG@10 by epoch

    @staticmethod
    def of(folder: Path) -> Run:
        """Raises FileNotFoundError where the run has no result."""
        config = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
        result: dict[str, Any] = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        with (folder / "metrics.csv").open(encoding="utf-8") as lines:
            curve = [float(row["validation_ndcg_10"]) for row in csv.DictReader(lines) if row["validation_ndcg_10"]]
        return Run(_name(result["choices"]["model"], config), result["seed"], result["quality"], result["item_baselines"], curve)


def _name(model: str, config: Mapping[str, Any]) -> str:
    own = config["model"]
    side = f", with {', '.join(config['data']['side'])}" if config["data"].get("side") else ""
    return f"{model}, {own['loss']}" + (", time bias" if own.get("time_bias") else "") + side


def table(runs: Sequence[Run]) -> list[str]:
    """Markdown: a row for each name with the medians over its seeds, and the baselines."""
    lines = ["| model | seeds | " + " | ".join(f"{split} {name}" for split, name in _columns()) + " |"]
    lines.append("|---" * (2 + len(_columns())) + "|")
    for name, of_name in _by_name(runs).items():
        lines.append(_row(f"**{name}**", str(len(of_name)), [run.quality for run in of_name]))
    return lines + [_row(name.replace("_", "-"), "", [values]) for name, values in runs[0].baselines.items() if isinstance(values, dict)]


def _columns() -> list[tuple[str, str]]:
    return [(split, name) for split in ("test", "validation") for names in FIGURES.values() for name in names]


def _row(name: str, seeds: str, qualities: Sequence[Mapping[str, Mapping[str, float]]]) -> str:
    keys = [f"{metric}{suffix}" for suffix in FIGURES for metric in ("hit_rate_10", "ndcg_10")]
    values = [median(quality[split][key] for quality in qualities) for split in ("test", "validation") for key in keys]
    return f"| {name} | {seeds} | " + " | ".join(f"{value:.4f}" for value in values) + " |"


def _by_name(runs: Sequence[Run]) -> dict[str, list[Run]]:
    return {name: [run for run in runs if run.name == name] for name in dict.fromkeys(run.name for run in runs)}


def pairs(runs: Sequence[Run]) -> list[str]:
    """Each name against the first by the seeds that both have: Hodges and Lehmann's estimate of the difference and its interval."""
    (first, base), *others = _by_name(runs).items()
    lines = []
    for name, own in others:
        values = {run.seed: run.quality["test"]["ndcg_10"] for run in own}
        both = [values[run.seed] - run.quality["test"]["ndcg_10"] for run in base if run.seed in values]
        if len(both) > 1:
            found = paired_difference(both, LEVEL)
            interval = f"{found.low:+.4f} to {found.high:+.4f} ({found.confidence:.0%})"
            lines.append(f"{name} against {first}, {len(both)} seeds: test NDCG@10 {found.value:+.4f}, {interval}")
    return lines


def draw(runs: Sequence[Run], path: Path) -> None:
    """Validation NDCG@10 by epoch, a line for each run, a colour for each name."""
    with picture(path) as (_, (axis,)):
        for colour, (name, of_name) in zip(COLOURS, _by_name(runs).items()):
            for run in of_name:
                label = name if run is of_name[0] else None
                axis.plot(range(1, len(run.curve) + 1), run.curve, color=colour, label=label)
        axis.set(xlabel="epoch", ylabel="NDCG@10 among all items", title="Validation after each epoch, a line for each seed (measured)")
        axis.set_ylim(bottom=0)
        axis.legend()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--curves", type=Path, help="the picture: an SVG, and a PNG beside it")
    options = parser.parse_args()
    runs = [Run.of(folder) for folder in options.runs]
    print("\n".join([*table(runs), "", *pairs(runs)]))
    if options.curves:
        draw(runs, options.curves)


if __name__ == "__main__":
    main()
