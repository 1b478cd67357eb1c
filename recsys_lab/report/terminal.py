"""A section's table in the terminal."""

from __future__ import annotations

from collections.abc import Collection

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from recsys_lab.report.sections import Table


def console(width: int | None = None) -> Console:
    """Writes to stdout: as wide as the terminal is, but never over 100 columns; 80 where there is none. Words are never markup."""
    made = Console(highlight=False, markup=False, width=width)
    if width is None:
        made.width = min(made.width, 100) if made.is_terminal else 80
    return made


def print_table(out: Console, made: Table, most_rows: int | None = None, fold: Collection[str] = ()) -> None:
    """Title, rows and note. Beyond `most_rows` the rest is counted. Names and figures keep their line; other columns, and `fold`, wrap."""
    out.print(Text(made.title, style="bold"))
    if made.rows:
        table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), show_edge=False)
        for i, column in enumerate(made.columns):
            right = column in made.right
            keep = (right or i == 0) and column not in fold
            table.add_column(Text(column), justify="right" if right else "left", no_wrap=keep, overflow="fold")
        for row in made.rows[:most_rows]:
            table.add_row(*(Text(cell) for cell in row))
        out.print(table)
        if most_rows is not None and len(made.rows) > most_rows:
            out.print(f"... and {len(made.rows) - most_rows} more; report.html has all", style="dim")
    if made.note:
        out.print(made.note, style="dim")
    out.print()
