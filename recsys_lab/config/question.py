"""What Hydra answers: `--help`, `--cfg`, `--info`, `--version` and shell completion."""

from __future__ import annotations

import sys

import hydra

from recsys_lab.base.paths import CONF
from recsys_lab.config.command_line import Question
from recsys_lab.config.composition import hydra_errors


def ask_hydra(question: Question) -> None:
    """Prints Hydra's answer. Raises UserError for what it refuses, SystemExit where it ends the program."""
    before, sys.argv[1:] = sys.argv[1:], question.argv
    try:
        with hydra_errors():
            hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")(_no_job)()
    finally:
        sys.argv[1:] = before


def _no_job(config: object) -> None:
    """A question runs nothing."""
