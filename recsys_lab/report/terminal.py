"""A section's table in the terminal."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from recsys_lab.report.sections import Table


def console(most: int = 100, without: int = 80) -> Console:
    """Writes to stdout: as wide as the terminal is, but never over `most` columns; `without` where there is none. Words are no markup."""
    made = Console(highlight=False, markup=False)
    made.width = min(made.width, most) if made.is_terminal else without
    return made


def parts_of(made: Table, width: int, keep: Collection[str]) -> list[Table]:
    """`made` as tables that fit into `width`: each has the columns in `keep` and as many of the others as there is room for."""
    others = [i for i, column in enumerate(made.columns) if column not in keep]
    groups: list[list[int]] = [[]]
    for i in others:
        if groups[-1] and _narrowest(*_columns(made, keep, [*groups[-1], i]), made.columns) > width:
            groups.append([])
        groups[-1].append(i)
    parts = []
    for n, group in enumerate(groups):
        columns, rows = _columns(made, keep, group)
        title, note = f"{made.title}{', continued' if n else ''}", made.note if n == len(groups) - 1 else ""
        parts.append(replace(made, title=title, columns=columns, rows=rows, note=note))
    return parts


def _columns(made: Table, keep: Collection[str], others: Sequence[int]) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """The names and the cells of the columns in `keep` and of those numbered in `others`."""
    chosen = [i for i, column in enumerate(made.columns) if column in keep or i in others]
    return tuple(made.columns[i] for i in chosen), tuple(tuple(row[i] for i in chosen) for row in made.rows)


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
