"""`python -m recsys_lab studies`: every table and figure of the papers: its state, and how to regenerate it."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from recsys_lab.base.arguments import parser
from recsys_lab.errors import as_called
from recsys_lab.report.sections import Table
from recsys_lab.report.terminal import console, print_table
from recsys_lab.studies.batch import run_all
from recsys_lab.studies.catalogue import LONG, QUICK, Item, item_of, items, papers
from recsys_lab.studies.results import FAILED, Known, known, record_verdicts

INTERRUPTED = 130  # as a shell says it


def main(argv: list[str]) -> int:
    """Lists the studies, or first runs those that --run names.

    Returns 1 where a study failed and 130 where it was interrupted. What had ended is shown and recorded.
    """
    line = parser("studies", "Every table and figure of the papers: reproduced within what, deviates and why, or what it would need.")
    line.add_argument("--json", action="store_true", help="print one JSON object")
    line.add_argument("--run", nargs="+", metavar="WHAT", help="quick, long, all, or studies such as flexshard/table6; then their states")
    line.add_argument("--again", action="store_true", help="also those that have a result by this very code")
    line.add_argument("--runs", type=Path, default=Path("runs"), metavar="DIR", help="where results are kept and found (default runs)")
    line.add_argument("--record", action="store_true", help="write the verdicts of what was run here into experiments/*/verdicts.json")
    options = line.parse_args(argv)
    asked, code = chosen(options.run) if options.run else [], 0
    results: list[Known] = []
    try:
        run_all(asked, options.runs, options.again, partial(_ended, results, not options.json))
    except KeyboardInterrupt:
        print(f"interrupted: {len(results)} of {len(asked)} studies have ended; the same command goes on from there", file=sys.stderr)
        code = INTERRUPTED
    if not options.run:
        results = [known(item, options.runs) for item in items()]
    written = record_verdicts(options.runs) if options.record else []
    if options.json:
        report = {"states": Counter(one.state for one in results), "studies": [one.to_json() for one in results]}
        print(json.dumps(report, indent=2, allow_nan=False))
    else:
        if not options.run:
            show(results)
        print(counted(results), *map(str, written), sep="\n")
    return code or int(any(one.state == FAILED for one in results))


def chosen(words: Sequence[str]) -> list[Item]:
    """UserError for a word that names none."""
    every = [item for item in items() if item.target]
    groups = {QUICK: (QUICK,), LONG: (LONG,), "all": (QUICK, LONG)}
    named = [item for word in words for item in ([i for i in every if i.budget in groups[word]] if word in groups else [item_of(word)])]
    return list({item.id: item for item in named}.values())


def show(results: Sequence[Known]) -> None:
    """A table a paper."""
    out = console()
    for paper in papers():
        rows = tuple((one.item.name, words(one), _says(one)) for one in results if one.item.paper == paper.name)
        title = as_called(f"{paper.title}: python run.py experiment={paper.name}/...")
        print_table(out, Table(title, ("", "state", "what came out, or why not"), rows))


def words(one: Known) -> str:
    """The state, and what kind of figures it rests on."""
    origins = f"\n({', '.join(one.origins)})" if one.origins else ""
    return one.state.replace("_", " ") + origins


def _says(one: Known) -> str:
    """What it asks, what came out, and of a long one the command."""
    if one.item.target is None:
        return one.sentence
    parts = [f"{one.item.about}."]
    if one.options:
        parts.append(f"With {', '.join(f'{key}={value}' for key, value in one.options.items())}:")
    parts.append(one.sentence)
    if one.folder and not one.current:
        parts.append("(By an earlier version of the code.)")
    if one.item.budget == LONG:
        parts.append(f"Long: {one.item.command}")
    return "\n".join(filter(None, parts))


def counted(results: Sequence[Known]) -> str:
    states = Counter(one.state.replace("_", " ") for one in results)
    return f"{len(results)} in all: " + (", ".join(f"{number} {state}" for state, number in states.most_common()) or "none has ended")


def _ended(results: list[Known], says: bool, one: Known, seconds: float | None) -> None:
    results.append(one)
    if says:
        took = "there already" if seconds is None else f"{seconds:.0f} s"
        console().print(f"{one.item.id:<20} {took:>13}  {one.sentence}")
