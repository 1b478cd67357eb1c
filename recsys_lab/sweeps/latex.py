"""An ablation table for a paper: LaTeX with booktabs, one table environment for each origin and split, and one of the tests."""

from __future__ import annotations

import re
from dataclasses import replace

from recsys_lab.report.sections import Table
from recsys_lab.sweeps.cells import comparison_tables, explained, value_tables
from recsys_lab.sweeps.table import Ablation

SPECIAL = {
    "\\": r"\textbackslash{}",
    **{c: f"\\{c}" for c in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "\N{UPWARDS ARROW}": r"$\uparrow$",
    "\N{DOWNWARDS ARROW}": r"$\downarrow$",
    "\N{EN DASH}": "--",
    "\N{NO-BREAK SPACE}": "~",
}


def as_latex(ablation: Ablation) -> str:
    """Every table, to be included with \\input. The notes are the first one's caption."""
    tables = [*value_tables(ablation), *(_narrow(table) for table in comparison_tables(ablation))]
    notes = " ".join(note if note.endswith(".") else f"{note}." for note in explained(ablation))
    caption = f"Median over seeds; in brackets the range. {notes}"
    captions = [f"{table.title}. {caption if i == 0 else ''}".strip() for i, table in enumerate(tables)]
    return "% needs \\usepackage{booktabs}\n" + "\n".join(_table(table, words) for table, words in zip(tables, captions))


#: What a page has no room for; ablation_statistics.csv has it.
LEFT_OUT = ("holds", "pairs", "delta", "signed-rank p", "U test p")


def _narrow(table: Table) -> Table:
    places = [i for i, column in enumerate(table.columns) if column not in LEFT_OUT]
    rows = tuple(tuple(row[i] for i in places) for row in table.rows)
    return replace(table, columns=tuple(table.columns[i] for i in places), rows=rows)


def _table(table: Table, caption: str) -> str:
    align = "".join("r" if column in table.right else "l" for column in table.columns)
    rows = [" & ".join(map(_stacked, row)) + r" \\" for row in table.rows]
    head = " & ".join(map(latex, table.columns)) + r" \\"
    lines = [
        r"\begin{table}[t]",
        r"\centering\small",
        rf"\caption{{{latex(caption)}}}",
        rf"\begin{{tabular}}{{{align}}}",
        r"\toprule",
        head,
        r"\midrule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def latex(text: str) -> str:
    """`text` with LaTeX's special characters as letters."""
    text = "".join(SPECIAL.get(character, character) for character in text)
    return re.sub(r"(?<![\w-])-(?=\d)", "$-$", text)


def _stacked(cell: str) -> str:
    """Lines of a cell below each other: the first as it is, the rest small."""
    first, *others = map(latex, cell.split("\n"))
    if not others:
        return first
    small = r" \\ ".join(rf"{{\scriptsize {line}}}" for line in others)
    return rf"\begin{{tabular}}[t]{{@{{}}r@{{}}}}{first} \\ {small}\end{{tabular}}"
