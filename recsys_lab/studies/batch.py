"""Many studies one after the other, each in a process of its own: what one does, breaks or keeps in memory is nothing to the next."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from recsys_lab.report.record import RESULT_FILE
from recsys_lab.studies.catalogue import Item
from recsys_lab.studies.code import ROOT
from recsys_lab.studies.results import FAILED, Known, folder_of, known

LOG_FILE = "study.log"
Told = Callable[[Known, float | None], None]


def run_all(chosen: Sequence[Item], runs: Path, again: bool, told: Told) -> list[Known]:
    """Runs `chosen` in `runs`; `told` hears of each as it ends, with its seconds, or None of one that was there already.

    A result by this code and with the options of its YAML is not made again unless `again`.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    found = []
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("studies", total=len(chosen))
        for item in chosen:
            bar.update(task, description=item.id)
            seconds = None
            if again or not is_there(item, runs):
                began = time.perf_counter()
                run_one(item, folder_of(item, runs))
                seconds = time.perf_counter() - began
            found.append(after(item, runs))
            told(found[-1], seconds)
            bar.advance(task)
    return found


def is_there(item: Item, runs: Path) -> bool:
    last = known(item, runs)
    return last.current and not last.options


def run_one(item: Item, folder: Path) -> None:
    """`python run.py experiment=...` in `folder`, which is emptied; what it prints is in study.log there."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = [sys.executable, str(ROOT / "run.py"), f"experiment={item.id}", f"hydra.run.dir='{folder.resolve()}'"]
    with (folder / LOG_FILE).open("w", encoding="utf-8") as log:
        subprocess.run(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, check=False)


def after(item: Item, runs: Path) -> Known:
    """What came of it. A study that was refused leaves no record: its last line says why."""
    folder = folder_of(item, runs)
    if (folder / RESULT_FILE).is_file() or not (folder / LOG_FILE).is_file():
        return known(item, runs)
    lines = [line.strip() for line in (folder / LOG_FILE).read_text(encoding="utf-8").splitlines() if line.strip()]
    return Known(item, FAILED, lines[-1] if lines else "it printed nothing", folder=folder)
