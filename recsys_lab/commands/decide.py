"""`python -m recsys_lab decide model=... clusters=... batch=...`: which sharder, precision, optimizer and cluster to pay for."""

from __future__ import annotations

import json

from recsys_lab.base.arguments import parser
from recsys_lab.base.files import out_file, plain
from recsys_lab.base.progress import Progress
from recsys_lab.decide.assumptions import assumption_words
from recsys_lab.decide.question import parse_question
from recsys_lab.decide.tables import changes_table, clusters_table, refused_table, refused_words, rows_table
from recsys_lab.report.terminal import console, print_table

PAGE_FILE = "decide.html"
ABOUT = "Plans and simulates every combination of sharder, precision, table optimizer and cluster, and says what the figures allow to say."
WORDS = (
    "clusters=h100x64:2.50,a100x128:1.50 (dollars per device-hour) batch=65536 (samples over all devices); to restrict or extend: "
    "sharders=A,B precisions=A,B optimizers=A,B profiles=A,B; and any word of run.py: model=..., data=..., simulate.hot_rows=true"
)


def main(argv: list[str]) -> int:
    """Prints the verdict, the rows, and what would help most."""
    line = parser("decide", ABOUT)
    line.add_argument("words", nargs="*", metavar="KEY=VALUE", help=WORDS)
    line.add_argument("--all", action="store_true", help="every row in the terminal, not only the cheapest")
    line.add_argument("--page", metavar="FILE", default=PAGE_FILE, help=f"where the page is written; {PAGE_FILE} if not given")
    line.add_argument("--json", action="store_true", help="print rows, winner and sensitivity as one JSON object, and write no page")
    options = line.parse_intermixed_args(argv)
    question = parse_question(options.words)
    page = None if options.json else out_file(options.page, "--page", (".html",))
    from recsys_lab.decide.decision import decided  # with torch, which neither help nor a mistake needs
    from recsys_lab.decide.page import write_decision

    with Progress(0, "pricing", "combinations") as bar:
        decision = decided(question, progress=bar.advance_to)
    if page is None:
        print(json.dumps(plain(decision.to_json()), indent=2, allow_nan=False))
        return 0
    out = console()
    out.print(decision.winner.verdict, style="bold")
    out.print()
    if len(decision.of_clusters) > 1:
        print_table(out, clusters_table(decision.of_clusters, decision.winner))
    out.print(assumption_words(decision.assumptions, decision.evidence))
    out.print()
    print_table(out, rows_table(decision.rows, decision.winner, options.all))
    if options.all and (refused := refused_table(decision.rows)).rows:
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
    out.print(f"page: {write_decision(decision, page)}")
    return 0
