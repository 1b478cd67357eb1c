"""What a study leaves in its run folder for people: table.md, table.csv, plot.svg and plot.png."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from recsys_lab.base.files import plain, write_text
from recsys_lab.errors import cannot_write
from recsys_lab.report.sections import Table
from recsys_lab.studies.compared import draw_compared
from recsys_lab.studies.study import Study

PLOT = "plot"
TABLE = "table"
LINE_COLUMNS = ("what", "unit", "published", "ours", "origin", "error", "by_construction")


def write_study(folder: Path, study: Study, head: str, verdict: str) -> list[Path]:
    """All four files. `head`: what stands above the table in table.md. UserError where `folder` cannot be written to."""
    tables = [write_text(folder / f"{TABLE}.md", markdown(study, head, verdict)), write_text(folder / f"{TABLE}.csv", lines_csv(study))]
    return [*tables, *plot(folder, study)]


def plot(folder: Path, study: Study) -> list[Path]:
    """plot.svg and plot.png: the study's own picture, or its lines."""
    return [path.rename(folder / f"{PLOT}{path.suffix}") for path in draw(study, folder)]


def draw(study: Study, folder: Path) -> list[Path]:
    """The study's pictures under its own name, in `folder`, which is made if need be. UserError where it cannot be written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return study.draw(folder) if study.draw else draw_compared(study, folder)
    except OSError as error:
        raise cannot_write(error, folder) from None


def markdown(study: Study, head: str, verdict: str) -> str:
    parts = [f"# {study.name}: {study.question}", head, f"**Verdict.** {verdict}", markdown_table(study.table())]
    if study.statements:
        parts.append("\n".join(f"- {'holds' if holds else '**does not hold**'}: {text}" for text, holds in study.statements))
    parts += [f"*{note}*" for note in study.notes]
    return "\n\n".join(part for part in parts if part) + "\n"


def markdown_table(table: Table) -> str:
    def row(cells: tuple[str, ...]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

    rule = "|" + "|".join("---:" if column in table.right else "---" for column in table.columns) + "|"
    return "\n".join([row(table.columns), rule, *map(row, table.rows), *(["", table.note] if table.note else [])])


def lines_csv(study: Study) -> str:
    """Every line of the study. Its error is relative, or in points where the unit is %."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(LINE_COLUMNS)
    for line in study.lines:
        figures = (line.published, plain(line.ours), line.origin, line.error, line.by_construction)
        writer.writerow((line.what, line.unit, *("" if figure is None else figure for figure in figures)))
    return out.getvalue()
