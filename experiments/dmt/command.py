"""`python -m recsys_lab dmt STUDY`: a table or figure of DMT (Luo et al. 2024), the paper's values and ours."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

from experiments.flexshard.command import draw, show
from recsys_lab.arguments import parser

#: Study -> the module with its `run(study) -> Study`, imported only when it is called, and what it is about.
STUDIES = {
    "table3": ("experiments.dmt.complexity", "SPTT leaves FLOPs and parameters as they are"),
    "table4": ("experiments.dmt.complexity", "FLOPs and parameters of the models with towers"),
    "table5": ("experiments.dmt.complexity", "and of 8 towers as they are compressed further"),
    "figure9": ("experiments.dmt.partitions", "features in towers: affinity and plane"),
    "table6": ("experiments.dmt.partitions", "found towers against naive ones, 9 seeds: some ten minutes"),
}


def main(argv: list[str]) -> int:
    """Runs the study that `argv` names and prints it. UserError for one that does not exist."""
    listed = "; ".join(f"{name}: {about}" for name, (_, about) in STUDIES.items())
    line = parser("dmt", "Tables and figures of DMT (Luo et al. 2024): the paper's values beside ours, and where each is from.")
    line.add_argument("study", choices=[*STUDIES, "all"], metavar="STUDY", help=f"{listed}; all: one after the other")
    line.add_argument("--json", action="store_true", help="print one JSON object")
    line.add_argument("--out", type=Path, metavar="DIR", help="write the study's pictures to this folder")
    given = line.parse_args(argv)
    chosen = list(STUDIES) if given.study == "all" else [given.study]
    studies = [importlib.import_module(STUDIES[name][0]).run(name) for name in chosen]
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
