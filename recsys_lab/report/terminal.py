"""A section's table in the terminal."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, Literal

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from recsys_lab.report.sections import Table

#: A column of text is no narrower than this, if its lines are as long, nor than a number in it.
NARROW = 12
#: What is no number if a part of it is cut off.
NUMBER = re.compile(r"\S*\d\S*")
#: Of a name that is longer than its column: it is broken behind a point, an underscore and the like.
PART = re.compile(r"[^./_=,:@-]*[./_=,:@-]+|[^./_=,:@-]+")


class _Sentences(Console):
    """Wraps what is printed as text between words. Rich would leave the space that a line ended with behind it."""

    def print(self, *objects: Any, **options: Any) -> None:
        super().print(*(self._wrapped(one) if isinstance(one, str) else one for one in objects), **options)

    def _wrapped(self, text: str) -> str:
        lines = (textwrap.wrap(line, self.width, break_long_words=False, break_on_hyphens=False) for line in text.split("\n"))
        return "\n".join("\n".join(parts) for parts in lines)


def console(most: int = 100, without: int = 80) -> Console:
    """Writes to stdout: as wide as the terminal is, but never over `most` columns; `without` where there is none. Words are no markup."""
    out = _Sentences(highlight=False, markup=False)
    out.width = min(out.width, most) if out.is_terminal else without
    return out


def parts_of(table: Table, width: int, keep: Collection[str]) -> list[Table]:
    """`table` as tables that fit into `width`. Each has the columns in `keep` and as many of the others as there is room for.

    Figures and the columns in `keep` do not wrap. Text does.
    """
    kept = {*table.right, *keep}
    others = [i for i, column in enumerate(table.columns) if column not in keep]
    groups: list[list[int]] = [[]]
    for i in others:
        if groups[-1] and _narrowest(*_columns(table, keep, [*groups[-1], i]), kept) > width:
            groups.append([])
        groups[-1].append(i)
    parts = []
    for n, group in enumerate(groups):
        columns, rows = _columns(table, keep, group)
        title, note = f"{table.title}{', continued' if n else ''}", table.note if n == len(groups) - 1 else ""
        parts.append(replace(table, title=title, columns=columns, rows=rows, note=note))
    return parts


def _columns(table: Table, keep: Collection[str], others: Sequence[int]) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """The names and the cells of the columns in `keep` and of those numbered in `others`."""
    chosen = [i for i, column in enumerate(table.columns) if column in keep or i in others]
    return tuple(table.columns[i] for i in chosen), tuple(tuple(row[i] for i in chosen) for row in table.rows)


def print_table(out: Console, table: Table, most_rows: int | None = None, keep: Collection[str] = ()) -> None:
    """Title, rows and note. Beyond `most_rows` the rest is counted.

    Columns of text wrap. Figures, the first column and those in `keep` do not. Where a table would not fit so, the first column wraps too.
    A table that does not fit even so is shown in parts, each with the first column.
    """
    if table.rows and _narrowest(table.columns, table.rows[:most_rows], table.right) > out.width:
        parts = parts_of(table, out.width, (table.columns[0], *keep))
        if len(parts) > 1:
            for part in parts:
                print_table(out, part, most_rows, keep)
            return
    out.print(table.title, style="bold")
    if table.rows:
        rows = table.rows[:most_rows]
        choices = [{table.columns[0], *table.right, *keep}, set(table.right), set[str]()]
        kept = next((names for names in choices if _narrowest(table.columns, rows, names) <= out.width), set[str]())
        out.print(_drawn(table, rows, kept, out.width))
        if most_rows is not None and len(table.rows) > most_rows:
            out.print(f"... and {len(table.rows) - most_rows} more; report.html has all", style="dim")
    if table.note:
        out.print(table.note, style="dim")
    out.print()


def _narrowest(columns: Sequence[str], rows: Sequence[tuple[str, ...]], kept: Collection[str]) -> int:
    """The width below which a kept column would lose letters.

    It is that of its longest line, or of a short word or a number for one that wraps. There are 3 between columns.
    """
    width = 3 * (len(columns) - 1)
    for i, column in enumerate(columns):
        cells = [column, *(row[i] for row in rows)]
        longest = max(cell_len(line) for cell in cells for line in cell.split("\n"))
        width += longest if column in kept else max(min(longest, NARROW), _longest_number(cells))
    return width


def _widths(table: Table, rows: Sequence[tuple[str, ...]], kept: Collection[str], width: int) -> list[int]:
    """Of each column, so that all fit into `width`: the widest of those that wrap is narrowed first, never within a part of a name."""
    columns = [[column, *(row[i] for row in rows)] for i, column in enumerate(table.columns)]
    widths = [max(cell_len(line) for cell in cells for line in cell.split("\n")) for cells in columns]
    least = [w if column in kept else min(w, _longest_part(cells)) for column, w, cells in zip(table.columns, widths, columns)]
    while sum(widths) + 3 * (len(widths) - 1) > width and widths != least:
        widest = max((i for i in range(len(widths)) if widths[i] > least[i]), key=lambda i: widths[i])
        widths[widest] -= 1
    return widths


def _longest_part(cells: Sequence[str]) -> int:
    """Letters of the longest word, or of the longest part of one that is longer than a column has to be."""
    words = [word for cell in cells for word in cell.split()]
    parts = (part for word in words for part in (PART.findall(word) if cell_len(word) > 2 * NARROW else [word]))
    return max((cell_len(part) for part in parts), default=1)


def broken(text: str, width: int) -> str:
    """`text` in lines of at most `width`: between words; a longer word between its parts."""
    lines = []
    for line in text.split("\n"):
        now = line if cell_len(line) <= width else ""
        for word in line.split() if not now else ():
            pieces, gap = [word] if cell_len(word) <= width else PART.findall(word), " " if now else ""
            for piece in pieces:
                if now and cell_len(now + gap + piece) > width:
                    lines.append(now)
                    now, gap = "", ""
                now, gap = now + gap + piece, ""
        lines.append(now)
    return "\n".join(lines)


def _longest_number(cells: Sequence[str]) -> int:
    """Letters of the longest word with a digit, unless it is longer than any number: names and paths may be cut."""
    lengths = [cell_len(word) for cell in cells for word in NUMBER.findall(cell)]
    return max((length for length in lengths if length <= 2 * NARROW), default=0)


def _drawn(table: Table, rows: Sequence[tuple[str, ...]], kept: Collection[str], width: int) -> RichTable:
    widths = _widths(table, rows, kept, width)
    drawn = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), show_edge=False)
    for column, own in zip(table.columns, widths):
        justify: Literal["left", "right"] = "right" if column in table.right else "left"
        drawn.add_column(Text(column), justify=justify, no_wrap=column in kept, overflow="fold", min_width=own)
    for i, row in enumerate(rows):
        cells = (cell if column in kept else broken(cell, w) for column, w, cell in zip(table.columns, widths, row))
        drawn.add_row(*(Text(cell, style="bold" if (i, column) in table.bold else "") for column, cell in zip(table.columns, cells)))
    return drawn
