"""The server of ranks starts before the line is read, where it will train here. A wrong guess leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from launchers import early, processes
from launchers.early import trains_here

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["model=dcn", "sharder=dmt", "cluster=h100x64"],
        ["mode=train", "launcher=emulated", "-m", "seed=1,2"],
        ["mode=auto", "launcher=local", "resume=runs/one"],
    ],
)
def test_a_line_that_trains_here(words: list[str]) -> None:
    assert trains_here(words, {})
    assert not trains_here(words, {"RANK": "0"})


@pytest.mark.parametrize(
    "words",
    [["--help"], ["--cfg", "job"], ["mode=simulate"], ["mode=plan"], ["launcher=slurm"], ["experiment=dmt/frappe"], ["-m", "mode=plan"]],
)
def test_a_line_that_does_not(words: list[str]) -> None:
    assert not trains_here(words, {})


@pytest.mark.parametrize(("cores", "begun"), [(1, 0), (2, 1)])
def test_nothing_begins_early_where_it_would_take_the_core(cores: int, begun: int, monkeypatch: pytest.MonkeyPatch) -> None:
    forked: list[bool] = []
    monkeypatch.setattr(processes, "warm", lambda: forked.append(True))
    monkeypatch.setattr(early, "cores", lambda: cores)
    early.begin(["model=dcn"])
    assert len(forked) == begun


def started(*words: str) -> subprocess.Popen:
    """run.py in a session of its own, whose processes are found by it."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "run.py", *words], cwd=ROOT, start_new_session=True, **pipes)


def of_session(number: int) -> list[psutil.Process]:
    """The processes of a session that still run."""
    found = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == number and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return found


def wait_until(true, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "in vain"
        time.sleep(0.02)


def test_a_line_that_is_refused_ends_the_server_while_it_imports() -> None:
    process = started("model=dnc")
    _, said = process.communicate(timeout=60)
    assert process.returncode == 2 and "did you mean 'dcn'" in said and "Traceback" not in said
    wait_until(lambda: not of_session(process.pid), 2)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_process_that_is_ended_takes_the_importing_server_with_it(number: signal.Signals, tmp_path: Path) -> None:
    process = started(f"hydra.run.dir={tmp_path / 'run'}", "logger=none")
    wait_until(lambda: len(of_session(process.pid)) > 1, 20)
    os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode and "Traceback" not in said
    wait_until(lambda: not of_session(process.pid), 2)


def test_with_a_closed_stream_nothing_starts_early(tmp_path: Path) -> None:
    """A pipe of the server would be taken for the stream."""
    line = f"exec {sys.executable} run.py mode=auto model=dnc >&-"
    done = subprocess.run(["bash", "-c", line], cwd=ROOT, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 2 and "did you mean 'dcn'" in done.stderr
