"""A line is composed once and checked once, in few calls, and nothing of Hydra's inside is touched."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
QUIET = ["mode=plan", "data=random", "logger=none"]
#: Counts what Hydra composes while run.py's main runs a line.
COUNT = """
import json, sys
import hydra._internal.config_loader_impl as loader
import run
compose, count = loader.ConfigLoaderImpl._load_configuration_impl, []
loader.ConfigLoaderImpl._load_configuration_impl = lambda *args, **keys: count.append(1) or compose(*args, **keys)
code = run.main(sys.argv[1:])
print(json.dumps([code, len(count)]))
"""
#: Named functions of ours, and their calls, while a line is read. What runs because a module is imported does not count.
CALLS = """
import json, sys
from collections import Counter
from recsys_lab.config.command_line import read
calls = Counter()

def imports(frame):
    while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame is not None

def note(frame, event, _):
    code = frame.f_code
    ours = event == "call" and code.co_filename.startswith(ROOT) and ".venv" not in code.co_filename
    if ours and not code.co_name.startswith("<") and not imports(frame):
        calls[code.co_filename, code.co_qualname] += 1

sys.setprofile(note)
read(sys.argv[1:])
sys.setprofile(None)
print(json.dumps([len(calls), sum(calls.values()), [f"{count} {name}" for (_, name), count in calls.most_common()]]))
"""


def output(code: str, *words: str) -> list:
    program = [sys.executable, "-c", code.replace("ROOT", repr(str(ROOT) + "/")), *words]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("words", "compositions"),
    [
        (["hydra.run.dir={}/run"], 1),
        (["hydra.run.dir={}/run", "cluster=h100", "cluster/device=l4"], 1),
        (["hydra.run.dir={}/run", "sharder.planner.force.cat_1=row_wise"], 1),
        (["-m", "hydra.sweep.dir={}/sweep", "model=dcn,dlrm", "seed=1,2"], 5),
    ],
)
def test_a_line_is_composed_once_and_a_sweep_once_a_job(tmp_path: Path, words: list[str], compositions: int) -> None:
    assert output(COUNT, *QUIET, *(word.format(tmp_path) for word in words)) == [0, compositions]


def test_a_line_is_read_in_few_calls() -> None:
    functions, calls, names = output(CALLS, "mode=plan", "cluster=h100", "cluster/device=l4")
    assert functions <= 40 and calls <= 600, names


def test_nothing_of_hydras_inside_is_touched() -> None:
    files = [ROOT / "run.py", *(ROOT / "recsys_lab").rglob("*.py"), *(ROOT / "launchers").rglob("*.py")]
    assert [str(file) for file in files if re.search(r"hydra\._internal", file.read_text(encoding="utf-8"))] == []
    assert len((ROOT / "run.py").read_text(encoding="utf-8").splitlines()) <= 35


def test_a_run_leaves_what_hydra_leaves(tmp_path: Path) -> None:
    import run

    words = [*QUIET, "seed=3", "sharder.planner.force.cat_1=row_wise", f"hydra.run.dir={tmp_path / 'run'}"]
    assert run.main(words) == 0
    hydra = {path.name: path.read_text() for path in (tmp_path / "run" / ".hydra").iterdir()}
    assert sorted(hydra) == ["config.yaml", "hydra.yaml", "overrides.yaml"]
    assert hydra["overrides.yaml"].splitlines() == [f"- {word}" for word in words[:-1]]
    assert "seed: 3" in hydra["config.yaml"] and "${" in hydra["config.yaml"]  # as it was written, interpolations too
    assert f"output_dir: {tmp_path / 'run'}" in hydra["hydra.yaml"]
