"""Many studies one after the other, each in a process of its own. What one does, breaks or keeps in memory does not reach the next."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from recsys_lab.base.files import override_of
from recsys_lab.record.result import RESULT_FILE
from recsys_lab.studies.catalogue import Item
from recsys_lab.studies.code import ROOT
from recsys_lab.studies.results import FAILED, Known, folder_of, known
from recsys_lab.studies.waiting import Waiting

LOG_FILE = "study.log"
#: How often the time is reported while a study runs. And how long an interrupted study has to end by itself.
TICK_S, PATIENCE_S = 0.5, 10.0
OnResult = Callable[[Known, float | None], None]


def run_all(selection: Sequence[Item], runs: Path, repeat: bool, report: OnResult) -> list[Known]:
    """Runs `selection` in `runs`; `report` hears of each as it ends, with its seconds, or None of one that was there already.

    A result by this code and with the options of its YAML is not made again unless `repeat`. Where it is interrupted, what has ended stays.
    """
    missing = [item.id for item in selection if repeat or not is_there(item, runs)]
    results = []
    with Waiting([(item.id, known(item, runs).seconds) for item in selection if item.id in missing]) as waiting:
        for item in selection:
            seconds = None
            if item.id in missing:
                began = time.perf_counter()
                run_one(item, folder_of(item, runs), waiting.tick)
                seconds = time.perf_counter() - began
                waiting.ended(seconds)
            results.append(outcome(item, runs))
            report(results[-1], seconds)
    return results


def is_there(item: Item, runs: Path) -> bool:
    last = known(item, runs)
    return last.current and not last.options


def run_one(item: Item, folder: Path, tick: Callable[[float], None] = lambda seconds: None) -> None:
    """`python run.py experiment=...` in `folder`; what it prints is in study.log there. `tick` hears how long it has run.

    What was in `folder` goes when it ends, and comes back where it is interrupted.
    """
    backup = folder.with_name(f"{folder.name}.before")
    if folder.is_dir():
        shutil.rmtree(backup, ignore_errors=True)
        folder.rename(backup)
    folder.mkdir(parents=True)
    command = [sys.executable, str(ROOT / "run.py"), f"experiment={item.id}", override_of("hydra.run.dir", folder.resolve())]
    try:
        with (folder / LOG_FILE).open("w", encoding="utf-8") as log:
            _wait(subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT), tick)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        if backup.is_dir():
            backup.rename(folder)
        raise
    shutil.rmtree(backup, ignore_errors=True)


def _wait(process: subprocess.Popen[bytes], tick: Callable[[float], None]) -> None:
    """Until it ends. Where this process is interrupted, so is that one: by the terminal, which tells both, or else from here."""
    began = time.perf_counter()
    try:
        while process.poll() is None:
            try:
                process.wait(TICK_S)
            except subprocess.TimeoutExpired:
                tick(time.perf_counter() - began)
    except BaseException:
        for how in (None, signal.SIGINT, signal.SIGKILL):
            if how is not None:
                process.send_signal(how)
            try:
                process.wait(PATIENCE_S if how else 1.0)
                break
            except subprocess.TimeoutExpired:
                continue
        raise


def outcome(item: Item, runs: Path) -> Known:
    """What came of it. A study that was refused leaves no record: its last line says why."""
    folder = folder_of(item, runs)
    if (folder / RESULT_FILE).is_file() or not (folder / LOG_FILE).is_file():
        return known(item, runs)
    lines = [line.strip() for line in (folder / LOG_FILE).read_text(encoding="utf-8").splitlines() if line.strip()]
    return Known(item, FAILED, lines[-1] if lines else "it printed nothing", folder=folder)
