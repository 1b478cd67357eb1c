"""Command lines run as a user runs them, in processes of their own, small enough for a test."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.reliability.caches import with_kernels
from tests.end_to_end import warm

ROOT = warm.ROOT
#: Generated data so few that a run takes seconds, with dropout so that random state matters.
SMALL = (
    "data.rows_train=6000",
    "data.rows_validation=1500",
    "data.rows_test=1500",
    "data.batch_size=256",
    "trainer.max_epochs=2",
    "trainer.checkpoint_every_steps=5",
    "model.dropout=0.1",
    "logger=none",
    "baselines=false",
)


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


def environment(cache: Path) -> dict[str, str]:
    return os.environ | {"XDG_CACHE_HOME": str(with_kernels(cache))}


def default_signals() -> None:
    """In a child that is to be signalled. It would else inherit that `nohup`, or a shell that runs tests beside others, ignores some."""
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


def line(*words: str, cache: Path, program: tuple[str, ...] = ("run.py",), timeout_s: float = 200) -> Done:
    """`python run.py WORDS`, from the checkout, in a process that need not import what it uses (`warm`)."""
    with tempfile.TemporaryDirectory() as folder:
        code = warm.run(program, words, environment(cache), Path(folder), timeout_s)
        return Done(code, *((Path(folder) / name).read_text() for name in ("out", "err")))


def killed(*words: str, cache: Path, when: Callable[[], bool], pause_s: float, timeout_s: float = 120) -> None:
    """Starts `python run.py WORDS` as a process group and sends all of it SIGKILL `pause_s` after `when()` first holds."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
    process = subprocess.Popen([sys.executable, "run.py", *words], cwd=ROOT, env=environment(cache), **quiet)  # type: ignore[call-overload]
    until = time.monotonic() + timeout_s
    try:
        while not when() and process.poll() is None:
            assert time.monotonic() < until, "the run never came to where it was to be killed"
            time.sleep(0.02)
        time.sleep(pause_s)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def result(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "result.json").read_text())


def last_checkpoint(folder: Path) -> Path:
    return max((folder / "checkpoints").glob("step=*"), key=lambda path: int(path.name.split("=")[1]))


def bits(folder: Path) -> tuple[Any, str, str]:
    """What must be the same bit for bit: quality, the last step, and every weight and optimizer state at the end."""
    last = last_checkpoint(folder)
    digest = hashlib.sha256()
    for file in sorted(last.glob("rank_*.safetensors")):
        digest.update(file.read_bytes())
    return result(folder)["quality"], last.name, digest.hexdigest()


def processes_in(marker: str) -> list[int]:
    """Processes whose command line or open run mentions `marker`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if marker in words and int(entry.name) != os.getpid():
                found.append(int(entry.name))
    return found
