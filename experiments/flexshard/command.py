"""`python -m recsys_lab flexshard STUDY`: a table or figure of FlexShard (arXiv 2301.02959), the paper's values and ours."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

from experiments.flexshard.study import Study
from recsys_lab.arguments import parser
from recsys_lab.errors import cannot_write
from recsys_lab.report.terminal import console, print_table

#: Study -> the module with its `run() -> Study`, imported only when it is called.
STUDIES = {
    "figure1": "what sequences cost beside pooled features",
    "figure3": "whole tables: where data-parallel costs less than row-wise",
    "figure5": "memory and traffic as more rows are replicated: points A, B, C, D",
    "table5": "rows and look-ups of each tier",
    "figure6": "how much less the global all-to-all carries, predicted and observed",
    "table6": "times of the four collectives",
    "figure7": "how much shorter embedding communication gets",
}


def main(argv: list[str]) -> int:
    """Runs the study that `argv` names and prints it. UserError for one that does not exist."""
    listed = "; ".join(f"{name}: {about}" for name, about in STUDIES.items())
    line = parser(
        "flexshard", "Tables and figures of FlexShard (arXiv 2301.02959): the paper's values beside ours, and where each is from."
    )
    line.add_argument("study", choices=[*STUDIES, "all"], metavar="STUDY", help=f"{listed}; all: one after the other")
    line.add_argument("--json", action="store_true", help="print one JSON object")
    line.add_argument("--out", type=Path, metavar="DIR", help="write the study's pictures to this folder")
    given = line.parse_args(argv)
    chosen = list(STUDIES) if given.study == "all" else [given.study]
    studies = [importlib.import_module(f"experiments.flexshard.{name}").run() for name in chosen]
    drawn = {study.name: [str(path) for path in draw(study, given.out)] for study in studies} if given.out else {}
    if given.json:
        made = {study.name: study.to_json() | ({"pictures": drawn[study.name]} if drawn else {}) for study in studies}
        print(json.dumps(made if given.study == "all" else made[given.study], indent=2))
        return 0
    for study in studies:
        show(study)
    for paths in drawn.values():
        for path in paths:
            print(path)
    return 0


def show(study: Study) -> None:
    out = console()
    print_table(out, study.table())
    for text, holds in study.statements:
        out.print(f"{'holds' if holds else 'DOES NOT HOLD'}: {text}")
    for note in study.notes:
        out.print(note, style="dim")
    out.print()


def draw(study: Study, folder: Path) -> list[Path]:
    """The study's pictures in `folder`, which is made if need be. UserError where it cannot be written to."""
    if study.draw is None:
        return []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return study.draw(folder)
    except OSError as error:
        raise cannot_write(error, folder) from None
