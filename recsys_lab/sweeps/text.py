"""An ablation table written out: numbers as CSV; Markdown and the terminal for people."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from recsys_lab.report.sections import Table
from recsys_lab.report.terminal import console, parts_of, print_table
from recsys_lab.sweeps.cells import MARKS, capitalised, change_tables, comparison_tables, explained, failures, header, value_tables
from recsys_lab.sweeps.table import Ablation


def as_csv(ablation: Ablation) -> str:
    """One row a configuration. NAME_median, _mean, _min, _max, _std. Against its baseline NAME_difference or NAME_ratio.

    Of measured figures also _low, _high, _confidence, _p and _verdict. Absent is blank.
    """
    return _csv([_configuration(ablation, index) for index in range(len(ablation.rows))])


def _configuration(ablation: Ablation, index: int) -> dict[str, Any]:
    row = ablation.rows[index]
    cells: dict[str, Any] = {key: ablation.label(row, key) for key in ablation.varying}
    cells |= {
        "seeds": len(row.jobs),
        "completed": len(row.completed),
        "simulated_fits": {True: "true", False: "false", None: ""}[row.fits],
    }
    for figure in ablation.figures:
        values = row.values(figure)
        for name, fold in (("median", statistics.median), ("mean", statistics.fmean), ("min", min), ("max", max)):
            cells[f"{figure.name}_{name}"] = repr(float(fold(values))) if values else ""
        cells[f"{figure.name}_std"] = repr(statistics.stdev(values)) if len(values) > 1 else ""
        if ablation.compared:
            cells |= _change(ablation, index, figure.name)
    base = ablation.bases.of_rows[index]
    cells |= {"baseline": ablation.name(base)} if ablation.compared and base is not None else {"baseline": ""} if ablation.compared else {}
    return cells | {"status": row.status, "error": row.error}


def _change(ablation: Ablation, index: int, name: str) -> dict[str, Any]:
    figure = next(figure for figure in ablation.figures if figure.name == name)
    comparison = ablation.comparisons.get((index, name))
    plain = ablation.against_base(index, figure)
    value = comparison.estimate.value if comparison else plain
    cells = {f"{name}_{figure.against}": "" if value is None else repr(float(value))}
    if figure.simulated:
        return cells
    parts = ("low", "high", "confidence", "p", "verdict")
    if comparison is None:
        is_base = ablation.bases.of_rows[index] == index
        return cells | {f"{name}_{part}": "" for part in parts} | ({f"{name}_verdict": "baseline"} if is_base else {})
    estimate = comparison.estimate
    values = (
        *((repr(estimate.low), repr(estimate.high), repr(estimate.confidence)) if estimate.confidence else ("", "", "")),
        "" if comparison.p is None else repr(comparison.p),
        comparison.verdict,
    )
    return cells | {f"{name}_{part}": value for part, value in zip(parts, values)}


def statistics_csv(ablation: Ablation) -> str:
    """One row a test, with every number of it. Only measured figures are tested."""
    rows = []
    for (index, name), comparison in ablation.comparisons.items():
        base = ablation.bases.of_rows[index]
        assert base is not None
        numbers = {key: value for key, value in asdict(comparison).items() if key not in ("figure", "estimate")}
        rows.append(
            {key: ablation.label(ablation.rows[index], key) for key in ablation.varying}
            | {"baseline": ablation.name(base), "figure": name, "better": "higher" if comparison.figure.higher_is_better else "lower"}
            | {"kind": comparison.figure.against, "value": comparison.estimate.value}
            | {part: getattr(comparison.estimate, part) if comparison.estimate.confidence else "" for part in ("low", "high", "confidence")}
            | {key: "" if value is None else value for key, value in numbers.items()}
        )
    return _csv(rows)


def _csv(rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return ""
    out = io.StringIO()
    writer = csv.DictWriter(out, rows[0].keys(), restval="", extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def as_markdown(ablation: Ablation) -> str:
    """The tables, then every test."""
    parts = [f"# Ablation of {ablation.folder.resolve().name}", "", f"{capitalised(header(ablation))}; {MARKS}.", ""]
    for table in (*value_tables(ablation), *change_tables(ablation)):
        parts += [f"## {table.title}", "", *_markdown_table(table), ""]
    parts += [line for note in explained(ablation) for line in (_markdown(note), "")]
    tests = comparison_tables(ablation)
    for table in tests:
        parts += [f"## {table.title}", "", *_markdown_table(table), ""]
    if tests:
        parts += [*(f"- {line}" for line in LEGEND), ""]
    return "\n".join(parts)


#: What the columns of the comparisons are.
LEGEND = (
    "change, interval, holds: the difference (or ratio), and an interval that holds it with that probability, each row for itself",
    "effect r: matched-pairs rank-biserial correlation; delta: Cliff's. From -1 to 1, positive where the row is better",
    "signed-rank p (Wilcoxon, of paired seeds), U test p (Mann-Whitney): exact, two-sided, each for itself",
    "corrected p: over all comparisons of the table; it decides",
    "seeds for 80 % power: of each configuration, to show such a change in four sweeps of five; from few seeds only a rough guess",
)


def _markdown_table(table: Table) -> list[str]:
    align = ["---:" if column in table.right else "---" for column in table.columns]
    rows = [
        tuple(f"**{_markdown(cell)}**" if (i, column) in table.bold else _markdown(cell) for column, cell in zip(table.columns, row))
        for i, row in enumerate(table.rows)
    ]
    return ["| " + " | ".join(row) + " |" for row in (tuple(map(_markdown, table.columns)), align, *rows)]


def _markdown(cell: str) -> str:
    return cell.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").replace("\n", "<br>")


def print_ablation(ablation: Ablation) -> None:
    """The tables in the terminal, at most 120 columns. In a narrow one a table is shown in parts, each with the choices of its rows."""
    out = console(most=120)
    out.print(f"Ablation: {header(ablation)}; {MARKS if out.is_terminal else MARKS.partition(';')[0]}", style="bold")
    for table in (*value_tables(ablation, status=False), *change_tables(ablation)):
        for part in parts_of(table, out.width, keep=(*ablation.columns, "seeds")):
            print_table(out, part, keep=ablation.columns)
    for line in failures(ablation):
        out.print(line, style="bold red")
    for note in explained(ablation):
        out.print(note, style="dim")
    tests = "; every test: ablation_statistics.csv" if ablation.comparisons else ""
    out.print(f"written: {ablation.folder}/ablation.html, .md, .tex, .csv{tests}")
