"""What is known of each study: its newest result in the runs folder, else the committed verdict."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recsys_lab.base.files import read_json, write_json
from recsys_lab.base.schema import check_shape
from recsys_lab.record.result import RESULT_FILE
from recsys_lab.studies.catalogue import EXPERIMENTS, Item, command_of, papers
from recsys_lab.studies.code import code_fingerprint
from recsys_lab.studies.verdict import DEVIATES

VERDICTS_FILE = "verdicts.json"
NOT_RUN, FAILED = "not_run", "failed"


@dataclass(frozen=True)
class Known:
    """`state`: a verdict's, not_run, failed, or why there is no study. `current`: by this very code. `folder` None: committed, or nothing.

    `figures`: the verdict's, {relative, points, orders, statements, by_construction}. `options`: of the study's function that are not those
    of its YAML.
    """

    item: Item
    state: str
    sentence: str
    figures: dict[str, Any] | None = None
    origins: Sequence[str] = ()
    options: dict[str, Any] | None = None
    seconds: float | None = None
    current: bool = False
    folder: Path | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "study": self.item.id,
            "about": self.item.about or None,
            "state": self.state,
            "verdict": self.sentence or None,
            "nearest": self.item.nearest or None,
            "reading": self.item.reading,
            "figures": self.figures,
            "origins": list(self.origins),
            "budget": self.item.budget or None,
            "command": self.item.command or None,
            "options": self.options or None,
            "seconds": self.seconds,
            "current": self.current,
            "folder": None if self.folder is None else str(self.folder),
        }


def folder_of(item: Item, runs: Path) -> Path:
    """Where `studies --run` leaves it."""
    return runs / "studies" / item.paper / item.name


@dataclass(frozen=True)
class _Error:
    type: str
    message: str


@dataclass(frozen=True)
class _Verdict:
    state: str
    sentence: str


@dataclass(frozen=True)
class _StudyRecord:
    verdict: _Verdict
    options: Mapping[str, Any]
    origins: Sequence[str]
    seconds: float | None
    code: str


@dataclass(frozen=True)
class _Record:
    """Of a run's result.json, what is read here."""

    error: _Error | None = None
    study: _StudyRecord | None = None


def known(item: Item, runs: Path) -> Known:
    """The newest of the results in `runs`. Else what is committed. Else not run."""
    if item.target is None:
        return Known(item, item.state, f"{item.why}; the nearest: {item.nearest}")
    paths = [*runs.glob(f"*_{item.paper}_{item.name}/{RESULT_FILE}"), folder_of(item, runs) / RESULT_FILE]
    for path in sorted((path for path in paths if path.is_file()), key=lambda path: path.stat().st_mtime, reverse=True):
        if result := _read(item, path):
            return result
    committed = committed_verdicts(item.paper).get(item.name)
    if committed is None:
        return Known(item, NOT_RUN, "")
    details = (committed.get(key) for key in ("figures", "origins", "options", "seconds"))
    return Known(item, committed["state"], with_reason(item, committed["state"], committed["verdict"]), *details)


def _read(item: Item, path: Path) -> Known | None:
    """The result in a run folder; None of one that is not a study's."""
    result = read_json(path)
    check_shape(result, _Record, path, "take the folder away, or run the study again")
    if error := result.get("error"):
        return Known(item, FAILED, error["message"].splitlines()[0] if error["message"] else error["type"], folder=path.parent)
    if not (study := result.get("study")):
        return None
    verdict, recorded = study["verdict"], study["options"]
    options = {key: value for key, value in recorded.items() if value != item.options.get(key)}
    return Known(
        item,
        verdict["state"],
        with_reason(item, verdict["state"], verdict["sentence"]),
        {key: value for key, value in verdict.items() if key not in ("state", "sentence", "why")},
        tuple(study["origins"]),
        options,
        study["seconds"],
        study["code"] == code_fingerprint(),
        path.parent,
    )


def with_reason(item: Item, state: str, sentence: str) -> str:
    """The sentence of a verdict and, where it deviates, the reason as its YAML has it now."""
    return f"{sentence} {item.why}" if state == DEVIATES and item.why else sentence


def committed_verdicts(paper: str) -> dict[str, Any]:
    path = EXPERIMENTS / paper / VERDICTS_FILE
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def record_verdicts(runs: Path) -> list[Path]:
    """Writes experiments/PAPER/verdicts.json again from the results in `runs`. What was not run here keeps what it says.

    `root`, a study's folder of data, becomes DIR: it says nothing elsewhere.
    """
    files = []
    for paper in papers():
        verdicts = committed_verdicts(paper.name)
        for item in paper.items:
            result = known(item, runs)
            if result.folder is not None and result.state != FAILED:
                verdict = {"state": result.state, "verdict": result.sentence.removesuffix(item.why).rstrip(), "figures": result.figures}
                options = {key: "DIR" if key == "root" else value for key, value in (result.options or {}).items()}
                how = {"origins": result.origins, "options": options, "seconds": result.seconds}
                verdicts[item.name] = verdict | how | {"command": command_of(item.id, options)}
        order = [item.name for item in paper.items if item.name in verdicts]
        if order:
            files.append(write_json(EXPERIMENTS / paper.name / VERDICTS_FILE, {name: verdicts[name] for name in order}))
    return files
