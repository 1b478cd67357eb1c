"""One study, whole: what `python run.py experiment=flexshard/table6` does, from the study's function to the files of the run folder."""

from __future__ import annotations

import time
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from recsys_lab.config.choices import apart_from_hydra
from recsys_lab.config.frozen import fingerprint, plain
from recsys_lab.config.options import StudyCommon
from recsys_lab.config.schema import build
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

COMMON = {field.name for field in fields(StudyCommon)}


def run_study(config: DictConfig, folder: Path) -> dict[str, Any]:
    """Runs or simulates the study of `config` (frozen) and returns the record. What did not train or plan is null in it."""
    began, code = time.perf_counter(), code_fingerprint()  # as it is now: a study may take hours
    OmegaConf.save(config, folder / "config.yaml")
    name = str(config.choices["experiment"])
    keys = config.study
    with apart_from_hydra():
        study: Study = build(OmegaConf.masked_copy(keys, [key for key in keys if key not in COMMON]), name.split("/")[-1])
    verdict = judge(study, Tolerance(keys.within, keys.within_points))
    why = keys.why if verdict.state == DEVIATES and keys.why else ""
    sentence, command = f"{verdict.sentence} {why}".strip(), command_of(name, options_of(plain(keys)))
    head = f"**Question.** {keys.question}\n\n**Hypothesis.** {keys.hypothesis}\n\n    {command}"
    write_study(folder, study, head, sentence)
    record = Result(
        status="completed",
        mode=config.mode,
        seed=config.seed,
        config_fingerprint=fingerprint(config),
        choices={},
        study={
            "name": name,
            "command": command,
            "question": keys.question,
            "hypothesis": keys.hypothesis,
            "verdict": asdict(verdict) | {"why": why or None},
            "options": options_of(plain(keys)),
            "origins": sorted({line.origin for line in study.lines}),
            "code": code,
            "seconds": round(time.perf_counter() - began, 1),
            "found": study.to_json(),
        },
    )
    write_result(folder, record)
    write_environment(folder)
    page = write_study_page(folder, study, record.to_json()["study"])
    _log(config, folder, name, study, page)
    show_study(study, sentence)
    return record.to_json()


def _log(config: DictConfig, folder: Path, name: str, study: Study, page: Path) -> None:
    """The logger's run of a study. W&B's has the verdict in its summary, every line as a table, and the page."""
    logger = build(config.logger, folder, plain(config), name, None)
    if hasattr(logger, "log_tables"):
        rows = [(x.what, x.unit, x.published, x.ours, x.origin, x.error, x.by_construction) for x in study.lines]
        logger.log_tables("study", {"lines": (LINE_COLUMNS, rows)}, page.read_text(encoding="utf-8"))
    finish(logger, "completed")


def options_of(study: dict[str, Any]) -> dict[str, Any]:
    """The keys of a study's function, apart from what every study has."""
    return {key: value for key, value in study.items() if key not in COMMON and key != "_target_"}
