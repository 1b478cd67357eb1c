"""What signals leave: SIGTERM and SIGHUP a checkpoint, a line and an exit code; no signal, not even SIGKILL, a file in TMPDIR."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.end_to_end.lines import ROOT, SMALL, bits, default_signals, environment, last_checkpoint, line

LINE = ("model=dcn", "sharder=torchrec", "cluster=h100x64", *SMALL, "trainer.checkpoint_every_steps=0")


def signalled(folder: Path, cache: Path, scratch: Path, number: int, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs `words` in `folder` and sends it the signal once the run trains: to the launcher alone, or as a closed terminal does."""
    scratch.mkdir(exist_ok=True)
    command = [sys.executable, "run.py", *words, f"hydra.run.dir={folder}"]
    variables = environment(cache) | {"TMPDIR": str(scratch)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, cwd=ROOT, env=variables, process_group=0, preexec_fn=default_signals, **pipes)  # type: ignore[call-overload]
    until = time.monotonic() + 200
    while not (folder / "metrics.csv").is_file() or "\n1," not in (folder / "metrics.csv").read_text():
        assert process.poll() is None and time.monotonic() < until, process.communicate()
        time.sleep(0.02)
    for _ in range(2 if number == signal.SIGHUP else 1):  # the shell sends it too
        os.kill(-process.pid if number == signal.SIGHUP else process.pid, number)
    out, err = process.communicate(timeout=100)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def left(scratch: Path) -> list[str]:
    """But for torch's cache of what it compiles, which every run leaves."""
    return [name for name in os.listdir(scratch) if not name.startswith("torchinductor_")]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_such_a_signal_leaves_a_checkpoint_and_a_line(undisturbed, cache, tmp_path, number, code):
    folder = tmp_path / "run"
    done = signalled(folder, cache, tmp_path / "scratch", number, *LINE)
    step = last_checkpoint(folder).name
    assert done.returncode == code, done.stderr
    assert done.stderr == f"ended by {number.name} with a checkpoint of {step}; go on with: python run.py resume={folder}\n"
    assert left(tmp_path / "scratch") == [] and not (folder / "result.json").exists()
    assert sorted(os.listdir(folder / "checkpoints")) == [step] and 1 <= int(step[5:]) < 48
    done = line(f"resume={folder}", cache=cache, timeout_s=300)
    assert done.code == 0, done.err
    assert bits(folder) == bits(undisturbed[0])


@pytest.mark.timeout(600)
def test_sigkill_of_the_launcher_leaves_no_process_and_no_file_elsewhere(cache, tmp_path):
    words = (*LINE, "launcher.hosts=1", "launcher.ranks_per_host=2", "data.rows_train=60000")
    done = signalled(tmp_path / "run", cache, tmp_path / "scratch", signal.SIGKILL, *words)
    assert done.returncode == -signal.SIGKILL  # communicate() has returned, so every process that held its pipes has ended
    assert left(tmp_path / "scratch") == []


def test_sigterm_while_a_run_is_planned(tmp_path, monkeypatch, capfd):
    """Of a sweep too: it ends as a whole, and says how to finish it."""
    import run
    from recsys_lab import pipeline

    def told(*given: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(pipeline, "plan_for", told)
    words = ["data=random", "mode=plan", "logger=none"]
    assert run.main([*words, f"hydra.run.dir={tmp_path / 'run'}"]) == 143
    assert capfd.readouterr().err == f"ended by SIGTERM; go on with: python run.py resume={tmp_path / 'run'}\n"
    assert run.main(["-m", "seed=1,2", *words, f"hydra.sweep.dir={tmp_path / 'sweep'}"]) == 143
    said = capfd.readouterr().err.splitlines()
    assert said[-1] == f"ended by SIGTERM; the same command with hydra.sweep.dir={tmp_path / 'sweep'} finishes the sweep" and len(said) == 2
    monkeypatch.undo()
    assert signal.getsignal(signal.SIGTERM) is before
    assert run.main([f"resume={tmp_path / 'run'}"]) == 0
    assert run.main(["-m", "seed=1,2", *words, f"hydra.sweep.dir={tmp_path / 'sweep'}"]) == 0
