"""One study, whole: what `python run.py experiment=flexshard/table6` does, from the study's function to the files of the run folder."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from recsys_lab.config.choices import apart_from_hydra
from recsys_lab.config.frozen import save
from recsys_lab.experiment import Experiment
from recsys_lab.record.environment import write_environment
from recsys_lab.record.loggers import finish
from recsys_lab.record.result import Result, write_result
from recsys_lab.studies.catalogue import command_of
from recsys_lab.studies.code import code_fingerprint
from recsys_lab.studies.page import write_study_page
from recsys_lab.studies.render import LINE_COLUMNS, write_study
from recsys_lab.studies.show import show_study
from recsys_lab.studies.study import Study
from recsys_lab.studies.verdict import DEVIATES, Tolerance, judge


def run_study(experiment: Experiment, folder: Path) -> dict[str, Any]:
    """Runs or simulates the study of `experiment` and returns the record. What did not train or plan is null in it."""
    assert experiment.study is not None
    began, code = time.perf_counter(), code_fingerprint()  # as it is now: a study may take hours
    save(experiment.config, folder)
    choice, options = experiment.study, experiment.study.options
    with apart_from_hydra():
        study: Study = choice.make(choice.name.split("/")[-1]).with_reading(choice.common.reading)
    verdict = judge(study, Tolerance(choice.common.within, choice.common.within_points), choice.common.compares)
    why = choice.common.why if verdict.state == DEVIATES and choice.common.why else ""
    sentence, command = f"{verdict.sentence} {why}".strip(), command_of(choice.name, options)
    head = f"**Question.** {choice.common.question}\n\n**Hypothesis.** {choice.common.hypothesis}\n\n    {command}"
    write_study(folder, study, head, sentence)
    record = Result(
        status="completed",
        mode=experiment.mode,
        seed=experiment.seed,
        config_fingerprint=experiment.fingerprint,
        choices={},
        study={
            "name": choice.name,
            "command": command,
            "question": choice.common.question,
            "hypothesis": choice.common.hypothesis,
            "verdict": asdict(verdict) | {"why": why or None},
            "options": dict(options),
            "origins": sorted({line.origin for line in study.lines}),
            "code": code,
            "seconds": round(time.perf_counter() - began, 1),
            "found": study.to_json(),
        },
    )
    write_result(folder, record)
    write_environment(folder)
    page = write_study_page(folder, study, record.to_json()["study"])
    _log(experiment, folder, study, page)
    show_study(study, sentence)
    return record.to_json()


def _log(experiment: Experiment, folder: Path, study: Study, page: Path) -> None:
    """The logger's run of a study. W&B's has the verdict in its summary, every line as a table, and the page."""
    assert experiment.study is not None
    logger = experiment.logger(folder, experiment.config, experiment.study.name, None)
    if hasattr(logger, "log_tables"):
        rows = [(x.what, x.unit, x.published, x.ours, x.origin, x.error, x.by_construction) for x in study.lines]
        logger.log_tables("study", {"lines": (LINE_COLUMNS, rows)}, page.read_text(encoding="utf-8"))
    finish(logger, "completed")
