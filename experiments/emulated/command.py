"""`python -m recsys_lab emulated COMPARISON`: sharders, formats and exchanges on an emulated network: measured beside simulated."""

from __future__ import annotations

import json
import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.emulated.comparisons import COMPARISONS, HOSTS, LINK_GB_S, RANKS_PER_HOST, THROUGHPUT, Comparison
from experiments.emulated.figures import LineFigures, Ratio, as_json, line_figures, ratios
from recsys_lab.base.arguments import parser
from recsys_lab.report.sections import Table
from recsys_lab.report.terminal import console, print_table

if TYPE_CHECKING:
    from experiments.emulated.runs import Networks

LINKS = "links"
RATIO_COLUMNS = ("line", "measured", "range", "simulated", "off", "in flight", "bytes on links")
LINE_COLUMNS = ("line", "iteration", "simulated", "exchange", " simulated", "link alone", "of link")


def main(argv: list[str]) -> int:
    """Measures, simulates and prints; the exit code."""
    line = parser("emulated", "Trainings on an emulated network in turns: the ratio of each to the first, beside the simulated one.")
    line.add_argument("comparison", choices=[*COMPARISONS, LINKS], help=f"which; {LINKS}: measure the network alone")
    line.add_argument("--rounds", type=int, default=3, help="how often the lines take turns (3)")
    line.add_argument("--under", default="", help="run each training under this command, such as 'chrt -r 20' on a busy machine")
    line.add_argument("--network", type=Path, metavar="FILE", help=f"what `emulated {LINKS}` printed before, in place of measuring it now")
    line.add_argument(
        "--hosts", type=int, nargs="+", default=[HOSTS], metavar="N", help=f"of {LINKS}: measure so many hosts at work, ({HOSTS})"
    )
    line.add_argument("--keep", type=Path, metavar="DIR", help="keep the run folders here")
    line.add_argument("--json", action="store_true", help="print one JSON object")
    given = line.parse_args(argv)
    if given.comparison == LINKS:
        from experiments.emulated.calibration import calibrate  # with torch, which the help does not need

        found = {hosts: calibrate(hosts, RANKS_PER_HOST, LINK_GB_S) for hosts in given.hosts}
        print(json.dumps({hosts: {"words": one.words(), "figures": one.to_json()} for hosts, one in found.items()}))
        return 0
    from experiments.emulated.runs import calibrations

    comparison, under = COMPARISONS[given.comparison], shlex.split(given.under)
    networks = calibrations([comparison], under, given.network)
    made, lines = compare(comparison, given.rounds, given.keep, networks, under)
    figures = {hosts: network["figures"] for hosts, network in networks.items()}
    if given.json:
        head = {"comparison": given.comparison, "figure": comparison.figure, "networks": figures}
        print(json.dumps(head | as_json(made, lines)))
    else:
        _show(comparison, given.rounds, made, lines, figures[max(figures)])
    return 0


def compare(
    comparison: Comparison, rounds: int, keep: Path | None, networks: Networks, under: list[str]
) -> tuple[list[Ratio], dict[str, LineFigures]]:
    """Runs the comparison; the simulator takes the network's figures, as measured with the hosts of a line at work."""
    from experiments.emulated.runs import rounds_of

    lines = {name: (*networks[comparison.hosts_of(name)]["words"], *own) for name, own in comparison.lines.items()}
    with tempfile.TemporaryDirectory() as scratch:
        found = rounds_of(lines, rounds, (keep or Path(scratch)).resolve(), under)
    return ratios(comparison, found), line_figures(found, LINK_GB_S)


def _show(comparison: Comparison, rounds: int, made: list[Ratio], lines: dict[str, LineFigures], network: dict[str, Any]) -> None:
    figure = "examples a second" if comparison.figure == THROUGHPUT else "time of the exchange of embeddings"
    against = tuple(
        (
            one.line,
            f"{one.measured:.2f}",
            f"{one.range[0]:.2f}-{one.range[1]:.2f}",
            f"{one.simulated:.2f}",
            f"{one.simulated_error:+.0%}",
            f"{one.under_way:.2f}",
            f"{one.bytes:.2f}",
        )
        for one in made
    )
    note = f"Ratios to {comparison.baseline}, above 1 a gain, of {figure}; medians of {rounds} rounds in turns. in flight: with late ranks."
    out = console()
    print_table(out, Table(comparison.about, RATIO_COLUMNS, against, note, RATIO_COLUMNS[1:]), keep=["line"])
    rows = tuple(
        (
            name,
            f"{one.iteration_ms:.1f}",
            f"{one.simulated_iteration_ms:.1f}",
            f"{one.transfer_ms:.1f}",
            f"{one.simulated_transfer_ms:.1f}",
            f"{one.wire_ms:.1f}",
            f"{one.of_link:.0%}",
        )
        for name, one in lines.items()
    )
    cross = network["cross_host"]
    note = (
        f"ms of an iteration. link alone: what the bytes counted on a host's link take at {LINK_GB_S * 8000:.0f} Mbit/s. "
        f"Measured before the rounds, and simulated with: {cross['bandwidth_gb_s'] * 1e3:.1f} MB/s a rank across hosts in an all-to-all, "
        f"{cross['latency_us']:.0f} us a step."
    )
    print_table(out, Table("Each line", LINE_COLUMNS, rows, note, LINE_COLUMNS[1:]), keep=["line"])
