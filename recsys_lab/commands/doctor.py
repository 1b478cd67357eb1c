"""The doctor's command: look at everything, say it as a table or as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from recsys_lab.arguments import parser
from recsys_lab.doctor import kernels, machine, trials, versions
from recsys_lab.doctor.row import BROKEN, OK, WARNING, Row
from recsys_lab.quiet import quiet_torchrec

STYLES = {OK: "green", WARNING: "yellow", BROKEN: "bold red"}

#: (area, name, look): in the order of the table.
LOOKS: tuple[tuple[str, str, Callable[[], Row | list[Row]]], ...] = (
    ("versions", "Python", versions.python_row),
    ("versions", "the triple", versions.triple_rows),
    ("versions", "lock", versions.lock_rows),
    ("devices", "devices", machine.device_rows),
    ("CPU", "instructions", lambda: machine.cpu_rows(machine.cpu_flags())),
    ("kernels", "FBGEMM on the CPU", trials.fbgemm_row),
    ("kernels", "torch embedding_bag", trials.embedding_bag_row),
    ("kernels", "compiler", machine.toolchain_row),
    ("kernels", kernels.NAME, kernels.kernels_row),
    ("kernels", kernels.TRITON, kernels.triton_row),
    ("backends", "gloo", trials.gloo_row),
    ("backends", "nccl", trials.nccl_row),
    ("W&B", "client", machine.wandb_row),
    ("disk", "this folder", lambda: machine.disk_row(Path.cwd())),
)


def examine() -> list[Row]:
    """Every row. A look that fails is itself a row: broken, with what it raised."""
    quiet_torchrec()
    rows: list[Row] = []
    for area, name, look in LOOKS:
        try:
            found = look()
        except Exception as error:  # noqa: BLE001 - an install can be broken in any way, and saying so is the doctor's work
            line = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            found = Row(area, name, BROKEN, line, f"{versions.REBUILD}; if it stays, report it with the output of --json")
        rows += found if isinstance(found, list) else [found]
    return rows


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
