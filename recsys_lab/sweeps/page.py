"""`ablation.html`: a sweep's table, its charts and every test on one self-contained page."""

from __future__ import annotations

from html import escape

from recsys_lab.report import html
from recsys_lab.report.charts import side_by_side
from recsys_lab.sweeps.cells import (
    MARKS,
    capitalised,
    change_tables,
    comparison_tables,
    digits_of,
    explained,
    header,
    title_of,
    value_tables,
)
from recsys_lab.sweeps.figures import Figure
from recsys_lab.sweeps.plots import MOST_ROWS, learning_bands, pareto, same_in_all
from recsys_lab.sweeps.seeds_plot import seed_charts, varies
from recsys_lab.sweeps.table import Ablation
from recsys_lab.sweeps.text import LEGEND


def as_html(ablation: Ablation, reload_s: int | None = None) -> str:
    """The page. `reload_s`: while the sweep runs, an open page reloads itself so often. It still asks nothing of the network."""
    name = ablation.folder.resolve().name
    jobs = [job for row in ablation.rows for job in row.jobs]
    state = f"{sum(job.completed for job in jobs)} of {len(jobs)} jobs completed"
    words = f"{state}{'; the sweep is running' if reload_s else ''}. {capitalised(header(ablation))}; {MARKS}."
    body = [
        f"<h1>Ablation of {escape(name)}</h1>",
        f'<p class="soft">{escape(words)}</p>',
        *(html.table(table, 2) for table in (*value_tables(ablation), *change_tables(ablation))),
        *(f'<p class="note">{escape(note)}</p>' for note in explained(ablation)),
    ]
    if curves := learning_bands(ablation):
        of_many = f" The first {MOST_ROWS} configurations." if len(ablation.rows) > MOST_ROWS else ""
        note = f"Median over seeds; the band is from least to most. The first fifth of the steps may leave the picture.{of_many}"
        body += ["<h2>Learning curves</h2>", f'<p class="note">{note}</p>', side_by_side(curves)]
    if trades := pareto(ablation):
        names_on_line = " Named are those on a line." if len(ablation.rows) > MOST_ROWS else ""
        note = f"Medians over seeds; on the line, in large, is what no other configuration beats in both figures.{names_on_line}"
        body += ["<h2>What trades against what</h2>", f'<p class="note">{note}</p>', side_by_side(trades)]
    if same := same_in_all(ablation):
        body.append(f'<p class="note">Not drawn, as all configurations have the same: {escape(", ".join(same))}.</p>')
    charts = [seed_charts(ablation, figure) for figure in ablation.figures if varies(ablation, figure)]
    if ablation.figures:
        body += ["<h2>Every seed</h2>", *(side_by_side(pair) for pair in charts if len(pair) > 1)]
        body.append(side_by_side([one for pair in charts if len(pair) == 1 for one in pair]))
    if still := [_with_value(ablation, figure) for figure in ablation.figures if not varies(ablation, figure)]:
        body.append(f'<p class="note">Not drawn, as every seed has the same: {escape("; ".join(still))}.</p>')
    tests = comparison_tables(ablation)
    body += [html.table(table, 2) for table in tests]
    if tests:
        body.append("<ul>" + "".join(f'<li class="note">{escape(line)}</li>' for line in LEGEND) + "</ul>")
    return html.document(f"ablation of {name}: recsys_lab", body, wide=True, reload_s=reload_s)


def _with_value(ablation: Ablation, figure: Figure) -> str:
    """A figure that does not vary, with its value."""
    value = next(value for row in ablation.rows for value in row.values(figure))
    return f"{title_of(figure)}, {figure.words} {digits_of(value, figure)}"
