r"""An ablation table for a paper: LaTeX, one table environment for each origin and split, one of the changes and one of the tests.

The file is a document by itself, and is included in one with \input.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from recsys_lab.report.sections import Table
from recsys_lab.report.terminal import parts_of
from recsys_lab.sweeps.cells import SEEDS_NEEDED, change_tables, comparison_tables, explained, failures, header, value_tables
from recsys_lab.sweeps.table import Ablation

SPECIAL = {
    "\\": r"\textbackslash{}",
    **{c: f"\\{c}" for c in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "[": "{[}",  # a row that begins with one would be an argument of the line before it
    "*": "{*}",
    "\N{UPWARDS ARROW}": r"$\uparrow$",
    "\N{DOWNWARDS ARROW}": r"$\downarrow$",
    "\N{PLUS-MINUS SIGN}": r"$\pm$",
    "\N{EN DASH}": r"\textendash{}",
    "\N{HORIZONTAL ELLIPSIS}": r"\ldots{}",
    "\N{NO-BREAK SPACE}": "~",
}
#: Letters of a line of text of an article in \small, about.
LETTERS = 78
#: Alone the file is a document. Without booktabs its lines are plain ones. Commands may have an @ between \makeatletter and \makeatother.
HEAD = r"""\makeatletter
\ifx\documentclass\@twoclasseserror\let\closetables\relax\else
\documentclass{article}\IfFileExists{booktabs.sty}{\usepackage{booktabs}}{}\begin{document}\def\closetables{\end{document}}
\fi
\makeatother
\providecommand{\toprule}{\hline}\providecommand{\midrule}{\hline}\providecommand{\bottomrule}{\hline}
\providecommand{\textquotedbl}{''}
"""


def as_latex(ablation: Ablation) -> str:
    """Every table, each with a caption of one sentence. What failed, and what marks mean, is in comments at the top."""
    words = header(ablation)
    tables = [
        *_fitting(ablation, value_tables(ablation, status=False), f"{words}, the best in bold"),
        *_fitting(ablation, change_tables(ablation), words if ablation.seeds == 1 else "each a change over all its seeds"),
        *_fitting(ablation, map(_narrow, comparison_tables(ablation)), "exact tests against the baseline"),
    ]
    comments = ["Compiles by itself; a paper takes it by \\input.", *failures(ablation), *explained(ablation)]
    return "".join([*(f"% {_one_line(words)}\n" for words in comments), HEAD, *tables, "\\closetables\n"])


#: What a page has no room for; ablation_statistics.csv has it.
LEFT_OUT = ("holds", "pairs", "effect r", "delta", "signed-rank p", "U test p", SEEDS_NEEDED)


def _narrow(table: Table) -> Table:
    places = [i for i, column in enumerate(table.columns) if column not in LEFT_OUT]
    rows = tuple(tuple(row[i] for i in places) for row in table.rows)
    return replace(table, columns=tuple(table.columns[i] for i in places), rows=rows)


def _fitting(ablation: Ablation, tables: Iterable[Table], words: str) -> list[str]:
    """Each of `tables`, in parts that fit a page's width."""
    parts = [part for table in tables for part in parts_of(table, LETTERS, keep=(*ablation.columns, "seeds", "figure"))]
    return [_table(part, f"{part.title}: {words}.") for part in parts]


def _table(table: Table, caption: str) -> str:
    align = "".join("r" if column in table.right else "l" for column in table.columns)
    rows = [" & ".join(_cell(table, i, column, cell) for column, cell in zip(table.columns, row)) for i, row in enumerate(table.rows)]
    lines = [
        r"\begin{table}[t]",
        r"\centering\small\setlength{\tabcolsep}{4pt}\setlength{\belowcaptionskip}{4pt}",
        rf"\caption{{{latex(caption)}}}",
        rf"\begin{{tabular}}{{{align}}}",
        r"\toprule",
        rf"{' & '.join(map(latex, table.columns))} \\",
        r"\midrule",
        *(rf"{row} \\" for row in rows),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _cell(table: Table, row: int, column: str, cell: str) -> str:
    words = latex(cell.replace("\n", " "))
    return rf"\textbf{{{words}}}" if (row, column) in table.bold else words


def latex(text: str) -> str:
    """`text` with LaTeX's special characters as letters. Of letters that pdflatex has not, the code point."""
    text = "".join(map(_letter, text)).replace("--", "-{}-")
    return re.sub(r"(?<![\w-])-(?=\d)", "$-$", text)


def _letter(character: str) -> str:
    if character in SPECIAL:
        return SPECIAL[character]
    if character < "\x7f":
        return character if character.isprintable() else " "
    return character if character.isalpha() and character <= "\xff" else f"{{[}}U+{ord(character):04X}]"


def _one_line(words: str) -> str:
    return " ".join(words.split())
