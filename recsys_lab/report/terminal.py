"""A section's table in the terminal."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich import box
from rich.cells import cell_len
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


def print_table(out: Console, made: Table, most_rows: int | None = None, keep: Collection[str] = ()) -> None:
    """Title, rows and note. Beyond `most_rows` the rest is counted.

    Columns of text wrap; figures, the first column and those in `keep` do not, unless the table would not fit so.
    """
    out.print(Text(made.title, style="bold"))
    if made.rows:
        rows = made.rows[:most_rows]
        choices = [{made.columns[0], *made.right, *keep}, set(made.right), set[str]()]
        kept = next((names for names in choices if _narrowest(made.columns, rows, names) <= out.width), set[str]())
        out.print(_drawn(made, rows, kept))
        if most_rows is not None and len(made.rows) > most_rows:
            out.print(f"... and {len(made.rows) - most_rows} more; report.html has all", style="dim")
    if made.note:
        out.print(made.note, style="dim")
    out.print()


def _narrowest(columns: Sequence[str], rows: Sequence[tuple[str, ...]], kept: Collection[str]) -> int:
    """The width below which a kept column would lose letters: its longest line, or a short word for one that wraps; 3 between columns."""
    width = 3 * (len(columns) - 1)
    for i, column in enumerate(columns):
        lines = [line for cell in (column, *(row[i] for row in rows)) for line in cell.split("\n")]
        width += max(map(cell_len, lines)) if column in kept else min(max(map(cell_len, lines)), 12)
    return width


def _drawn(made: Table, rows: Sequence[tuple[str, ...]], kept: Collection[str]) -> RichTable:
    table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), show_edge=False)
    for column in made.columns:
        table.add_column(Text(column), justify="right" if column in made.right else "left", no_wrap=column in kept, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table
