"""One job of one folder: runs the pipeline, and turns what goes wrong into a line, an exit code and a clean folder."""

from __future__ import annotations

import os
import shutil
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from recsys_lab.config.frozen import fingerprint, freeze
from recsys_lab.errors import RankLost, UserError, unwritable
from recsys_lab.record.result import CHOICES, Failure, Result, read_result, write_result
from recsys_lab.report import say
from recsys_lab.train.checkpoint import clear_partial, latest

INTERRUPTED = 130


@dataclass(frozen=True)
class Before:
    """What stood in a folder before a job: so that a refused one leaves nothing of its own."""

    folder: Path
    existed: bool
    entries: frozenset[str]

    @staticmethod
    def of(folder: Path) -> Before:
        return Before(folder, folder.is_dir(), frozenset(os.listdir(folder)) if folder.is_dir() else frozenset())

    def restore(self) -> None:
        """Removes what was added, unless training has left a checkpoint to resume from."""
        if latest(self.folder / "checkpoints") is not None or not self.folder.is_dir():
            return
        for name in set(os.listdir(self.folder)) - self.entries:
            path = self.folder / name
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
        if not self.existed and not os.listdir(self.folder):
            self.folder.rmdir()
            _remove_empty_parent(self.folder.parent)


def _remove_empty_parent(parent: Path) -> None:
    if parent.name == "runs" and not os.listdir(parent):
        parent.rmdir()


def run_job(config: DictConfig, folder: Path, before: Before | None, sweep: str | None = None, writes: bool = True) -> int:
    """Runs `config` in `folder`; returns the exit code. In a sweep a failure is also recorded, since its cell must say why.

    `writes`: False on torchrun's ranks other than 0, which are silent and leave the folder to rank 0.
    """
    say.CONSOLE.quiet = not writes
    try:
        config = freeze(config)
        if config.resume and (folder / "result.json").is_file() and read_result(folder)["status"] in ("completed", "pruned"):
            say.finished(read_result(folder), folder)
            return 0
        record = _run(config, folder, sweep, writes)
        if record is not None:
            say.finished(record, folder)
        return 0
    except KeyboardInterrupt:
        print(f"interrupted; go on with: python run.py resume={folder}", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        mistake = error if isinstance(error, UserError) else unwritable(error, folder) if isinstance(error, OSError) else None
        if mistake is None:
            traceback.print_exc()
        elif writes:
            print(f"error: {mistake}", file=sys.stderr)
        keeps = mistake is None or isinstance(mistake, RankLost) or sweep is not None or bool(config.resume)
        if before is not None and not keeps:
            before.restore()
        if writes:
            clear_partial(folder / "checkpoints")
        if writes and folder.is_dir() and (keeps or latest(folder / "checkpoints") is not None):
            _record_failure(config, folder, mistake or error)
        return 1 if mistake is None else mistake.exit_code


def _run(config: DictConfig, folder: Path, sweep: str | None, writes: bool) -> dict[str, Any] | None:
    """The record, by whichever of the two it takes; neither is imported for the other's sake."""
    if config.get("study") is not None:  # a run folder of an earlier version has no such key
        from recsys_lab.studies.run import run_study

        return run_study(config, folder) if writes else None
    from recsys_lab import pipeline

    return pipeline.run(config, folder, sweep, writes)


def _record_failure(config: DictConfig, folder: Path, error: Exception) -> None:
    result = Result(
        status="failed",
        mode=str(config.get("mode")),
        seed=int(config.get("seed", 0)),
        config_fingerprint=fingerprint(config),
        choices={group: str(choice) for group, choice in config.get("choices", {}).items() if group in CHOICES},
        error=Failure(type(error).__name__, str(error)),
    )
    try:
        write_result(folder, result)
    except (OSError, UserError) as second:
        print(f"error: the failure could not be recorded: {second}", file=sys.stderr)
