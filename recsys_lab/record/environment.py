"""`environment.json`: what a run ran on and with which code, so that it can be repeated."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

import psutil

from recsys_lab.base.files import read_json, write_json
from recsys_lab.errors import UserError

ENVIRONMENT_FILE = "environment.json"
SOURCE = Path(__file__).resolve().parents[2]


def environment(argv: list[str] | None = None, data: dict[str, Any] | None = None) -> dict[str, Any]:
    """Commit, command, Python, hardware and packages. Unknown is None.

    `data`: what the data set says of itself ({notes, best_auc, fingerprint, own_rows}).
    """
    return {
        "commit": _git("rev-parse", "HEAD"),
        "dirty": None if (changes := _git("status", "--porcelain", "--untracked-files=no")) is None else bool(changes),
        "argv": list(sys.argv if argv is None else argv),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "hardware": {
            "cpu": cpu_model(),
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "memory_bytes": psutil.virtual_memory().total,
            "gpus": _gpus(),
        },
        "packages": dict(sorted(filter(None, map(_name_and_version, distributions())))),
        "data": data,
    }


def write_environment(folder: Path, argv: list[str] | None = None, data: dict[str, Any] | None = None) -> Path:
    """Write `folder`/environment.json."""
    return write_json(Path(folder) / ENVIRONMENT_FILE, environment(argv, data))


def check_rows(folder: Path, own_rows: str) -> None:
    """Raises UserError where the run in `folder` was trained on data with other rows for values than `own_rows` says (OpenDataSet)."""
    if not (folder / ENVIRONMENT_FILE).is_file():
        return
    known = read_json(folder / ENVIRONMENT_FILE)
    trained = known["data"].get("own_rows") if isinstance(known, dict) and isinstance(known.get("data"), dict) else None
    if trained not in (None, own_rows):  # runs of earlier versions do not say
        raise UserError(
            "values would have the rows of others: these are not the files that the model was trained on",
            where=folder,
            allowed="data=criteo: the same train file, with data.splits.test=FILE; data=table: any file; other data: the same files",
            remedy="leave data.root as it was",
        )


def _name_and_version(package: Distribution) -> tuple[str, str] | None:
    """None of a package that does not say. The two lines alone are read: `Distribution.version` takes the whole page apart, each time."""
    head = (package.read_text("METADATA") or package.read_text("PKG-INFO") or "").partition("\n\n")[0]
    fields = dict(line.split(": ", 1) for line in head.splitlines() if line.startswith(("Name: ", "Version: ")))
    return (fields["Name"].lower().replace("_", "-"), fields["Version"]) if len(fields) == 2 else None


def _output(*command: str) -> str | None:
    """What `command` prints, or None where it is not there or fails."""
    if shutil.which(command[0]) is None:
        return None
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return process.stdout.strip() if process.returncode == 0 else None


def _git(*arguments: str) -> str | None:
    """Of the checkout that this package lies in; None where it was installed without one."""
    return _output("git", "-C", str(SOURCE), *arguments) if (SOURCE / ".git").exists() else None


def cpu_model() -> str | None:
    """The processor as its maker calls it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor() or None)


def _gpus() -> list[dict[str, Any]]:
    """Asked of the driver's tool, so that no CUDA context is opened here."""
    listed = _output("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader,nounits")
    cells = [[cell.strip() for cell in line.split(",")] for line in (listed or "").splitlines()]
    return [{"name": c[0], "memory_mib": int(c[1]) if c[1].isdigit() else None, "driver": c[2]} for c in cells if len(c) == 3]
