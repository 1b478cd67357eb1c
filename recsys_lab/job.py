"""One job of one folder: runs the pipeline, and turns what goes wrong into a line, an exit code and a clean folder."""

from __future__ import annotations

import os
import shutil
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from omegaconf import DictConfig

from recsys_lab.config.command_line import Invocation
from recsys_lab.config.frozen import fingerprint, freeze
from recsys_lab.errors import RankLost, UserError, cannot_write, unwritable
from recsys_lab.experiment import resolve
from recsys_lab.record.result import CHOICES, RESULT_FILE, Failure, Result, read_result, write_result
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
    def of(folder: Path | None) -> Before | None:
        if folder is None:
            return None
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


class Ending:
    """`with Ending(...) as ending`: the end of a job. What goes wrong becomes a line, an exit code and a clean folder.

    The exit code is added to `codes`. In a sweep a failure is also recorded, since its cell must say why. `writes`: False on torchrun's
    ranks other than 0, which are silent and leave the folder to rank 0.
    """

    def __init__(
        self,
        config: DictConfig,
        folder: Path,
        codes: list[int],
        before: Before | None = None,
        sweep: str | None = None,
        *,
        writes: bool = True,
    ):
        self.config, self.folder, self.codes, self.before, self.sweep, self.writes = config, folder, codes, before, sweep, writes

    def work(self) -> Callable[[], dict[str, Any] | None]:
        """What the config asks for, ready to be called for its record: a study, a run, or what a run left that has ended before.

        Raises UserError for a config that cannot be.
        """
        self.config = freeze(self.config)
        if self.config.resume and (self.folder / RESULT_FILE).is_file():
            record = read_result(self.folder)
            if record["status"] in ("completed", "pruned"):
                return lambda: record
        experiment = resolve(self.config)
        if experiment.study is not None:  # neither is imported for the other's sake
            from recsys_lab.studies.run import run_study

            return partial(run_study, experiment, self.folder) if self.writes else lambda: None
        from recsys_lab import pipeline

        return partial(pipeline.run, experiment, self.folder, self.sweep, self.writes)

    def say(self, record: dict[str, Any] | None) -> None:
        """How the run ended; nothing where its ranks start later."""
        if record is not None:
            say.finished(record, self.folder)

    def __enter__(self) -> Ending:
        say.CONSOLE.quiet = not self.writes
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        if isinstance(error, KeyboardInterrupt):
            print(f"interrupted; go on with: python run.py resume={self.folder}", file=sys.stderr)
            self.codes.append(INTERRUPTED)
        elif isinstance(error, Exception):
            self.codes.append(self._failed(error))
        elif error is None:
            self.codes.append(0)
        return error is None or isinstance(error, Exception | KeyboardInterrupt)

    def _failed(self, error: Exception) -> int:
        mistake = error if isinstance(error, UserError) else unwritable(error, self.folder) if isinstance(error, OSError) else None
        if mistake is None:
            traceback.print_exception(error)
        elif self.writes:
            print(f"error: {mistake}", file=sys.stderr)
        keeps = mistake is None or isinstance(mistake, RankLost) or self.sweep is not None or bool(self.config.resume)
        if self.before is not None and self.writes and not keeps:
            self.before.restore()
        if self.writes:
            clear_partial(self.folder / "checkpoints")
        if self.writes and self.folder.is_dir() and (keeps or latest(self.folder / "checkpoints") is not None):
            _record_failure(self.config, self.folder, mistake or error)
        return 1 if mistake is None else mistake.exit_code


def run_job(config: DictConfig, folder: Path, sweep: str, writes: bool = True) -> int:
    """Runs `config` in `folder`, one of a sweep's; returns the exit code."""
    codes: list[int] = []
    with Ending(config, folder, codes, None, sweep, writes=writes) as ending:
        ending.say(ending.work()())
    return codes[0]


class Outcome:
    """`with Outcome() as outcome`: of a whole command line. Its jobs leave their exit `codes`; a mistake outside of them becomes a line."""

    def __init__(self) -> None:
        self.codes: list[int] = []
        self.line: Invocation | None = None

    @property
    def code(self) -> int:
        """Of a sweep 0 where any job succeeded."""
        return min(self.codes, default=0) if self.line is not None and self.line.multirun else max(self.codes, default=0)

    def __enter__(self) -> Outcome:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        folder = None if self.line is None else self.line.folder
        if isinstance(error, OSError) and self.line is not None and not self.codes:
            error = cannot_write(error, folder)  # Hydra could not make the run folder
        if isinstance(error, UserError):
            print(f"error: {error}", file=sys.stderr)
            self.codes = [error.exit_code]
        elif isinstance(error, KeyboardInterrupt) and self.line is not None:
            print(f"interrupted; the same command with hydra.sweep.dir={folder} finishes the sweep", file=sys.stderr)
            self.codes = [INTERRUPTED]
        else:
            return error is None
        return True


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
