"""A study in the terminal."""

from __future__ import annotations

from recsys_lab.report.terminal import console, print_table
from recsys_lab.studies.study import Study


def show_study(study: Study, verdict: str = "") -> None:
    """Its table, what the paper says in words, its notes and, where there is one, the verdict."""
    out = console()
    print_table(out, study.table())
    for text, holds in study.statements:
        out.print(f"{'holds' if holds else 'DOES NOT HOLD'}: {text}")
    for note in study.notes:
        out.print(note, style="dim")
    if verdict:
        out.print(verdict, style="bold")
    out.print()
