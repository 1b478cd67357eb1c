"""Where a disturbed run lies, which processes are its, and what it has left."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

HYDRAS_OWN = ("config.yaml", "hydra.yaml")


@dataclass(frozen=True)
class Workspace:
    """`folder` of a run or a sweep, with a TMPDIR and a cache of prepared data of its own."""

    folder: Path

    @property
    def scratch(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}_tmp")

    @property
    def cache(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}_cache")


def write_clicks(folder: Path, rows: int) -> None:
    """A table that takes a moment to prepare."""
    folder.mkdir(parents=True)
    draw = np.random.default_rng(1)
    columns = [draw.random(rows) < 0.3, draw.random(rows).round(4), draw.integers(0, 3000, rows), draw.integers(0, 500, rows)]
    with (folder / "clicks.csv").open("w") as file:
        file.write("clicked,price,user,item\n")
        file.writelines(f"{int(clicked)},{price},u{user},i{item}\n" for clicked, price, user, item in zip(*columns))


def runs_in(folder: Path) -> list[Path]:
    """The run in `folder`, or the jobs of the sweep there."""
    jobs = sorted(path.parent for path in folder.glob("[0-9]*/config.yaml"))
    return jobs or [folder]


def bits_of(folder: Path) -> list[tuple[Any, str, str]]:
    """Of each run: quality, the last step, and every weight and optimizer state at the end."""
    bits = []
    for run in runs_in(folder):
        steps = {int(path.name[5:]): path for path in (run / "checkpoints").glob("step=*")}
        digest = hashlib.sha256()
        for file in sorted(steps[max(steps)].glob("rank_*.safetensors")):
            digest.update(file.read_bytes())
        record = json.loads((run / "result.json").read_text())
        assert record["status"] == "completed", record
        bits.append((record["quality"], f"step={max(steps)}", digest.hexdigest()))
    return bits


def finished_files(folder: Path) -> frozenset[str]:
    """The files of a run or a sweep that has ended; of checkpoints the newest alone, as there may be one before it or not.

    Without Hydra's own copy of the config: a run that was killed before Hydra began has none.
    """
    newest = {max((run / "checkpoints").glob("step=*"), key=lambda path: int(path.name[5:])) for run in runs_in(folder)}
    files = (path for path in folder.rglob("*") if path.is_file() and not (path.parent.name == ".hydra" and path.name in HYDRAS_OWN))
    return frozenset(str(path.relative_to(folder)) for path in files if not path.parent.name.startswith("step=") or path.parent in newest)


def left_in(workspace: Workspace) -> set[str]:
    """What nobody needs: in TMPDIR all but torch's cache of what it compiles, in the cache what is not whole."""
    scratch = {path.name for path in workspace.scratch.iterdir() if not path.name.startswith("torchinductor_")}
    partial = {path.name for path in workspace.cache.rglob("*") if path.name.startswith(".preparing-") or path.suffix == ".tmp"}
    return scratch | partial


def processes_of(session: int) -> list[int]:
    """Live processes of a session, by which all that a launcher started is known."""
    pids = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, _, _, its_session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(its_session) == session and state != "Z":
                pids.append(int(entry.name))
    return pids


def ranks_of(session: int) -> list[int]:
    """The ranks of a launcher: children of its agent, and the only ones with children of their own kind above them."""
    parents = {}
    for pid in processes_of(session):
        with suppress(OSError):
            parents[pid] = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return sorted(pid for pid, parent in parents.items() if parent in parents and parent != session and pid != os.getpid())
