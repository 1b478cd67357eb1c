"""What a user waits for before an answer: help, and the refusal of a line, import none of the libraries that take seconds."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from recsys_lab.__main__ import COMMANDS, ROOT

HEAVY = {
    "torch",
    "torchrec",
    "fbgemm_gpu",
    "lightning",
    "torchmetrics",
    "scipy",
    "sklearn",
    "matplotlib",
    "plotly",
    "wandb",
    "pandas",
    "optuna",
}
HELP = [("-m", "recsys_lab", name, "--help") for name, (module, _) in COMMANDS.items() if module.startswith("recsys_lab.")]


def imported(*line: str) -> tuple[int, set[str]]:
    """The exit code of `python LINE`, and the packages that it imported."""
    done = subprocess.run([sys.executable, "-X", "importtime", *line], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    return done.returncode, {
        name.partition(".")[0] for name in re.findall(r"^import time:[^|]*\|[^|]*\| *(\S+)$", done.stderr, re.MULTILINE)
    }


@pytest.mark.parametrize("line", [("run.py", "--help"), ("-m", "recsys_lab", "--help"), *HELP], ids=" ".join)
def test_help_imports_nothing_heavy(line: tuple[str, ...]) -> None:
    code, packages = imported(*line)
    assert code == 0 and "recsys_lab" in packages and sorted(HEAVY & packages) == []


@pytest.mark.parametrize(
    "line",
    [
        ("run.py", "nonsense=1"),
        ("run.py", "model=dcnn"),
        ("-m", "recsys_lab", "decide", "clusters=nope"),
        ("-m", "recsys_lab", "rank", "sharder=dmt"),
        ("-m", "recsys_lab", "frequencies", "--rows", "0", "-o", "x.npz", "data=random"),
    ],
    ids=" ".join,
)
def test_a_refused_line_imports_nothing_heavy(line: tuple[str, ...]) -> None:
    code, packages = imported(*line)
    assert code == 2 and "recsys_lab" in packages and sorted(HEAVY & packages) == []


def test_a_simulation_imports_no_library_of_training_and_none_that_draws(tmp_path: Path) -> None:
    code, packages = imported("run.py", "mode=simulate", "logger=none", f"hydra.run.dir={tmp_path / 'run'}")
    assert code == 0 and sorted({"lightning", "torchmetrics", "scipy", "matplotlib", "wandb"} & packages) == []


def test_what_is_imported_is_seen() -> None:
    assert imported("-c", "import scipy.special")[1] >= {"scipy", "numpy"}
