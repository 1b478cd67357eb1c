"""The comparisons as studies: every ratio measured here, the simulated one beside it, and whether they agree."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from typing import Any

from experiments.emulated.command import compare
from experiments.emulated.comparisons import COMPARISONS, LINK_GB_S, THROUGHPUT, Comparison
from experiments.emulated.figures import Ratio, as_json
from experiments.emulated.runs import calibrations
from recsys_lab.base.ranges import NotNegative, Rounds
from recsys_lab.errors import UserError
from recsys_lab.report.sections import Table as Shown
from recsys_lab.studies.pictures import BLUE, GREY, INK, ORANGE, picture, written
from recsys_lab.studies.study import Line, Study

COLUMNS = ("line", "measured", "range", "simulated", "off", "bytes on links")


def run(name: str, *, rounds: Rounds, bound: NotNegative, under: str, network: str | None) -> Study:
    """`bound`: how far off the measured ratio a simulated one may be, a share. Raises UserError where this machine has no namespaces."""
    if rounds < 1 or bound <= 0:
        raise UserError("too small", where="rounds, bound", given=f"{rounds}, {bound}", allowed="1 or more, above 0")
    if network is not None and not Path(network).is_file():
        raise UserError(
            "no such file",
            where="network",
            given=network,
            remedy="python -m recsys_lab emulated links > FILE, for scaling with --hosts 1 2 3 4",
        )
    comparison, words = COMPARISONS[name], shlex.split(under)
    networks = calibrations([comparison], words, Path(network) if network else None)
    made, lines = compare(comparison, rounds, None, networks, words)
    figures = {hosts: found["figures"] for hosts, found in networks.items()}
    return compared(name, comparison, rounds, bound, made, as_json(made, lines) | {"networks": figures})


def compared(name: str, comparison: Comparison, rounds: int, bound: float, made: list[Ratio], data: dict[str, Any]) -> Study:
    """The study of ratios that were measured and simulated."""
    figure = "examples a second" if comparison.figure == THROUGHPUT else "time of the exchange of embeddings"
    lines = []
    for one in made:
        lines.append(Line(f"{one.line} over {comparison.baseline}", one.measured, None, "times", "measured"))
        lines.append(Line(f"{one.line} over {comparison.baseline}, simulated", one.simulated, None, "times", "simulated"))
    statements = tuple((f"{one.line}: simulated within {bound:.0%} of measured", abs(one.simulated_error) <= bound) for one in made)
    rows = tuple(
        (
            one.line,
            f"{one.measured:.2f}",
            f"{one.range[0]:.2f} to {one.range[1]:.2f}",
            f"{one.simulated:.2f}",
            f"{one.simulated_error:+.0%}",
            f"{one.bytes:.2f}",
        )
        for one in made
    )
    notes = (
        f"Ratios to {comparison.baseline}, above 1 a gain, of {figure}; medians of {rounds} rounds in turns, and their range.",
        f"Four hosts of two processes on one machine, each host behind a link of {LINK_GB_S * 8000:.0f} Mbit/s. Simulated with the network "
        "and the ranks as they were measured before; none of the trainings that are compared was used.",
    )
    table = Shown(comparison.about, COLUMNS, rows, right=COLUMNS[1:])
    return Study(
        name, comparison.about, tuple(lines), statements, notes, data, partial(_draw, name, comparison.baseline, figure, made), table
    )


def _draw(name: str, baseline: str, figure: str, made: list[Ratio], folder: Path) -> list[Path]:
    """Measured with its range, simulated and the ratio of bytes side by side."""
    with picture(folder / f"{name}.svg", width=3.0 + 1.8 * len(made)) as (_, (axis,)):
        places = range(len(made))
        low, high = ([abs(one.measured - one.range[end]) for one in made] for end in (0, 1))
        measured = [one.measured for one in made]
        axis.bar([at - 0.27 for at in places], measured, 0.27, yerr=(low, high), capsize=4, color=BLUE, label="measured, range over rounds")
        axis.bar(list(places), [one.simulated for one in made], 0.27, color=ORANGE, label="simulated")
        axis.bar([at + 0.27 for at in places], [one.bytes for one in made], 0.27, color=GREY, label="bytes on links, times fewer")
        axis.axhline(1, color=INK, linewidth=0.8)
        axis.set_xticks(list(places), [one.line for one in made])
        axis.set(ylabel=f"times {baseline}'s", title=figure)
        axis.set_ylim(top=1.3 * max(max(one.measured, one.range[1], one.simulated, one.bytes) for one in made))
        axis.legend()
    return written(folder, name)
