"""`report.html` of a study: verdict, question, hypothesis, table and chart on one self-contained page."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from recsys_lab.base.files import write_text
from recsys_lab.report import html
from recsys_lab.report.charts import Chart, element, embedded
from recsys_lab.report.page import PAGE_FILE
from recsys_lab.studies.render import PLOT
from recsys_lab.studies.study import Study
from recsys_lab.studies.verdict import DEVIATES


def write_study_page(folder: Path, study: Study, record: dict[str, Any]) -> Path:
    """Write `folder`/report.html. `record`: the study's part of result.json."""
    verdict = record["verdict"]
    statements = "".join(f"<li>{'holds' if holds else '<b>does not hold</b>'}: {escape(text)}</li>" for text, holds in study.statements)
    marked = ' class="failed"' if verdict["state"] == DEVIATES else ""
    image = (folder / f"{PLOT}.svg").read_text(encoding="utf-8")
    chart = Chart(PLOT, "", embedded(image, study.question), classes="wide")
    body = [
        f"<h1>{escape(record['name'])}: {escape(study.question)}</h1>",
        f'<p class="soft">{escape(record["command"])}</p>',
        f"<p><b>Question.</b> {escape(record['question'])}</p><p><b>Hypothesis.</b> {escape(record['hypothesis'])}</p>",
        f"<p{marked}><b>Verdict.</b> {escape(verdict['sentence'])} {escape(verdict['why'] or '')}</p>",
        html.table(study.table(), 2),
        f"<ul>{statements}</ul>" if statements else "",
        element(chart),
        *(f'<p class="note">{escape(note)}</p>' for note in study.notes),
    ]
    return write_text(folder / PAGE_FILE, html.document(record["name"], body))
