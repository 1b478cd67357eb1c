"""`python -m recsys_lab decide model=... clusters=... batch=...`: which sharder, precision, optimizer and cluster to pay for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from recsys_lab.base.arguments import parser
from recsys_lab.base.files import out_file, plain
from recsys_lab.base.progress import Progress
from recsys_lab.decide.against import Earlier, described, tables
from recsys_lab.decide.assumptions import assumption_words
from recsys_lab.decide.bill_words import bill_table
from recsys_lab.decide.question import parse_question
from recsys_lab.decide.tables import changes_table, clusters_table, refused_table, refused_words, rows_table
from recsys_lab.errors import PlanDoesNotFit
from recsys_lab.report.terminal import console, print_table

if TYPE_CHECKING:
    from recsys_lab.decide.decision import Decision

PAGE_FILE = "decide.html"
#: The exit code of an answer that Ctrl-C cut short.
INTERRUPTED = 130
ABOUT = "Plans and simulates every combination of sharder, precision, table optimizer and cluster, and says what the figures allow to say."
WORDS = (
    "clusters=h100x64:2.50,a100x8..128:1.50 (dollars per device-hour; 8..128: sizes that double) batch=65536 (samples over all devices); "
    "to restrict or extend: sharders=A,B precisions=A,B optimizers=A,B profiles=A,B; for the bill of a whole run: "
    "samples=4.2e9 or hours=24, spot=h100x64:1.10@0.05 (interruptions of a host in an hour), target_hours=24, target_samples_per_s=2e6; "
    "and any word of run.py: model=..., data=..., simulate.length_growth=1.2"
)


def main(argv: list[str]) -> int:
    """Prints the verdict, the rows, and what would help most."""
    line = parser("decide", ABOUT)
    line.add_argument("words", nargs="*", metavar="KEY=VALUE", help=WORDS)
    line.add_argument("--all", action="store_true", help="every row in the terminal, not only the cheapest")
    line.add_argument("--page", metavar="FILE", default=PAGE_FILE, help=f"where the page is written; {PAGE_FILE} if not given")
    line.add_argument("--json", action="store_true", help="print rows, winner and sensitivity as one JSON object, and write no page")
    line.add_argument(
        "--against", metavar="OLD.json", help="an earlier answer of --json: says what changed; code 3: its best no longer fits"
    )
    line.add_argument("--max-increase", metavar="PERCENT", help="code 5: time, memory or cost of the best grew by more than that, as 5%%")
    line.add_argument("--markdown", metavar="FILE", help="with --against: the changes also as Markdown, for a pull request")
    options = line.parse_intermixed_args(argv)
    question = parse_question(options.words)
    page = None if options.json else out_file(options.page, "--page", (".html",))
    earlier = Earlier.of(question, options.against, options.max_increase, options.markdown)
    from recsys_lab.decide.decision import decided  # with torch, which neither help nor a mistake needs

    try:
        with Progress(0, "pricing", "combinations") as bar:
            decision = decided(question, progress=bar.advance_to, keep=True)
    except PlanDoesNotFit as error:
        if earlier is not None:
            earlier.end_without_any(error)
        raise
    best = decision.winner.row
    comparison = earlier.compare(decision.rows, best) if earlier is not None and best is not None and not decision.not_priced else None
    if page is None:
        changes = {"against": comparison.to_json()} if comparison is not None else {}
        print(json.dumps(plain(described(question) | decision.to_json() | changes), indent=2, allow_nan=False))
    else:
        _print(decision, options.all, page)
        for table in tables(comparison) if comparison is not None else ():
            print_table(console(), table)
    if earlier is not None and comparison is not None:
        earlier.end(comparison)
    return INTERRUPTED if decision.not_priced else 0


def _print(decision: Decision, every: bool, page: Path) -> None:
    from recsys_lab.decide.page import write_decision

    out = console()
    if decision.not_priced:
        asked = decision.priced + decision.not_priced
        out.print(f"Interrupted: {decision.priced} of {asked} combinations were priced. All below is of these.")
    for sentence in decision.winner.verdict.split("\n"):
        out.print(sentence, style="bold", soft_wrap=sentence.startswith(" "))  # a line of a shell stays one
    if decision.target is not None:
        out.print(decision.target.words, style="bold")
    out.print()
    if len(decision.of_clusters) > 1:
        print_table(out, clusters_table(decision.of_clusters, decision.winner))
    if decision.run is not None:
        print_table(out, bill_table(decision))
    out.print(assumption_words(decision.assumptions, decision.evidence))
    out.print()
    print_table(out, rows_table(decision.rows, decision.winner, every))
    if every and (refused := refused_table(decision.rows)).rows:
        print_table(out, refused)
    elif words := refused_words(decision.rows):
        out.print(words)
    if decision.winner.details:
        out.print(decision.winner.details)
    if decision.sensitivity and decision.winner.row is not None:
        out.print()
        print_table(out, changes_table(decision.sensitivity, decision.winner.row))
    for sentence in decision.sentences:
        out.print(sentence)
    if not decision.not_priced:
        out.print(f"page: {write_decision(decision, page)}")
