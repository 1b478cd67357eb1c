"""A rank that dies: the others stop, the message names it and says how to go on, and going on ends with the same bits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.end_to_end.lines import ROOT, SMALL, bits, environment, line


def rank_process(log: Path) -> int:
    """The process that has a rank's log open."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if any(os.readlink(fd) == str(log) for fd in (entry / "fd").iterdir()):
                return int(entry.name)
        except OSError:
            continue
    raise AssertionError(f"no process has {log} open")


def test_a_lost_rank(undisturbed, cache, tmp_path):
    folder = tmp_path / "run"
    words = ["model=dcn", "sharder=torchrec", "cluster=h100x64", *SMALL, f"hydra.run.dir={folder}"]
    process = subprocess.Popen(
        [sys.executable, "run.py", *words], cwd=ROOT, env=environment(cache), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    until = time.monotonic() + 120
    while not any((folder / "checkpoints").glob("step=*")):
        assert time.monotonic() < until and process.poll() is None
        time.sleep(0.02)
    victim = rank_process(folder / "logs" / "rank3.log")
    os.kill(victim, signal.SIGKILL)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 4, said
    assert "rank 3 on host 1 was lost (killed by SIGKILL)" in said and f"python run.py resume={folder}" in said
    assert "Traceback" not in said
    done = line(f"resume={folder}", cache=cache)
    assert done.code == 0, done.err
    assert bits(folder) == bits(undisturbed[0])
