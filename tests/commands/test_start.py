"""What a user waits for before an answer: help, and the refusal of a line, import none of the libraries that take seconds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from recsys_lab.__main__ import ROOT

HEAVY = {
    "torch",
    "torchrec",
    "fbgemm_gpu",
    "lightning",
    "torchmetrics",
    "scipy",
    "sklearn",
    "matplotlib",
    "wandb",
    "pandas",
    "optuna",
}
#: The help of every command, one after the other in one process.
HELP = """
from recsys_lab.__main__ import COMMANDS, main
for name, (module, _) in COMMANDS.items():
    if module.startswith("recsys_lab."):
        assert main([name, "--help"]) == 0, name
"""

#: `python LINE` in this interpreter. At its end it names the modules that it has imported itself.
LOOK = """
import atexit, os, runpy, sys
atexit.register(lambda: os.write(2, f"\\nimported {' '.join(sorted(sys.modules))}\\n".encode()))
first, *sys.argv = sys.argv
if sys.argv[0] == "-m":
    runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
elif sys.argv[0] == "-c":
    exec(sys.argv[1])
else:
    sys.path[0] = os.getcwd()
    runpy.run_path(sys.argv[0], run_name="__main__")
"""


def imported(*line: str) -> tuple[int, set[str]]:
    """The exit code of `python LINE`, and the packages that its process imported."""
    done = subprocess.run([sys.executable, "-c", LOOK, *line], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    print(done.stdout, done.stderr)  # pytest shows it where the test fails
    named = [said for said in done.stderr.splitlines() if said.startswith("imported ")]
    assert len(named) == 1, done.stderr
    return done.returncode, {name.partition(".")[0] for name in named[0].split()[1:]}


@pytest.mark.parametrize("line", [("run.py", "--help"), ("-m", "recsys_lab", "--help"), ("-c", HELP)])
def test_help_imports_nothing_heavy(line: tuple[str, ...]) -> None:
    code, packages = imported(*line)
    assert code == 0 and "recsys_lab" in packages and sorted(HEAVY & packages) == []


@pytest.mark.parametrize(
    "line",
    [
        ("run.py", "nonsense=1"),
        ("run.py", "model=dcnn"),
        ("-m", "recsys_lab", "decide", "clusters=nope"),
        ("-m", "recsys_lab", "rank", "model=dcn"),
        ("-m", "recsys_lab", "frequencies", "--rows", "0", "-o", "x.npz", "data=random"),
    ],
    ids=" ".join,
)
def test_a_refused_line_imports_nothing_heavy(line: tuple[str, ...]) -> None:
    code, packages = imported(*line)
    assert code == 2 and "recsys_lab" in packages and sorted(HEAVY & packages) == []


@pytest.mark.parametrize("logger", ["none", "wandb"])
def test_a_simulation_imports_no_library_of_training(tmp_path: Path, logger: str) -> None:
    words = (f"logger={logger}", *(["logger.mode=offline"] if logger == "wandb" else []))
    code, packages = imported("run.py", "mode=simulate", *words, f"hydra.run.dir={tmp_path / 'run'}")
    wandb_brings = {"scipy", "wandb"} if logger == "wandb" else set()
    assert code == 0 and sorted({"lightning", "torchmetrics", "scipy", "wandb"} & packages - wandb_brings) == []


def test_what_is_imported_is_seen() -> None:
    assert imported("-c", "import scipy.special")[1] >= {"scipy", "numpy"}
