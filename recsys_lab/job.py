"""One job in one folder. It runs the pipeline, and turns what goes wrong into a line, an exit code and a clean folder."""

from __future__ import annotations

import gc
import os
import shlex
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from omegaconf import DictConfig

from recsys_lab.base.files import pasted
from recsys_lab.base.streams import Streams
from recsys_lab.config.command_line import Question, SingleRun, Sweep
from recsys_lab.config.folders import save_hydra
from recsys_lab.config.frozen import differences, fingerprint, freeze, has_other_length, load, plain, save
from recsys_lab.config.installed import check_installed, check_packages
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
#: New objects after which Python looks for cycles. A start makes 400,000 that stay; Python's own 700 cost a tenth of a plan's time.
OBJECTS_PER_COLLECTION = 50_000
#: Files that nothing but a sweep writes into its own folder.
MARKS_OF_A_SWEEP = {"multirun.yaml", "sweep.json", "search.json"}
#: The status of a run that has nothing left to do.
ENDED = ("completed", "pruned")


class Program:
    """`with Program() as program`: a whole command line. Its jobs leave their exit `codes`. A mistake outside of them becomes a line."""

    def __init__(self) -> None:
        self.codes: list[int] = []
        self.streams = Streams()
        self.line: SingleRun | Sweep | Question | None = None
        self._handled_before: dict[signal.Signals, Any] = {}

    @property
    def exit_code(self) -> int:
        """0 done, 2 a mistake to mend, 3 does not fit, 4 a rank was lost, 1 a bug of ours. 129, 130 and 143: SIGHUP,
        Ctrl-C and SIGTERM cut it short.

        Of a sweep 0 where no job failed, else the lowest of those that failed.
        """
        return self.streams.code(min((code for code in self.codes if code), default=0))

    def __enter__(self) -> Program:
        self.streams.__enter__()
        gc.set_threshold(OBJECTS_PER_COLLECTION)
        os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra lets its errors through to us, and prints nothing of its own
        if threading.current_thread() is threading.main_thread():
            handled = [signal.SIGTERM] + [signal.SIGHUP] * (signal.getsignal(signal.SIGHUP) == signal.SIG_DFL)  # nohup ignores it
            self._handled_before = {number: signal.signal(number, _terminate) for number in handled}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        try:
            return self._ended(error)
        finally:
            self.streams.__exit__(kind, error, trace)

    def _ended(self, error: BaseException | None) -> bool:
        """Whether the exit codes say all of `error`."""
        for number, before in self._handled_before.items():
            signal.signal(number, before)
        error = error and cause(error)
        if isinstance(error, KeyboardInterrupt | Terminated):
            sweep = self.line if isinstance(self.line, Sweep) else None
            hint = f"; the same command with {pasted('hydra.sweep.dir', sweep.folder)} finishes the sweep" if sweep else ""
            print(f"{_cut_short(error)}{hint}", file=sys.stderr)
            self.codes = [CUT_SHORT[type(error)]]
        elif isinstance(error, SystemExit) and isinstance(error.code, int | None):  # Hydra's, after what it was asked
            self.codes = [UserError.exit_code if error.code else 0]
        elif isinstance(error, Exception) and (mistake := self._mistake(error)) is not None:
            print(f"error: {mistake}", file=sys.stderr)
            self.codes = [mistake.exit_code]
        else:
            return error is None
        return True

    def _mistake(self, error: Exception) -> UserError | None:
        """`error` as the user's mistake; None of a bug of ours."""
        if isinstance(error, UserError):
            return error
        if (broken := broken_install(error)) is not None or not isinstance(error, OSError):
            return broken
        if self.line is None and error.errno in UNWRITABLE:
            return cannot_read(error, "command line")  # a folder of choices, or what its words name
        folder = None if isinstance(self.line, Question | None) else self.line.folder
        return cannot_write(error, folder) if folder is not None and not self.codes else None


def claimed(line: SingleRun | Sweep, leads: bool) -> AbstractContextManager[Ownership | None]:
    """The folder of `line`, this process's alone while the context lasts. Of a new run, with its config in it.

    `leads`: False on torchrun's ranks other than 0, which leave the folder to rank 0. Raises UserError where the folder is another's.
    """
    check_packages(line)
    if not leads:
        return nullcontext()
    ownership = Ownership.of(line.folder)
    try:
        if isinstance(line, Sweep):
            _check_sweep(ownership)
        elif line.composed is None:  # it resumes
            _check_record(ownership.folder)
        else:
            _check_no_sweep(ownership.folder)
            if ownership.earlier_files:
                _make_room(ownership, line.config)
            save_hydra(ownership.folder, line.composed, line.overrides)
            save(plain(line.config), ownership.folder)
    except BaseException:
        ownership.withdraw()
        raise
    return ownership


def _check_sweep(ownership: Ownership) -> None:
    """Refuses a folder in which a single run lies, or files that a sweep would write and none has written."""
    if ownership.earlier_files:
        raise UserError("a run lies here, not a sweep", where=ownership.folder, remedy="choose another folder: hydra.sweep.dir=DIR")
    names = {path.name for path in written(ownership.folder, SWEEP_WRITES)}
    if names and not names & MARKS_OF_A_SWEEP:
        raise UserError(
            "files lie here that a sweep would write over",
            where=ownership.folder,
            given=", ".join(sorted(names)),
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


def _make_room(ownership: Ownership, config: DictConfig) -> None:
    """Removes the run in the folder where `overwrite` says so; else, and where no run wrote what lies there, refuses."""
    earlier = next((each for each in (_config_in(ownership.folder), _config_in(ownership.folder / ".hydra")) if each is not None), None)
    names = sorted(str(path.relative_to(ownership.folder)) for path in ownership.earlier_files)
    if earlier is None and ownership.after_kill and all(name.startswith(".hydra/") for name in names):
        ownership.clear()  # of a run that was killed before its config was there
        return
    if earlier is None:
        raise UserError(
            "files lie here that a run would write over, and no run wrote them",
            where=ownership.folder,
            given=", ".join(names[:5]),
            remedy="choose another folder: hydra.run.dir=DIR",
        )
    if config.overwrite:
        ownership.clear()
        return
    same = fingerprint(earlier) == fingerprint(config)
    ended = has_ended(ownership.folder)
    show, go_on = f"python -m recsys_lab show {shlex.quote(str(ownership.folder))}", f"python run.py {pasted('resume', ownership.folder)}"
    look = f"look at it: {show}" if ended else f"go on with it: {go_on}"
    raise UserError(
        f"{'this' if same else 'another'} run lies here, and {'has ended' if ended else 'was cut short'}",
        where=ownership.folder,
        given=None if same else "; ".join(differences(config, earlier)[:3]),
        remedy=f"{look}; or choose another folder: hydra.run.dir=DIR; or remove that run first: overwrite=true",
    )


def _config_in(folder: Path) -> DictConfig | None:
    """The config of the run in `folder`; None where there is none."""
    try:
        return load(folder)
    except UserError:
        return None


def _fingerprint_in(folder: Path) -> str | None:
    config = _config_in(folder)
    return None if config is None else fingerprint(config)


def has_ended(folder: Path) -> bool:
    """Whether the run in `folder` has left a record of its end."""
    try:
        return read_result(folder)["status"] in ENDED
    except UserError:
        return False


def run_job(
    config: DictConfig,
    folder: Path,
    ownership: Ownership | None = None,
    *,
    sweep: str | None = None,
    writes: bool = True,
    words: Sequence[str] = (),
) -> int:
    """Runs `config` in `folder`. What goes wrong becomes a line, an exit code and a clean folder.

    Args:
        config: of one run.
        folder: its own.
        ownership: of the folder. An error before there is a checkpoint leaves it as it was.
        sweep: the name of the sweep that the job is of. Its failure is recorded, since its cell must say why.
        writes: False on torchrun's ranks other than 0, which are silent and leave the folder to rank 0.
        words: of a run that resumes with other words than those it has so far, all of them.

    Returns:
        The exit code.
    """
    say.CONSOLE.quiet = not writes
    if ownership is not None:
        ownership.begun = True
    try:
        config = freeze(config)
        if (record := _work(config, folder, sweep, writes, words)()) is not None:
            say.finished(record, folder, config.data.batch_size)
        return 0
    except BaseException as error:
        reason = cause(error)
        if isinstance(reason, KeyboardInterrupt | Terminated):
            return _interrupted(reason, folder, writes)
        if not isinstance(reason, Exception):
            raise
        return _failed(reason, config, folder, ownership, sweep is not None, writes)


def _work(config: DictConfig, folder: Path, sweep: str | None, writes: bool, words: Sequence[str]) -> Callable[[], dict[str, Any] | None]:
    """What the config asks for, as a function that returns its record: a study, a run, or the rest of a run that has ended before.

    Raises UserError for a config that cannot be.
    """
    if config.resume and (folder / RESULT_FILE).is_file():
        record = read_result(folder)
        if record["status"] in ENDED and not has_other_length(plain(config), plain(load(folder))):
            return partial(_again, record, folder)
    check_installed(config)
    from recsys_lab.experiment import resolve  # with what neither help nor a refused line needs

    experiment = resolve(config)
    if experiment.study is not None:  # neither is imported for the other's sake
        from recsys_lab.studies.run import run_study

        return partial(run_study, experiment, folder) if writes else lambda: None
    from recsys_lab import pipeline

    return partial(pipeline.run, experiment, folder, sweep, writes, words)


def _interrupted(error: BaseException, folder: Path, writes: bool) -> int:
    if writes:
        clear_partial(folder / "checkpoints")
        last = latest(folder / "checkpoints")
        kept = "" if last is None else f" with a checkpoint of {last.name}"
        how = as_called(f"go on with: python run.py {pasted('resume', folder)}")
        print(f"{_cut_short(error)}{kept}; {how}", file=sys.stderr)
    return CUT_SHORT[type(error)]


def _failed(error: Exception, config: DictConfig, folder: Path, ownership: Ownership | None, in_sweep: bool, writes: bool) -> int:
    mistake = error if isinstance(error, UserError) else broken_install(error)
    if mistake is None and isinstance(error, OSError):  # the disk refused, or somebody removed the run's folder
        gone = isinstance(error, FileNotFoundError) and not folder.is_dir()
        mistake = cannot_write(error, folder) if gone else unwritable(error, folder)
    if mistake is None:
        traceback.print_exception(error)
    elif writes:
        print(f"error: {mistake}", file=sys.stderr)
    keeps = (
        mistake is None or isinstance(mistake, RankLost) or in_sweep or bool(config.resume) or latest(folder / "checkpoints") is not None
    )
    if ownership is not None and writes and not keeps:
        ownership.withdraw()
    if writes:
        clear_partial(folder / "checkpoints")
    is_refused = bool(config.resume) and fingerprint(config) != _fingerprint_in(folder)  # it changes nothing of the run
    if writes and folder.is_dir() and keeps and not is_refused:
        _record_failure(config, folder, mistake or error)
    return 1 if mistake is None else mistake.exit_code


def data_fingerprint(config: DictConfig) -> str | None:
    """The fingerprint of the data that a checked `config` reads from files, as they are now. None of none, or where they cannot be read."""
    if config.data.get("root") is None and config.data.frequencies is None:
        return None
    from recsys_lab.experiment import resolve

    try:
        return resolve(config).open_data().fingerprint
    except UserError:
        return None


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
