"""One job in one folder. It runs the pipeline, and turns what goes wrong into a line, an exit code and a clean folder."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from omegaconf import DictConfig

from recsys_lab.base.files import pasted
from recsys_lab.config.command_line import Invocation
from recsys_lab.config.folders import save_words
from recsys_lab.config.frozen import differences, fingerprint, freeze, load, plain, save
from recsys_lab.config.installed import check_installed
from recsys_lab.errors import (
    UNWRITABLE,
    HungUp,
    RankLost,
    Terminated,
    UserError,
    as_called,
    broken_install,
    cannot_read,
    cannot_write,
    cause,
    unwritable,
)
from recsys_lab.record.ownership import SWEEP_WRITES, Ownership, written
from recsys_lab.record.result import CHOICES, RESULT_FILE, Failure, Result, read_result, write_result
from recsys_lab.report import say
from recsys_lab.report.page import write_missing_page
from recsys_lab.train.checkpoint_folder import clear_partial, latest

#: Exit codes of what a signal cut short: those of a process that the signal ended.
CUT_SHORT: dict[type[BaseException], int] = {KeyboardInterrupt: 130, Terminated: Terminated.exit_code, HungUp: HungUp.exit_code}
#: Files that nothing but a sweep writes into its own folder.
MARKS_OF_A_SWEEP = {"multirun.yaml", "sweep.json", "search.json"}
#: The status of a run that has nothing left to do.
ENDED = ("completed", "pruned")


def owned(line: Invocation, leads: bool) -> AbstractContextManager[Ownership | None]:
    """The folder of `line`, this process's alone while the context lasts. Of a new run, with its config in it.

    `leads`: False on torchrun's ranks other than 0, which leave the folder to rank 0. Raises UserError where the folder is another's.
    """
    if not leads or line.folder is None or line.config is None:
        return nullcontext()
    mine = Ownership.of(line.folder)
    try:
        if line.multirun:
            _check_sweep(mine)
        elif line.config.resume:
            _check_record(mine.folder)
        else:
            _check_no_sweep(mine.folder)
            if mine.earlier_files:
                _make_room(mine, line.config)
            save_words(mine.folder, line.overrides)
            save(plain(line.config), mine.folder)
    except BaseException:
        mine.withdraw()
        raise
    return mine


def _check_sweep(mine: Ownership) -> None:
    """Refuses a folder in which a single run lies, or files that a sweep would write and none has written."""
    if mine.earlier_files:
        raise UserError("a run lies here, not a sweep", where=mine.folder, remedy="choose another folder: hydra.sweep.dir=DIR")
    found = {path.name for path in written(mine.folder, SWEEP_WRITES)}
    if found and not found & MARKS_OF_A_SWEEP:
        raise UserError(
            "files lie here that a sweep would write over",
            where=mine.folder,
            given=", ".join(sorted(found)),
            remedy="choose another folder: hydra.sweep.dir=DIR",
        )


def _check_no_sweep(folder: Path) -> None:
    """Refuses the folder of a sweep, which could not go on beside a run."""
    if any((folder / name).is_file() for name in MARKS_OF_A_SWEEP):
        raise UserError("a sweep lies here, not a run", where=folder, remedy="choose another folder: hydra.run.dir=DIR")


def _check_record(folder: Path) -> None:
    """Refuses to go on where the record is of another config than the run's."""
    if not (folder / RESULT_FILE).is_file():
        return
    record = read_result(folder)
    if record["status"] in ENDED and record["config_fingerprint"] != (own := fingerprint(load(folder))):
        raise UserError(
            "the record is another run's",
            where=folder / RESULT_FILE,
            given=f"that of config {record['config_fingerprint']}, beside config.yaml of {own}",
            remedy="move it away, and resume again",
        )


def _make_room(mine: Ownership, ours: DictConfig) -> None:
    """Removes the run in the folder where `overwrite` says so; else, and where no run wrote what lies there, refuses."""
    theirs = next((config for config in (_config_in(mine.folder), _config_in(mine.folder / ".hydra")) if config is not None), None)
    names = sorted(str(path.relative_to(mine.folder)) for path in mine.earlier_files)
    if theirs is None and mine.after_kill and all(name.startswith(".hydra/") for name in names):
        mine.clear()  # of a run that was killed before its config was there
        return
    if theirs is None:
        raise UserError(
            "files lie here that a run would write over, and no run wrote them",
            where=mine.folder,
            given=", ".join(names[:5]),
            remedy="choose another folder: hydra.run.dir=DIR",
        )
    if ours.overwrite:
        mine.clear()
        return
    same = fingerprint(theirs) == fingerprint(ours)
    ended = has_ended(mine.folder)
    show, go_on = f"python -m recsys_lab show {shlex.quote(str(mine.folder))}", f"python run.py {pasted('resume', mine.folder)}"
    look = f"look at it: {show}" if ended else f"go on with it: {go_on}"
    raise UserError(
        f"{'this' if same else 'another'} run lies here, and {'has ended' if ended else 'was cut short'}",
        where=mine.folder,
        given=None if same else "; ".join(differences(ours, theirs)[:3]),
        remedy=f"{look}; or choose another folder: hydra.run.dir=DIR; or remove that run first: overwrite=true",
    )


def _config_in(folder: Path) -> DictConfig | None:
    """The config of the run in `folder`; None where there is none."""
    try:
        return load(folder)
    except UserError:
        return None


def has_ended(folder: Path) -> bool:
    """Whether the run in `folder` has left a record of its end."""
    try:
        return read_result(folder)["status"] in ENDED
    except UserError:
        return False


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
        mine: Ownership | None = None,
        sweep: str | None = None,
        *,
        writes: bool = True,
    ):
        self.config, self.folder, self.codes, self.mine, self.sweep, self.writes = config, folder, codes, mine, sweep, writes

    def work(self) -> Callable[[], dict[str, Any] | None]:
        """What the config asks for, as a function that returns its record.

        It is a study, a run, or the rest of a run that has ended before.

        Raises UserError for a config that cannot be.
        """
        self.config = freeze(self.config)
        if self.config.resume and (self.folder / RESULT_FILE).is_file():
            record = read_result(self.folder)
            if record["status"] in ENDED:
                return partial(_again, record, self.folder)
        check_installed(self.config)
        from recsys_lab.experiment import resolve  # with torch, which neither help nor a refused line needs

        experiment = resolve(self.config)
        if experiment.study is not None:  # neither is imported for the other's sake
            from recsys_lab.studies.run import run_study

            return partial(run_study, experiment, self.folder) if self.writes else lambda: None
        from recsys_lab import pipeline

        return partial(pipeline.run, experiment, self.folder, self.sweep, self.writes)

    def say(self, record: dict[str, Any] | None) -> None:
        """How the run ended. Nothing where its ranks start later."""
        if record is not None:
            say.finished(record, self.folder, self.config.data.batch_size)

    def __enter__(self) -> Ending:
        say.CONSOLE.quiet = not self.writes
        if self.mine is not None:
            self.mine.begun = True
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        error = error and cause(error)
        if isinstance(error, KeyboardInterrupt | Terminated):
            if self.writes:
                clear_partial(self.folder / "checkpoints")
                last = latest(self.folder / "checkpoints")
                kept = "" if last is None else f" with a checkpoint of {last.name}"
                how = as_called(f"go on with: python run.py {pasted('resume', self.folder)}")
                print(f"{_cut_short(error)}{kept}; {how}", file=sys.stderr)
            self.codes.append(CUT_SHORT[type(error)])
        elif isinstance(error, Exception):
            self.codes.append(self._failed(error))
        elif error is None:
            self.codes.append(0)
        return error is None or isinstance(error, Exception | KeyboardInterrupt | Terminated)

    def _failed(self, error: Exception) -> int:
        mistake = error if isinstance(error, UserError) else broken_install(error)
        if mistake is None and isinstance(error, OSError):
            mistake = self._of_the_disk(error)
        if mistake is None:
            traceback.print_exception(error)
        elif self.writes:
            print(f"error: {mistake}", file=sys.stderr)
        keeps = mistake is None or isinstance(mistake, RankLost) or self.sweep is not None or bool(self.config.resume)
        keeps = keeps or latest(self.folder / "checkpoints") is not None
        if self.mine is not None and self.writes and not keeps:
            self.mine.withdraw()
        if self.writes:
            clear_partial(self.folder / "checkpoints")
        if self.writes and self.folder.is_dir() and keeps:
            _record_failure(self.config, self.folder, mistake or error)
        return 1 if mistake is None else mistake.exit_code

    def _of_the_disk(self, error: OSError) -> UserError | None:
        """`error` as the user's mistake: the disk refused, or somebody removed the run's folder. None of anything else."""
        gone = isinstance(error, FileNotFoundError) and not self.folder.is_dir()
        return cannot_write(error, self.folder) if gone else unwritable(error, self.folder)


def run_job(config: DictConfig, folder: Path, sweep: str, writes: bool = True) -> int:
    """Runs `config` in `folder`, one of a sweep's. Returns the exit code."""
    codes: list[int] = []
    with Ending(config, folder, codes, sweep=sweep, writes=writes) as ending:
        ending.say(ending.work()())
    return codes[0]


def data_fingerprint(config: DictConfig) -> str | None:
    """The fingerprint of the data that a checked `config` reads from files, as they are now. None of none, or where they cannot be read."""
    if config.data.get("root") is None and config.data.frequencies is None:
        return None
    from recsys_lab.experiment import resolve

    try:
        return resolve(config).open_data().fingerprint
    except UserError:
        return None


class Outcome:
    """`with Outcome() as outcome`: of a whole command line. Its jobs leave their exit `codes`. A mistake outside of them becomes a line."""

    def __init__(self) -> None:
        self.codes: list[int] = []
        self.line: Invocation | None = None
        self._handled_before: dict[signal.Signals, Any] = {}

    @property
    def code(self) -> int:
        """0 done, 2 a mistake to mend, 3 does not fit, 4 a rank was lost, 1 a bug of ours. 129, 130 and 143: SIGHUP,
        Ctrl-C and SIGTERM cut it short.

        Of a sweep 0 where no job failed, else the lowest of those that failed.
        """
        return min((code for code in self.codes if code), default=0)

    def __enter__(self) -> Outcome:
        os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra lets its errors through to us, and prints nothing of its own
        if threading.current_thread() is threading.main_thread():
            handled = [signal.SIGTERM] + [signal.SIGHUP] * (signal.getsignal(signal.SIGHUP) == signal.SIG_DFL)  # nohup ignores it
            self._handled_before = {number: signal.signal(number, _terminate) for number in handled}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        for number, before in self._handled_before.items():
            signal.signal(number, before)
        folder, error = None if self.line is None else self.line.folder, error and cause(error)
        if isinstance(error, OSError | ImportError) and (mistake := broken_install(error)):
            error = mistake
        elif isinstance(error, OSError) and self.line is not None and not self.codes:
            error = cannot_write(error, folder)  # Hydra could not make the run folder
        elif isinstance(error, OSError) and self.line is None and error.errno in UNWRITABLE:
            error = cannot_read(error, "command line")  # a folder of choices, or what its words name
        if isinstance(error, UserError):
            print(f"error: {error}", file=sys.stderr)
            self.codes = [error.exit_code]
        elif isinstance(error, KeyboardInterrupt | Terminated):
            sweeps = self.line is not None and self.line.multirun
            hint = f"; the same command with {pasted('hydra.sweep.dir', folder)} finishes the sweep" if sweeps and folder else ""
            print(f"{_cut_short(error)}{hint}", file=sys.stderr)
            self.codes = [CUT_SHORT[type(error)]]
        elif isinstance(error, SystemExit) and isinstance(error.code, int | None):  # Hydra's, after what it was asked
            self.codes = [error.code or 0]
        else:
            return error is None
        return True


def _again(record: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The record of a run that has ended, whose page is written now if a kill came between the two."""
    write_missing_page(folder)
    return record


def _terminate(number: int, frame: object) -> None:
    if number == signal.SIGTERM:
        raise Terminated
    signal.signal(number, signal.SIG_IGN)  # the system and the shell send one each where a terminal is closed
    raise HungUp


def _cut_short(error: BaseException) -> str:
    if isinstance(error, Terminated):
        return "ended by SIGHUP" if isinstance(error, HungUp) else "ended by SIGTERM"
    return "interrupted"


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
