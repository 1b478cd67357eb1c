"""`python -m recsys_lab PAPER STUDY`: studies of one paper, printed. Nothing is left but the pictures that are asked for."""

from __future__ import annotations

import json
import typing
from argparse import Namespace
from typing import Any

from recsys_lab.base import schema
from recsys_lab.base.arguments import parser
from recsys_lab.base.files import out_folder
from recsys_lab.studies.catalogue import QUICK, Item, papers, studies_of
from recsys_lab.studies.function import function_of, hints_of, option_value
from recsys_lab.studies.render import draw
from recsys_lab.studies.show import show_study
from recsys_lab.studies.study import Study


def main(paper: str, argv: list[str]) -> int:
    """Runs the studies that `argv` names and prints them. UserError for one that does not exist."""
    studies = studies_of(paper)
    (title,) = (entry.title for entry in papers() if entry.name == paper)
    listed = "; ".join(f"{item.name}: {item.about}" for item in studies.values())
    line = parser(paper, f"Tables and figures of {title}: the paper's values beside ours, and where each is from.")
    line.add_argument("study", choices=[*studies, "all"], metavar="STUDY", help=f"{listed}; all: the quick ones, one after the other")
    line.add_argument("--json", action="store_true", help="print one JSON object")
    line.add_argument("--out", metavar="DIR", help="write the study's pictures to this folder")
    for option, of in _options(studies).items():
        line.add_argument(f"--{option}", metavar="X", help=f"of {', '.join(of)} (default {_defaults(of.values())})")
    arguments = line.parse_args(argv)
    out = None if arguments.out is None else out_folder(arguments.out, "--out")
    items = [item for item in studies.values() if item.budget == QUICK] if arguments.study == "all" else [studies[arguments.study]]
    results = [run(item, arguments) for item in items]
    drawn = {study.name: [str(path) for path in draw(study, out)] for study in results} if out is not None else {}
    if arguments.json:
        record = {study.name: study.to_json() | ({"pictures": drawn[study.name]} if drawn else {}) for study in results}
        print(json.dumps(record if arguments.study == "all" else record[arguments.study], indent=2))
        return 0
    for study in results:
        show_study(study)
    for path in (path for paths in drawn.values() for path in paths):
        print(path)
    return 0


def run(item: Item, arguments: Namespace) -> Study:
    """The study with the options of its YAML, or those that were given in their place."""
    assert item.target is not None
    function = function_of(item.target)
    options: dict[str, Any] = dict(item.options)
    declared = schema.hints_of(function)
    for name, hint in hints_of(function).items():
        if (text := getattr(arguments, name, None)) is not None:
            options[name] = option_value(hint, text, f"--{name}")
            schema.checked(options[name], declared[name], f"--{name}")
    return typing.cast(Study, function(item.name, **options)).with_reading(item.reading)


def _options(studies: dict[str, Item]) -> dict[str, dict[str, Any]]:
    """Option -> the studies that have it, with what their YAML gives it."""
    studies_of_option: dict[str, dict[str, Any]] = {}
    for item in studies.values():
        for option, value in item.options.items():
            studies_of_option.setdefault(option, {})[item.name] = value
    return studies_of_option


def _defaults(values: typing.Iterable[Any]) -> str:
    return " and ".join(dict.fromkeys(map(_word, values)))


def _word(value: Any) -> str:
    return "none" if value is None else ",".join(map(str, value)) if isinstance(value, list) else str(value)
