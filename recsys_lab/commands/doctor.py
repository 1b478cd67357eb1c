"""`python -m recsys_lab doctor`: what is installed here, what works, and what to do about the rest."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from rich.console import Console
from rich.table import Table
from rich.text import Text

from recsys_lab.base.arguments import parser
from recsys_lab.doctor.examine import examine
from recsys_lab.doctor.row import BROKEN, OK, WARNING, Row

STYLES = {OK: "green", WARNING: "yellow", BROKEN: "bold red"}


def main(argv: list[str]) -> int:
    """`doctor [--json]`. 0: training on this machine can work. 2: it cannot, and the table says what to do."""
    line = parser("doctor", "What works on this machine, and what to do about what does not.")
    line.add_argument("--json", action="store_true", help="print the rows as one JSON object")
    options = line.parse_args(argv)
    with Console(stderr=True).status("looking (about ten seconds)"):
        rows = examine()
    healthy = all(row.state != BROKEN for row in rows)
    if options.json:
        json.dump({"ok": healthy, "rows": [asdict(row) for row in rows]}, sys.stdout, indent=2)
        print()
    else:
        show(rows, Console())
    return 0 if healthy else 2


def show(rows: list[Row], console: Console) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("area", "what", "state", "found"):
        table.add_column(title, overflow="fold")
    area = None
    for row in rows:
        table.add_row(Text(row.area if row.area != area else ""), Text(row.name), Text(row.state, STYLES[row.state]), Text(row.found))
        if row.remedy:
            table.add_row("", "", "", Text(f"-> {row.remedy}", STYLES[row.state]))
        area = row.area
    console.print(table)
    broken, warnings = (sum(row.state == state for row in rows) for state in (BROKEN, WARNING))
    if broken:
        console.print(Text(f"\n{broken} broken: training on this machine cannot work until that is mended", STYLES[BROKEN]))
    else:
        console.print(Text(f"\ntraining on this machine can work{f' (warnings: {warnings})' if warnings else ''}", STYLES[OK]))
