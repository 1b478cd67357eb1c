"""An ablation table written out: numbers as CSV, and Markdown, HTML and the terminal for people."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Sequence
from html import escape
from typing import Any

from recsys_lab.report import html
from recsys_lab.report.ablation_rows import Ablation, Figure, Row
from recsys_lab.report.sections import Table
from recsys_lab.report.terminal import console, print_table
from recsys_lab.units import human_count


def as_csv(made: Ablation) -> str:
    """Figures as numbers: NAME_median, NAME_min, NAME_max, and NAME_difference or NAME_ratio against the baseline. Absent is blank."""
    out = io.StringIO()
    rows = [_csv_row(made, row) for row in made.rows]
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _csv_row(made: Ablation, row: Row) -> dict[str, Any]:
    cells: dict[str, Any] = {key: made.label(row, key) for key in made.varying} | {"seeds": len(row.jobs), "completed": len(row.done)}
    for figure in made.figures:
        values = row.values(figure)
        for name, fold in (("median", statistics.median), ("min", min), ("max", max)):
            cells[f"{figure.name}_{name}"] = repr(float(fold(values))) if values else ""
        if made.baseline:
            change = made.against_baseline(row, figure)
            cells[f"{figure.name}_{figure.against}"] = "" if change is None else repr(float(change))
    return cells | {"status": row.status, "error": row.error}


HEADER = "median over seeds; in brackets the range, min to max, where they differ"


def tables(made: Ablation) -> list[Table]:
    """For people: quality a split, then speed with measured and simulated apart; each with the choices that vary. A cell has lines."""
    shown: list[Table] = []
    for split in ("validation", "test"):
        figures = [f for f in made.figures if f.path.startswith(f"quality.{split}.")]
        if figures or not shown:
            shown.append(_table(made, f"Quality, {split} (measured)", figures, why=not shown))
    speed = [f for f in made.figures if not f.path.startswith("quality")]
    return [*shown, *([_table(made, "Speed", speed, why=False)] if speed else [])]


def _table(made: Ablation, title: str, figures: Sequence[Figure], why: bool) -> Table:
    names = tuple(_heading(f) for f in figures)
    columns = (*made.varying, "seeds", *names, *(("status",) if why else ()))
    rows = [
        (
            *(made.label(row, key) for key in made.varying),
            str(len(row.jobs)),
            *("\n".join(_cell(made, row, f)) for f in figures),
            *((f"{row.status}: {row.error}" if row.error else row.status,) if why else ()),
        )
        for row in made.rows
    ]
    return Table(title, columns, tuple(rows), right=("seeds", *names))


def _heading(figure: Figure) -> str:
    split, _, rest = figure.name.replace("_per_second", "/s").partition("_")
    return f"{split}\n{ {'auc': 'AUC', 'ne': 'NE', 'ndcg_10': 'NDCG@10', 'hit_rate_10': 'hit rate@10'}.get(rest, rest.replace('_', ' ')) }"


def _cell(made: Ablation, row: Row, figure: Figure) -> list[str]:
    """Median, range and what became of the baseline, each a line where there is one."""
    values = row.values(figure)
    if not values:
        return ["failed" if not row.done else "absent"]
    lines = [_written(statistics.median(values), figure)]
    if min(values) < max(values):
        lines.append(f"[{_written(min(values), figure)}\N{EN DASH}{_written(max(values), figure)}]")
    change = made.against_baseline(row, figure)
    if made.baseline is row:
        lines.append("(baseline)")
    elif change is not None:
        lines.append(f"({round(change, figure.digits) + 0.0:+.{figure.digits}f})" if figure.against == "difference" else f"(x{change:.3f})")
    return lines


def _written(value: float, figure: Figure) -> str:
    return human_count(value) if figure.digits == 0 and abs(value) >= 1e6 else f"{value:,.{figure.digits}f}"


def as_markdown(made: Ablation) -> str:
    """One table, one row a configuration."""
    table = _table(made, "Ablation", made.figures, why=True)
    align = ["---:" if column in table.right else "---" for column in table.columns]
    lines = [f"# Ablation of {made.folder.resolve().name}", "", f"{HEADER.capitalize()}.", ""]
    lines += [
        "| " + " | ".join(cells) + " |"
        for cells in (tuple(map(_markdown, table.columns)), align, *(tuple(map(_markdown, row)) for row in table.rows))
    ]
    return "\n".join([*lines, *(f"\n{note}" for note in made.notes)]) + "\n"


def _markdown(cell: str) -> str:
    return cell.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def as_html(made: Ablation) -> str:
    """The tables on one self-contained page."""
    name = made.folder.resolve().name
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in made.notes)
    body = [
        f"<h1>Ablation of {escape(name)}</h1>",
        f'<p class="soft">{escape(HEADER)}</p>',
        notes,
        *(html.table(t, 2) for t in tables(made)),
    ]
    return html.document(f"ablation of {name}: recsys_lab", body, wide=True)


def print_ablation(made: Ablation) -> None:
    """The tables in the terminal, at most 100 columns."""
    out = console(width=100)
    out.print(f"Ablation: {HEADER}", style="bold")
    for table in tables(made):
        print_table(out, table, keep=made.varying)
    for note in made.notes:
        out.print(note, style="dim")
    out.print(f"written: {made.folder}/ablation.csv, .md, .html")
