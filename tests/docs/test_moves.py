"""The tutorial of docs/moves.md, from its first command to its last, as a reader would run it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.reliability.caches import with_kernels
from tests.docs.pages import ROOT, TUTORIAL, shown
from tests.docs.test_commands import _missing

PAGE = ROOT / "docs" / "moves.md"


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_tutorial_prints_what_the_page_shows(tmp_path: Path) -> None:
    home = os.environ | {"HOME": str(tmp_path), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    home |= {"STUDY": str(tmp_path / "my_model"), "XDG_CACHE_HOME": str(with_kernels(tmp_path / "cache"))}
    (code,) = re.findall(r"```python\n(import csv.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    commands = [command for command in shown(PAGE) if command.reason_not_run == TUTORIAL]
    assert len(commands) == 6
    for command in commands:
        done = subprocess.run(["bash", "-c", command.text], cwd=ROOT, env=home, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command.text}\n{done.stderr[-2000:]}"
        assert _missing(command.parts, done.stdout) is None
        if command.text.startswith("mkdir"):
            (tmp_path / "my_model" / "make_clicks.py").write_text(code)
    assert (tmp_path / "my_model" / "cluster" / "slurm.sh").is_file() and (tmp_path / "my_model" / "tomorrow.parquet").is_file()
